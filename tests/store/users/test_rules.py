"""Multipliers of credited traffic: for all users, of a user, of a torrent, each with an end (row T26)."""

import random
from typing import Any

import pytest

from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, START, Store, info_hash, update
from tracker.errors import ClientError
from tracker.store.schema.multipliers import (
    Multiplier,
    checked_multipliers,
    factors,
    is_neutral,
    multipliers_of,
    parse_end,
)
from tracker.store.swarms.codec import Admitted, JoinedWithMultipliers, PeerUpdate


def alice(peer: int = 1, event: str = "u", **changes: Any) -> PeerUpdate:
    return update(peer, event, passkey=ALICE, **changes)


async def credited(store: Store, peer: int = 1) -> tuple[int, int]:
    """What 1000 bytes each way add to the totals of user 7."""
    before = await store.users.find("7")
    await store.announce(alice(peer, "s"))
    store.clock.now += 10
    await store.announce(alice(peer, uploaded=1000, downloaded=1000))
    after = await store.users.find("7")
    return after.uploaded - before.uploaded, after.downloaded - before.downloaded


@pytest.mark.parametrize(
    ("of_torrent", "of_user", "of_all", "expected"),
    [
        ({}, {}, {}, (1000, 1000)),
        ({"multi_up": "2"}, {}, {}, (2000, 1000)),
        ({"multi_up": "2"}, {"upload_multiplier": "3"}, {}, (3000, 1000)),
        ({"multi_up": "4"}, {"upload_multiplier": "3"}, {"upload": "2"}, (4000, 1000)),
        ({"multi_dn": "0.5"}, {"download_multiplier": "0"}, {}, (1000, 0)),
        ({"multi_dn": "0.5"}, {"download_multiplier": "0.75"}, {"download": "0.25"}, (1000, 250)),
        ({"multi_dn": "0"}, {}, {"download": "0.5"}, (1000, 0)),
        ({"multi_up": "0.5", "multi_dn": "2"}, {}, {}, (500, 2000)),
        ({"multi_up": "0.5", "multi_dn": "2"}, {"upload_multiplier": "1"}, {"download": "1"}, (500, 2000)),
    ],
)
async def test_the_best_multiplier_counts(
    private: Store,
    of_torrent: dict[str, str],
    of_user: dict[str, str],
    of_all: dict[str, str],
    expected: tuple[int, int],
) -> None:
    """T26: of upload the highest, of download the lowest; 1 means none."""
    await private.torrents.add(info_hash(1), of_torrent)
    await private.users.edit(ALICE, of_user)
    await private.multipliers.set(of_all.get("upload", "1"), of_all.get("download", "1"))
    assert await credited(private) == expected


@pytest.mark.parametrize(
    ("up", "down", "expected"),
    [
        ("0", "0", (0, 0)),
        (f"0 {START + 100}", f"0 {START + 100} neutral", (0, 0)),
        ("2 featured, 0 neutral", "0.5 featured, 0 neutral", (0, 0)),
        (f"0 {START + 5}", "0", (2000, 0)),
        ("0", f"0 {START + 5} neutral, 0.5", (2000, 250)),
        ("0", "0.5", (2000, 250)),
        ("2 featured", "0 neutral", (2000, 0)),
    ],
)
async def test_nothing_counts_on_a_neutral_torrent(
    private: Store, up: str, down: str, expected: tuple[int, int]
) -> None:
    """T26: whatever the rules of the user, of all users and a token are. Of a user and of all users 0 is a multiplier
    like others."""
    await private.torrents.add(info_hash(1), {"multi_up": up, "multi_dn": down})
    await private.users.edit(ALICE, {"upload_multiplier": "2", "download_multiplier": "0.25"})
    await private.multipliers.set("1.5", "0.5")
    assert await credited(private) == expected
    joined = await private.announce(alice(3, "s"))
    assert isinstance(joined, JoinedWithMultipliers)
    told = (joined.upload_multiplier, joined.download_multiplier)
    assert told == tuple(f"{bytes_counted / 1000:g}" for bytes_counted in expected)
    found = await private.torrents.get(info_hash(1))
    assert found is not None
    assert found.is_neutral(private.clock.now) == (expected == (0, 0))
    await private.freeleech.give("7", "1", START + 100)
    assert await credited(private, 2) == (expected[0], 0)


