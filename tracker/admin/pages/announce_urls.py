"""The announce URLs that people put into their clients."""

from collections.abc import Iterator, Sequence

EVERYWHERE = ("0.0.0.0", "[::]", "*")


def announce_urls(listen: Sequence[str], host: str, passkey: str = "") -> list[str]:
    """One for each address listened on, written as in the settings. Where that is every address of the machine, by the
    name it was reached under just now (``host``, as in the Host header). In private mode with ``passkey``.
    """
    path = f"/{passkey}/announce" if passkey else "/announce"
    return list(dict.fromkeys(f"http://{place}{path}" for place in _places(listen, _name(host))))


def _places(listen: Sequence[str], name: str) -> Iterator[str]:
    for address in listen:
        if address.startswith("unix:"):
            continue
        at, _, port = address.rpartition(":")
        if port == "0":  # the system chooses one: nobody knows it beforehand
            continue
        at = name if at in EVERYWHERE else at
        yield at if port == "80" else f"{at}:{port}"


def _name(host: str) -> str:
    """``host`` without its port; an IPv6 address keeps its brackets."""
    bracketed, bracket, _ = host.partition("]")
    return f"{bracketed}]" if bracket else host.partition(":")[0] or "localhost"
