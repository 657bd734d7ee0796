"""The announce URLs that the dashboard shows."""

from collections.abc import Iterator, Sequence

EVERYWHERE = ("0.0.0.0", "[::]", "*")


def announce_urls(listen: Sequence[str], udp: Sequence[str], host: str, passkey: str = "") -> list[str]:
    """One URL per address for peers, first those over HTTP, then those over UDP.

    Wildcard addresses are replaced by ``host``, the Host header of the request.
    ``passkey`` is part of a user's URL.
    """
    path, name = f"/{passkey}/announce" if passkey else "/announce", _name(host)
    urls = [f"http://{place.removesuffix(':80')}{path}" for place in _places(listen, name)]
    urls += [f"udp://{place}{path}" for place in _places(udp, name)]
    return list(dict.fromkeys(urls))


def _places(listen: Sequence[str], name: str) -> Iterator[str]:
    for address in listen:
        if address.startswith("unix:"):
            continue
        at, _, port = address.rpartition(":")
        if port == "0":  # chosen by the system at startup
            continue
        yield f"{name if at in EVERYWHERE else at}:{port}"


def _name(host: str) -> str:
    """``host`` without its port; an IPv6 address keeps its brackets."""
    bracketed, bracket, _ = host.partition("]")
    return f"{bracketed}]" if bracket else host.partition(":")[0] or "localhost"