async def test_users_and_all_users_are_not_neutral(private: Store) -> None:
    await private.users.edit(ALICE, {"upload_multiplier": "0", "download_multiplier": "0"})
    await private.multipliers.set("0", "0")
    assert await credited(private) == (0, 0)
    await private.torrents.add(info_hash(1), {"multi_up": "2"})
    assert await credited(private, 2) == (2000, 0)


@pytest.mark.parametrize("level", ["torrent", "user", "all"])
async def test_rules_hold_when_others_end(private: Store, level: str) -> None:
    """T26: text that a site wrote amiss is left out by itself."""
    first, second, third = START + 50, START + 100, START + 150
    up = f"3 {second} group, nan, 5 {START} past, 4 {first} donor,2 {third}, 9 1e99, 7 {third} x y, 1.5 event"
    down = f"0.5 {second} group, 0.25 {first} donor, x, 0.75"
    await private.torrents.add(info_hash(1))
    if level == "torrent":
        await private.redis.hset(private.keys.torrent(info_hash(1)), mapping={"multi_up": up, "multi_dn": down})
    elif level == "user":
        rules = {"upload_multiplier": up, "download_multiplier": down}
        await private.redis.hset(private.keys.passkey(ALICE), mapping=rules)
    else:
        await private.redis.set(private.keys.upload_multiplier(), up)
        await private.redis.set(private.keys.download_multiplier(), down)
    expected = [(4000, 250), (3000, 500), (2000, 750), (1500, 750)]
    for peer, at in enumerate((START, first, second, third), 1):
        private.clock.now = at
        assert await credited(private, peer) == expected[peer - 1]


async def test_a_field_has_eight_rules_in_255_bytes(private: Store) -> None:
    await private.multipliers.set(", ".join(["2"] * 8))
    with pytest.raises(ClientError, match="at most 8"):
        await private.multipliers.set(", ".join(["2"] * 9))
    with pytest.raises(ClientError, match="at most 8"):
        await private.multipliers.set(f"2 {'a' * 64}, 2 {'b' * 64}, 2 {'c' * 64}, 2 {'d' * 64}")
    await private.redis.set(private.keys.upload_multiplier(), ", ".join(["2"] * 8 + ["3"]))
    assert await credited(private) == (2000, 1000)
    await private.redis.set(private.keys.upload_multiplier(), f"2, {'x' * 252}")
    assert await credited(private, 2) == (2000, 1000)
    await private.redis.set(private.keys.upload_multiplier(), f"2, {'x' * 253}")
    assert await credited(private, 3) == (1000, 1000)


_PIECES = [
    *("0", "1", "2", "3.5", "1001", ".5", "5.", "x", "donor", "d-2_", "nan", "inf", "-1", "é"),
    " ",
    "  ",
    ",",
    ", ",
]
_PIECES += [f" {START - 1} ", f" {START + 99} ", " 0001 ", " 1e9 ", f" {'9' * 12} ", f" {'9' * 13} "]


async def test_python_reads_rules_as_announces_do(private: Store) -> None:
    """4,000 texts, as a site might have written them."""
    source, known = random.Random(7), 0
    for torrent in range(1, 2001):
        up, down = ("".join(source.choices(_PIECES, k=source.randrange(1, 9))) for _ in range(2))
        key = private.keys.torrent(info_hash(torrent))
        await private.redis.hset(key, mapping={"multi_up": up, "multi_dn": down})
        joined = await private.announce(alice(torrent=torrent))
        rules = multipliers_of(up), multipliers_of(down)
        expected = (0, 0) if is_neutral(*rules, START) else factors(*rules, START)
        told = ("1", "1")
        if isinstance(joined, JoinedWithMultipliers):
            told, known = (joined.upload_multiplier, joined.download_multiplier), known + 1
        assert told == tuple(f"{factor:.6g}" for factor in expected), (up, down)
    assert known > 200


@pytest.mark.parametrize("level", ["torrent", "user", "all"])
async def test_a_multiplier_ends(private: Store, level: str) -> None:
    """T26: at its end, at the next announce, whichever program set it."""
    up, down = f"2 {START + 100}", f"0 {START + 100}"
    await private.torrents.add(info_hash(1))
    if level == "torrent":
        await private.torrents.edit(info_hash(1), {"multi_up": up, "multi_dn": down})
    elif level == "user":
        await private.users.edit(ALICE, {"upload_multiplier": up, "download_multiplier": down})
    else:
        await private.multipliers.set(up, down)
    assert await credited(private) == (2000, 0)
    private.clock.now = START + 90
    assert await credited(private, 2) == (1000, 1000)  # credited at the end


