"""The arguments of announce.lua and its replies."""

import struct
from collections import deque
from typing import Any, get_args

import pytest

from tests.store.harness import endpoint, info_hash, peer_id, update
from tracker.bittorrent import Accounts, InfoHash
from tracker.store.swarms.codec import (
    WITH_IDS,
    Admitted,
    AdmittedAnonymously,
    AnnounceCodec,
    PeerUpdate,
    Refused,
    TrafficTotals,
    pack,
    pack_rules,
    parse,
    parse_totals,
)
from tracker.store.swarms.rules import LiveRules, SwarmRules

HEAD = "<80scBHII"


def split(packed: bytes) -> tuple[bytes, list[bytes], bytes]:
    """(the fixed-length part, the three counts, the rest)"""
    size = struct.calcsize(HEAD)
    *figures, rest = packed[size:].split(b"\0", 3)
    return packed[:size], figures, rest


@pytest.mark.parametrize(
    ("changes", "figures"),
    [
        ({"uploaded": 5, "downloaded": 0, "bytes_left": 0}, [b"5", b"0", b"0"]),
        ({"uploaded": 2**53 - 1, "downloaded": 10**14}, [b"9007199254740991", b"100000000000000", b"1000"]),
        ({"bytes_left": None}, [b"0", b"0", b""]),
    ],
    ids=["seeder", "exact figures", "left unsaid"],
)
def test_an_announce_is_one_string(changes: dict[str, Any], figures: list[bytes]) -> None:
    announce = update(1, "s", timeout_seconds=2700.5, form=WITH_IDS, **changes)
    head, said, rest = split(pack(announce))
    hexed = (info_hash(1) + peer_id(1)).hex().encode()
    assert struct.unpack(HEAD, head) == (hexed, b"s", 1, 50, 2_700_500, 7)
    assert said == figures
    assert rest == b"\x06" + endpoint(1) + b"\0" + peer_id(1) + b"\0\0"


def test_fields_of_variable_length_have_a_length_prefix() -> None:
    announce = update(1, key=b"8 bytes!", passkey="é" * 200, endpoint=endpoint(1, v6=True))
    rest = pack(announce)[-(18 + 1 + 255 + 20 + 1 + 8 + 1) :]
    assert rest[:18] == endpoint(1, v6=True)
    assert rest[18:274] == b"\xff" + ("é" * 200).encode()[:255]
    assert rest[274:294] == peer_id(1) and rest[294:] == b"\x088 bytes!\0"


def test_every_field_of_an_update_is_packed() -> None:
    """Fields are taken by position."""
    assert PeerUpdate._fields == tuple(update(1)._asdict())
    others: dict[str, Any] = {
        "info_hash": info_hash(2),
        "peer_id": peer_id(2),
        "event": b"c",
        "uploaded": b"1",
        "downloaded": b"1",
        "bytes_left": b"1",
        "endpoint": endpoint(2),
        "peers_wanted": 1,
        "key": b"12345678",
        "passkey": "a",
        "timeout_seconds": 1.5,
        "random": 1,
        "form": WITH_IDS,
    }
    for field, value in others.items():
        assert pack(update(1)._replace(**{field: value})) != pack(update(1)), field


def test_rules_are_doubles() -> None:
    rules = SwarmRules(
        accounts="required", peer_memory=60, hnr_min_bytes=5, hnr_threshold=7, max_gap=11, early=0.5, give_below=3
    )
    numbers = struct.unpack("<31d", pack_rules(rules))
    assert (numbers[0], *numbers[3:9]) == (11, 0.5, 3, 0, 60, 5, 7)
    modes = [struct.unpack("<31d", pack_rules(SwarmRules(accounts=mode)))[2] for mode in get_args(Accounts)]
    assert modes == [0, 1, 2]


def test_rules_of_peer_lists_come_last_and_ports_after_them() -> None:
    """The script reads the doubles from the front, and ports up to the end."""
    rules = SwarmRules(
        max_downloads=9,
        warn_beyond_downloads=True,
        own_peers=True,
        min_credit_interval=60,
        lists_at_once=300,
        lists_per_minute=30,
        lists_per_day=20_000,
        untold_ports=(1, 6881, 65535),
    )
    packed = pack_rules(rules)
    assert struct.unpack_from("<8d", packed, 22 * 8) == (9, 1, 1, 60, 300, 30, 20_000, 290)
    assert packed[31 * 8 :] == b"\x00\x01\x1a\xe1\xff\xff"


