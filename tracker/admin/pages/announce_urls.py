"""The announce URLs that the dashboard shows."""

from collections.abc import Iterator, Sequence

EVERYWHERE = ("0.0.0.0", "[::]", "*")


def announce_urls(listen: Sequence[str], host: str, passkey: str = "") -> list[str]:
    """One URL per address in ``listen``. Wildcard addresses are replaced by ``host``, the Host header of the request.

    ``passkey`` is part of a user's URL.
    """
    path = f"/{passkey}/announce" if passkey else "/announce"
    return list(dict.fromkeys(f"http://{place}{path}" for place in _places(listen, _name(host))))


def _places(listen: Sequence[str], name: str) -> Iterator[str]:
    for address in listen:
        if address.startswith("unix:"):
            continue
        at, _, port = address.rpartition(":")
        if port == "0":  # chosen by the system at startup
            continue
        at = name if at in EVERYWHERE else at
        yield at if port == "80" else f"{at}:{port}"


def _name(host: str) -> str:
    """``host`` without its port; an IPv6 address keeps its brackets."""
    bracketed, bracket, _ = host.partition("]")
    return f"{bracketed}]" if bracket else host.partition(":")[0] or "localhost"