async def test_another_users_multiplier_does_not_count(private: Store) -> None:
    await private.users.edit(BOB, {"upload_multiplier": "3", "download_multiplier": "0"})
    assert await credited(private) == (1000, 1000)


async def test_an_anonymous_peer_has_no_multipliers(make_store: MakeStore) -> None:
    store = await make_store(accounts="optional")
    await store.multipliers.set("2", "0")
    joined = await store.announce(update(1, "s"))
    assert type(joined) is Admitted


@pytest.mark.parametrize("event", ["s", "u"])
async def test_a_join_is_told_its_multipliers(private: Store, event: str) -> None:
    await private.multipliers.set("1", "0")
    await private.users.edit(ALICE, {"upload_multiplier": "1.5"})
    joined = await private.announce(alice(event=event))
    assert isinstance(joined, JoinedWithMultipliers) and joined.outcome == "join"
    assert (joined.upload_multiplier, joined.download_multiplier) == ("1.5", "0")
    assert type(await private.announce(alice())) is Admitted


BAD_RULES = [
    *("", "x", "-", "0 0", "nan", "inf", "-2", "0x2", "1e2", "1001", "2..5", ".", " ", ",", "2x", "\xff"),
    *("2 inf", "2 nan x", "2 -5", "2 1e99", f"2 {START}", f"2 {START} donor", "2 9999999999999", "2 donor x"),
    *("2 5th", "2 donor 1900000000", "9" * 400 + " 1", "2" * 256, "2, " * 90),
]


@pytest.mark.parametrize("held", BAD_RULES)
async def test_other_text_counts_as_no_multiplier(private: Store, held: str) -> None:
    """A site may have written it."""
    for key in (private.keys.upload_multiplier(), private.keys.download_multiplier()):
        await private.redis.set(key, held)
    await private.redis.hset(private.keys.passkey(ALICE), "download_multiplier", held)
    assert await credited(private) == (1000, 1000)
    rules = (await private.users.find("7")).download_multiplier
    assert await private.multipliers.get() == (rules, rules) == (multipliers_of(held), multipliers_of(held))
    assert factors(rules, rules, START) == (1, 1)


async def test_multipliers_of_another_type_fail_no_announce(private: Store) -> None:
    await private.redis.hset(private.keys.upload_multiplier(), "x", "1")
    assert await credited(private) == (1000, 1000)


@pytest.mark.parametrize(
    "text", ["", "-1", "1e3", "1001", "nan", "1 ", "1 0", "1 -5", "1 2 3", "١", "1 inf", "2 a, 3 a", "2,3"]
)
def test_an_invalid_multiplier_is_refused(text: str) -> None:
    with pytest.raises(ClientError):
        checked_multipliers(text)


async def test_a_user_has_no_other_rules(private: Store) -> None:
    with pytest.raises(ClientError, match="no such field"):
        await private.users.edit(ALICE, {"user_id": "8"})
    with pytest.raises(ClientError, match="no such user"):
        await private.users.edit("x" * 20, {"upload_multiplier": "2"})


async def test_rules_stay_with_a_new_passkey(private: Store) -> None:
    await private.users.edit(ALICE, {"download_multiplier": f"0.5 {START}"})
    found = await private.users.rotate(ALICE)
    assert found.download_multiplier == (Multiplier(0.5, START),)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("", None),
        ("2d", START + 172_800),
        ("3h", START + 10_800),
        ("15m", START + 900),
        ("1893456000", 1893456000),
        ("2030-01-01", 1893456000),
        ("2030-01-01T01:00:00", 1893459600),
        ("2030-01-01T01:00:00+01:00", 1893456000),
    ],
)
def test_an_end_is_written_in_several_ways(text: str, end: int | None) -> None:
    assert parse_end(text, START) == end


@pytest.mark.parametrize("text", ["x", "0d", "3w", "1969-12-31", "2030-13-01", "9" * 30, "-1", "1e9"])
def test_any_other_end_is_refused(text: str) -> None:
    with pytest.raises(ClientError):
        parse_end(text, START)
