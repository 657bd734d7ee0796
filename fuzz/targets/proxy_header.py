"""PROXY protocol headers, v1 and v2: parsed, rejected with ValueError, or incomplete; independent of the pieces."""

from collections.abc import Iterable

from tracker.wire.proxy import MAX_PROXY_HEADER_LENGTH, ProxyHeader, parse_proxy_header

MAX_LENGTH = 700


def check(data: bytes) -> None:
    whole = _read(data)
    if isinstance(whole, ProxyHeader):
        assert 0 < whole.length <= min(len(data), MAX_PROXY_HEADER_LENGTH)
        assert whole.source is None or len(whole.source) in (4, 16)
        assert _read(data[: whole.length]) == whole == _read(data + b"GET / HTTP/1.1\r\n"), (
            "the bytes after the header matter"
        )
    elif whole == "incomplete":
        assert len(data) < MAX_PROXY_HEADER_LENGTH, "never complete"
    for end in range(min(len(data), 120)):
        before = _read(data[:end])
        assert before in ("incomplete", whole), "the pieces matter"


def _read(data: bytes) -> ProxyHeader | str:
    try:
        return parse_proxy_header(data) or "incomplete"
    except ValueError:
        return "rejected"


def seeds() -> Iterable[bytes]:
    v2 = b"\r\n\r\n\0\r\nQUIT\n"
    return [
        b"PROXY TCP4 192.0.2.1 192.0.2.2 4000 6969\r\nGET / HTTP/1.1\r\n",
        b"PROXY TCP6 2001:db8::1 ::ffff:1.2.3.4 4000 65535\r\n",
        b"PROXY UNKNOWN ffff::1\r\n",
        v2 + b"\x21\x11\0\x0c" + bytes(12) + b"GET",
        v2 + b"\x21\x21\0\x24" + bytes(36),
        v2 + b"\x20\0\0\0",
        v2 + b"\x21\x11\0\x14" + bytes(12) + b"\x03\0\x05hello",
        v2 + b"\x21\x31\0\xd8" + bytes(216),
    ]
