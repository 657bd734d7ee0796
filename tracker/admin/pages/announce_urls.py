"""The announce URLs that the dashboard and the API show."""

from collections.abc import Iterator, Sequence

from tracker.admin.context import AdminContext

EVERYWHERE = ("0.0.0.0", "[::]", "*")


def announce_urls(context: AdminContext, host: str = "", passkey: str = "") -> list[str]:
    """The configured ones; else one URL per address for peers, over HTTP, UDP and WebSockets, in this order.

    Wildcard addresses are replaced by ``host``, the Host header of the request. They are left out where that is this
    machine, which a tunnel may have made of another one. Behind proxies nothing is known. ``passkey`` is part of a
    user's URL.
    """
    settings = context.settings
    if settings.announce.urls or settings.http.trusted_proxies:
        return settings.announce.urls_of(passkey)
    path, name = f"/{passkey}/announce" if passkey else "/announce", _name(host)
    urls = [f"http://{place.removesuffix(':80')}{path}" for place in _places(context.listening, name)]
    urls += [f"udp://{place}{path}" for place in _places(context.udp, name)]
    if settings.serves_websockets:
        urls += [f"ws{url.removeprefix('http')}" for url in urls if url.startswith("http:")]
    return list(dict.fromkeys(urls))


def _places(listen: Sequence[str], name: str) -> Iterator[str]:
    for address in listen:
        if address.startswith("unix:"):
            continue
        at, _, port = address.rpartition(":")
        at = name if at in EVERYWHERE else at
        if at and port != "0":  # 0: chosen by the system at startup
            yield f"{at}:{port}"


def _name(host: str) -> str:
    """``host`` without its port; an IPv6 address keeps its brackets. Empty for this machine."""
    bracketed, bracket, _ = host.partition("]")
    name = f"{bracketed}]" if bracket else host.partition(":")[0]
    return "" if name in ("localhost", "[::1]") or name.startswith("127.") else name
