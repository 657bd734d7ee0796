"""X-Forwarded-For and Forwarded: only what a trusted proxy appended counts, whatever a client sent."""

from collections.abc import Iterable
from ipaddress import ip_network

from tracker.bittorrent import Address, unmap
from tracker.wire.endpoint import pack_address
from tracker.wire.proxy import Networks, client_address

MAX_LENGTH = 400
_PROXY, _STRANGER = Address(bytes((10, 0, 0, 1))), Address(bytes((11, 2, 3, 4)))
_TRUSTED = Networks([ip_network("10.0.0.0/8"), ip_network("fd00::/8")])


def check(data: bytes) -> None:
    lines = data.decode("latin-1").split("\n")
    found = client_address(_PROXY, lines, (), _TRUSTED)
    other = client_address(_PROXY, (), lines, _TRUSTED)
    for address in (found, other):
        assert len(address) in (4, 16) and address == unmap(address)
    assert client_address(_STRANGER, lines, lines, _TRUSTED) == _STRANGER, "an untrusted header was used"
    assert client_address(_PROXY, lines, ["for=11.1.1.1"], _TRUSTED) == found, "the two headers were mixed"
    assert client_address(_PROXY, [*lines, "11.9.9.9"], (), _TRUSTED) == pack_address("11.9.9.9")
    for before in (lines[-1] + ",", lines[-1] + ", "):
        assert client_address(_PROXY, [*lines[:-1], before + "11.9.9.9"], (), _TRUSTED) == pack_address("11.9.9.9")
        appended = [*lines[:-1], before + "for=11.9.9.9;proto=http"]
        assert client_address(_PROXY, (), appended, _TRUSTED) == pack_address("11.9.9.9"), (
            "the proxy's entry was ignored"
        )


def seeds() -> Iterable[bytes]:
    return [
        b"1.2.3.4, 10.0.0.2",
        b"2001:db8::1\n::ffff:10.1.1.1",
        b'for="[2001:db8::1]:4711";by=10.0.0.1;proto=https, for=10.0.0.9',
        b"for=unknown, for=_hidden",
        b'for="1.2.3.4:80\\"", for=192.0.2.60;proto=http;by=203.0.113.43',
        b"[2001:db8::1]:80, 1.2.3.4:5",
    ]
