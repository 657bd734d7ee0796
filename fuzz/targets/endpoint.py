"""Addresses and endpoints: parsed as strictly as by ``ipaddress``, and encoded back without a difference."""

import ipaddress
from collections.abc import Iterable

from tracker.bittorrent import Address, is_routable, unmap
from tracker.wire.endpoint import format_address, format_endpoint, pack_address, pack_endpoint, split_endpoints

MAX_LENGTH = 64


def check(data: bytes) -> None:
    text = data.decode("latin-1")
    address = pack_address(text)
    assert address == _by_ipaddress(text)
    if address is not None:
        assert pack_address(format_address(address)) == address
        is_routable(address)
    for size in (6, 18):
        endpoints = [pack_endpoint(Address(address), port) for address, port in split_endpoints(data, size)]
        assert b"".join(endpoints) == data[: len(data) // size * size]
        for endpoint in endpoints:
            assert format_endpoint(endpoint).rpartition(":")[2] == str(int.from_bytes(endpoint[-2:], "big"))


def _by_ipaddress(text: str) -> Address | None:
    try:
        return None if "%" in text else unmap(ipaddress.ip_address(text).packed)
    except ValueError:
        return None


def seeds() -> Iterable[bytes]:
    return [b"1.2.3.4", b"2001:db8::1", b"::ffff:1.2.3.4", b"01.2.3.4", b"fe80::1%eth0", b"1.2.3", bytes(range(36))]
