"""The numbers of announces: HTTP and UDP read, clamp and refuse the same ones."""

import struct
from collections.abc import Callable

import pytest

from tracker.bittorrent import MAX_COUNT, Announce, Event
from tracker.refusals import Refusal
from tracker.wire import http_request, udp
from tracker.wire.peer_id import secret_of

MAX = b"%d" % MAX_COUNT
HASH, PEER = "a" * 20, "-qB5020-bcdefghijklm"
USUAL = {"port": 6881, "uploaded": 70, "downloaded": 30, "left": 1000, "numwant": 50, "key": 0xCA298A56}
EVENTS = {"": 0, "started": 2, "stopped": 3}
MANY = [1, 2**31 - 1, 2**53 - 1, 2**53, 2**63, 2**63 + 1, 2**64 - 1]


def over_http(numbers: dict[str, int], event: str, *, shuffled: bool) -> Announce:
    """UDP has 4 bytes for the key, which clients write in hex over HTTP, and a sign for the peers wanted."""
    fields = {name: str(number) for name, number in numbers.items()}
    fields |= {"key": f"{numbers['key']:X}", "event": event}
    parameters = [f"info_hash={HASH}&peer_id={PEER}", *(f"{name}={text}" for name, text in fields.items())]
    return http_request.parse_announce("&".join(reversed(parameters) if shuffled else parameters).encode())


def over_udp(numbers: dict[str, int], event: str) -> Announce:
    fields = struct.pack(
        ">20s20sQQQIIIIH",
        HASH.encode(),
        PEER.encode(),
        *(numbers["downloaded"], numbers["left"], numbers["uploaded"], EVENTS[event], 0, numbers["key"]),
        numbers["numwant"] % 2**32,
        numbers["port"],
    )
    return udp.parse_announce(bytes(16) + fields, ipv6=False)


def read(changes: dict[str, int], event: str) -> list[tuple[object, ...] | str]:
    """What both parsers of HTTP and the one of UDP make of the numbers: the fields, or the refusal."""
    found: list[tuple[object, ...] | str] = []
    numbers = USUAL | changes
    parsers: tuple[Callable[[], Announce], ...] = (
        lambda: over_http(numbers, event, shuffled=False),
        lambda: over_http(numbers, event, shuffled=True),
        lambda: over_udp(numbers, event),
    )
    for parse in parsers:
        try:
            a = parse()
        except Refusal as error:
            found.append(f"{error.text}, {error.retry_in}")
        else:
            # The front end of UDP limits the number of peers to what fits a packet, core that of both by a setting.
            wanted = None if a.peers_wanted is None else min(a.peers_wanted, udp.MAX_PEERS)
            secret = secret_of(a.key, a.peer_id)
            found.append((a.port, a.uploaded, a.downloaded, a.bytes_left, wanted, secret, a.event))
    return found


def expected(**changes: object) -> tuple[object, ...]:
    usual = {"port": 6881, "uploaded": b"70", "downloaded": b"30", "left": b"1000", "numwant": 50}
    return tuple((usual | {"key": b"CA298A56", "event": Event.UPDATE} | changes).values())


@pytest.mark.parametrize("name", ["uploaded", "downloaded"])
@pytest.mark.parametrize("number", [0, *MANY])
def test_byte_counts_are_clamped_to_the_exact_range(name: str, number: int) -> None:
    value = b"%d" % min(number, MAX_COUNT)
    assert read({name: number}, "") == [expected(**{name: value})] * 3


@pytest.mark.parametrize(
    ("left", "value"), [(0, b"0"), (16384, b"16384"), (2**60, MAX), (2**63, MAX), (2**63 + 1, None), (2**64 - 1, None)]
)
def test_left_beyond_2_to_the_63_is_unknown(left: int, value: bytes | None) -> None:
    assert read({"left": left}, "") == [expected(left=value)] * 3


@pytest.mark.parametrize(
    ("numwant", "wanted"), [(0, 0), (5, 5), (2**31 - 1, udp.MAX_PEERS), (2**32 - 1, None), (-1, None), (-(2**31), None)]
)
def test_a_negative_numwant_with_or_without_its_sign_is_the_default(numwant: int, wanted: int | None) -> None:
    assert read({"numwant": numwant}, "") == [expected(numwant=wanted)] * 3


@pytest.mark.parametrize(("key", "secret"), [(0, b""), (0xB1, b"000000B1"), (2**32 - 1, b"FFFFFFFF")])
def test_a_key_of_0_is_none(key: int, secret: bytes) -> None:
    assert read({"key": key}, "") == [expected(key=secret)] * 3


def test_only_a_peer_that_stops_may_have_port_0() -> None:
    assert read({"port": 0}, "started") == ["port must be from 1 to 65535, never"] * 3
    assert read({"port": 0}, "stopped") == [expected(port=0, event=Event.STOPPED)] * 3
    assert read({"port": 65535}, "started") == [expected(port=65535, event=Event.STARTED)] * 3


@pytest.mark.parametrize("name", ["uploaded", "downloaded", "left"])
def test_what_udp_has_no_room_for_is_refused_over_http(name: str) -> None:
    """But for 2^64, which is 2^64 - 1 in double precision."""
    assert read_http(name, 2**64) == expected(**{name: None if name == "left" else MAX})[1:4]
    assert read_http(name, 2**64 + 1) == f"{name} must be a number from 0 to 2^64"


def read_http(name: str, number: int) -> tuple[object, ...] | str:
    try:
        announce = over_http(USUAL | {name: number}, "", shuffled=False)
    except Refusal as error:
        return error.text
    return announce.uploaded, announce.downloaded, announce.bytes_left