def test_announces_are_counted_by_torrent_if_they_were_applied() -> None:
    """With all kinds of replies."""
    counted: list[InfoHash | str] = []
    codec = AnnounceCodec(LiveRules(SwarmRules()), lambda: 1.5, counted.extend, deque())
    long = struct.pack("<HHH", 0, 0, 0)
    replies = [b"u 0 1 0 ", b"e 0 1 0 ", b"U 0 1 0 " + long, b"E 0 1 0 " + long, b"j 0 1 0 ", b"l 0 1 0 "]
    others: list[Any] = [
        *([2, b"u 0 1 0 "], [3, b"j 0 1 0 ", b"1", b"2"], [4, b"j 0 1 0 "], [7, [4, b"u 0 1 0 "], b"00" * 20]),
        *(b"a 0 1 0 ", b"S 0 1 0 " + long, b"d 0 1 0 ", [1, b"denied", b""], [4, b"o 0 1 0 "]),
    ]
    updates = [update(1, torrent=1 + number) for number in range(len(replies) + len(others))]
    outcomes, _ = codec.decode(updates, ["1.5"], [*replies, *others, b"0 0 0 0 0 1\n7 12 7"])
    assert counted == [*(info_hash(number) for number in range(1, 11)), "7", "12", "7"]
    assert [outcome[-1] for outcome in outcomes[:6]] == [*("update", "early") * 2, "join", "leave"]


def test_a_reply_must_answer_every_announce() -> None:
    codec = AnnounceCodec(LiveRules(SwarmRules()), lambda: 1.5, lambda torrents: None, deque())
    moment, may_grow, rules, packed = codec.encode([update(1)])
    assert (moment, may_grow, rules, packed) == ("1.500", 1, pack_rules(SwarmRules()), pack(update(1)))
    admitted = Admitted(0, 1, 0, b"", b"", b"", b"", "join")
    assert codec.decode([update(1)], ["1.5"], [b"j 0 1 0 ", b"1 2 3 4"]) == ([admitted], TrafficTotals(1, 2, 3, 4))
    with pytest.raises(ValueError, match="0 replies to 1 announces"):
        codec.decode([update(1)], ["1.5"], [b"1 2 3 4"])


PEERS, PEERS6 = endpoint(1) + endpoint(2), endpoint(3, v6=True)
IDS, IDS6 = peer_id(1) + peer_id(2), peer_id(3)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (b"u 3 2 1 " + PEERS, Admitted(3, 2, 1, PEERS, b"", b"", b"", "update")),
        (b"j 0 1 0 ", Admitted(0, 1, 0, b"", b"", b"", b"", "join")),
        (b"l 0 0 9007199254740991 ", Admitted(0, 0, 2**53 - 1, b"", b"", b"", b"", "leave")),
        (b"s 1 0 0      1", Admitted(1, 0, 0, b"     1", b"", b"", b"", "stranger")),
        (
            b"U 3 2 1 " + struct.pack("<HHH", 12, 18, 40) + PEERS + PEERS6 + IDS + IDS6,
            Admitted(3, 2, 1, PEERS, PEERS6, IDS, IDS6, "update"),
        ),
        (b"J 3 2 1 " + struct.pack("<HHH", 0, 18, 0) + PEERS6, Admitted(3, 2, 1, b"", PEERS6, b"", b"", "join")),
        ([1, b"denied", b"caf\xe9"], Refused("denied", "caf\ufffd")),
        ([1, b"error", b"WRONGTYPE"], Refused("error", "")),
        ([1, b"unknown passkey", b""], Refused("unknown passkey", "", True)),
        ([2, b"j 0 1 0 "], AdmittedAnonymously(0, 1, 0, b"", b"", b"", b"", "join")),
        ([2, [1, b"denied", b"no"]], Refused("denied", "no", True)),
    ],
    ids=[
        *("update", "join", "leave", "spaces among the peers", "ids", "IPv6", "refused", "error"),
        *("unknown passkey", "anonymous with an unknown passkey", "refused with an unknown passkey"),
    ],
)
def test_replies_are_parsed(reply: object, expected: Admitted | Refused) -> None:
    """Most outcomes are plain tuples."""
    assert (parse(reply), type(parse(reply))) == (expected, tuple if type(expected) is Admitted else type(expected))


def test_moved_bytes_are_parsed() -> None:
    assert parse_totals(b"1 2 3 9007199254740991") == TrafficTotals(1, 2, 3, 2**53 - 1)
    assert parse_totals(b"") == TrafficTotals(0, 0, 0, 0)
    assert parse_totals(b"0 0 0 0 6 7") == TrafficTotals(0, 0, 0, 0, given=6, incomplete=7)
    over_udp = parse_totals(b"1 2 3 4 0 0 5 6 7 8")
    assert over_udp == TrafficTotals(1, 2, 3, 4, udp_up_v4=5, udp_down_v4=6, udp_up_v6=7, udp_down_v6=8)
    assert over_udp.udp_and_ws == (5, 6, 7, 8, 0, 0, 0, 0)
    assert parse_totals(b"0 0 0 0 0 0 0 0 0 0 1 2 3 4").udp_and_ws == (0, 0, 0, 0, 1, 2, 3, 4)
