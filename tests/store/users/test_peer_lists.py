"""The budget of a user: joins, and announces that are not due yet, that are answered with peers (row T33)."""

from typing import Any

import pytest

from tests.store.conftest import MakeStore
from tests.store.harness import ALICE, BOB, START, Store, endpoint, info_hash, text, update
from tests.store.sharding.harness import hash_in
from tracker.bittorrent import InfoHash
from tracker.store.swarms.codec import OWN_FAMILY, WITH_IDS, JoinedWithMultipliers, PeerUpdate, WithoutPeers

EARLY, WAIT, DAY = 100, 300, 86_400
DEFAULTS = {"lists_at_once": 300, "lists_per_minute": 60, "lists_per_day": 20_000}
FEW = {"lists_at_once": 8, "lists_per_minute": 4, "lists_per_day": 0}


async def opened(make_store: MakeStore, *, torrents: int = 40, **rules: Any) -> Store:
    """Bob seeds and leeches on every torrent; that is before the budget applies."""
    every = {"accounts": "required", "peer_memory": 10**6, "early": EARLY, **rules}
    store = await make_store(**{**every, **dict.fromkeys(DEFAULTS, 0)})
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    for torrent in range(1, torrents + 1):
        await store.torrents.add(info_hash(torrent))
        await store.announce(update(100, "s", torrent, passkey=BOB, bytes_left=0))
        await store.announce(update(101, "s", torrent, passkey=BOB))
    return await make_store(**{**FEW, **every})


def said(torrent: int = 1, event: str = "u", peer: int = 1, **values: Any) -> PeerUpdate:
    return update(peer, event, torrent, **{"passkey": ALICE, **values})


async def with_peers(store: Store, *updates: PeerUpdate) -> int:
    """How many of these announces are answered with peers. The others have no budget."""
    number = 0
    for one in updates:
        reply = await store.announce(one)
        told = bool(reply.peers or reply.peers6)
        assert isinstance(reply, WithoutPeers) != told and reply.seeders + reply.leechers > 1
        number += told
    return number


def joins(number: int, *, first: int = 1, **values: Any) -> list[PeerUpdate]:
    return [said(torrent, "s", **values) for torrent in range(first, first + number)]


async def field(store: Store, name: str = "lists_l") -> str | None:
    value: bytes | None = await store.redis.hget(store.keys.user("7"), name)
    return value.decode() if value is not None else None


@pytest.mark.slow
async def test_the_defaults(make_store: MakeStore) -> None:
    """T33: 300 at once, 60 a minute; of seeders 75 and 15. The day's limit is in a test of its own."""
    store = await opened(make_store, torrents=340, **DEFAULTS)
    assert await with_peers(store, *joins(340)) == 300
    assert await with_peers(store, *joins(340, peer=2, bytes_left=0)) == 75
    store.clock.now += 60
    early = [said(torrent) for torrent in range(1, 101)]
    assert await with_peers(store, *early) == 60
    assert await with_peers(store, *[said(t, peer=2, bytes_left=0) for t in range(1, 31)]) == 15


async def test_joins_and_early_announces_share_the_budget(make_store: MakeStore) -> None:
    store = await opened(make_store)
    assert await with_peers(store, *joins(4)) == 4
    store.clock.now += EARLY - 1
    assert await with_peers(store, *[said(1), said(2, uploaded=5), said(3, "c"), said(4, "p")]) == 4
    assert await with_peers(store, *[said(1), said(2)], *joins(1, first=5)) == 3, "4 a minute are 6 more"
    store.clock.now += 30
    assert await with_peers(store, *joins(10, first=10)) == 3
    store.clock.now += 3600
    assert await with_peers(store, *joins(20, first=20)) == 8, "the rest of an hour is not saved"


@pytest.mark.parametrize("form", [0, WITH_IDS, OWN_FAMILY])
async def test_beyond_the_budget_an_announce_is_applied(make_store: MakeStore, form: int) -> None:
    store = await opened(make_store)
    await with_peers(store, *joins(8, form=form))
    reply = await store.announce(said(9, "s", form=form))
    assert (type(reply), reply.outcome, reply.seeders, reply.leechers) == (WithoutPeers, "join", 1, 2)
    assert reply.peers == reply.peer_ids == b""
    store.clock.now += 10
    reply = await store.announce(said(9, "c", bytes_left=0, downloaded=7, uploaded=5, form=form))
    assert (reply.outcome, reply.seeders, reply.completions) == ("early", 2, 1)
    user = await store.users.find("7")
    assert (user.uploaded, user.downloaded, user.snatches) == (5, 7, 1)


async def test_an_announce_that_is_due_needs_no_budget(make_store: MakeStore) -> None:
    store = await opened(make_store)
    await with_peers(store, *joins(8))
    await with_peers(store, *joins(20, first=9))
    store.clock.now += store.rules.current.list_wait
    before = await field(store)
    every = [said(torrent, uploaded=torrent % 2) for torrent in range(1, 29)]
    assert await with_peers(store, *every) == 28
    assert await field(store) == before


@pytest.mark.parametrize("early", [EARLY, 450])
async def test_the_announce_five_minutes_later_is_due(make_store: MakeStore, early: int) -> None:
    """Also where announces sooner than after 7.5 minutes are early: the interval of the last reply counts."""
    store = await opened(make_store, early=early, lists_per_day=8)
    assert await with_peers(store, *joins(20)) == 8
    store.clock.now += WAIT
    used = await field(store)
    assert await with_peers(store, *[said(torrent) for torrent in range(9, 21)]) == 12
    assert await field(store) == used
    store.clock.now += 50
    assert await with_peers(store, *[said(torrent) for torrent in range(9, 21)]) == 0


async def test_announces_without_peers_do_not_make_the_next_one_due(make_store: MakeStore) -> None:
    store = await opened(make_store, lists_at_once=1, lists_per_minute=1, lists_per_day=1)
    assert await with_peers(store, *joins(2)) == 1
    for _ in range(20):
        store.clock.now += EARLY - 1
        assert await with_peers(store, said(2)) == 0
    await store.announce(said(2, "x"))
    store.clock.now += WAIT
    assert await with_peers(store, said(2, "s")) == 0, "a peer that left waits for nothing"


async def test_a_reply_without_peers_takes_nothing(make_store: MakeStore) -> None:
    """To a peer that wants none, that is alone, or that finds only seeders; whatever the form of the reply."""
    store = await opened(make_store)
    for torrent in (50, 51, 52):
        await store.torrents.add(info_hash(torrent))
    await store.announce(update(100, "s", 52, passkey=BOB, bytes_left=0))
    for form in (0, WITH_IDS, OWN_FAMILY):
        alone = [said(50, event, form=form, peer=form) for event in ("s", "u")]
        none = [said(51, event, form=form, peer=form, peers_wanted=0) for event in ("s", "u")]
        seeds = [said(52, event, form=form, peer=form, bytes_left=0) for event in ("s", "u")]
        own = [said(50, "s", form=form, peer=10 + form)]
        for one in (*alone, *none, *seeds, *own):
            assert not isinstance(await store.announce(one), WithoutPeers)
    assert (await field(store), await field(store, "lists_s")) == (None, None)
    assert await with_peers(store, *joins(10)) == 8


async def test_another_user_is_not_affected(make_store: MakeStore) -> None:
    store = await opened(make_store)
    assert await with_peers(store, *joins(20)) == 8
    assert await with_peers(store, *joins(10, passkey=BOB, peer=2)) == 8


async def test_seeders_have_a_quarter_of_their_own(make_store: MakeStore) -> None:
    store = await opened(make_store, lists_per_day=16)
    assert await with_peers(store, *joins(10, bytes_left=0)) == 2
    assert await with_peers(store, *joins(10, peer=2)) == 8
    store.clock.now += 60
    assert await with_peers(store, *joins(10, first=11, bytes_left=0)) == 1
    store.clock.now += 600
    assert await with_peers(store, *joins(10, first=21, bytes_left=0)) == 1, "4 a day"
    assert await with_peers(store, *joins(10, first=21, peer=2)) == 8


async def test_the_limit_of_a_day_ends_with_the_day(make_store: MakeStore) -> None:
    store = await opened(make_store, lists_at_once=0, lists_per_day=5)
    store.clock.now += DAY - START % DAY - 10
    assert await with_peers(store, *joins(10)) == 5
    store.clock.now += 9
    assert await with_peers(store, *joins(10, first=11)) == 0
    store.clock.now += 1
    assert await with_peers(store, *joins(10, first=21)) == 5


@pytest.mark.parametrize(
    "rules",
    [
        {"lists_at_once": 0, "lists_per_minute": 0},
        {"lists_at_once": 0, "lists_per_minute": 1},
        {"lists_at_once": 1, "lists_per_minute": 0},
    ],
)
async def test_0_is_no_limit(make_store: MakeStore, rules: dict[str, int]) -> None:
    store = await opened(make_store, **{**rules, "lists_per_day": 0})
    assert await with_peers(store, *joins(40)) == 40
    assert await field(store) is None


@pytest.mark.parametrize("step", [-100 * DAY, -3600, -1, 3600, 100 * DAY])
async def test_steps_of_the_clock(make_store: MakeStore, step: int) -> None:
    """They give at most one more budget, and remove none."""
    store = await opened(make_store)
    assert await with_peers(store, *joins(9)) == 8
    store.clock.now += step
    assert await with_peers(store, *joins(10, first=11)) <= 8
    store.clock.now += 120
    assert await with_peers(store, *joins(10, first=21)) >= 7


JUNK = ["", "many", "1 2", "-5 -5 -5", "1.5 2 3", "9" * 300 + " 1 1", "1 1 " + "9" * 300, "0 0 0 0", "nan inf 1"]


@pytest.mark.parametrize("held", [*JUNK, f"1 {START // DAY} {'9' * 300}", f"{'9' * 300} {START // DAY} 3"])
@pytest.mark.parametrize("per_day", [0, 100])
async def test_invalid_budgets_fail_no_announce(make_store: MakeStore, held: str, per_day: int) -> None:
    store = await opened(make_store, torrents=3, lists_per_day=per_day)
    await store.redis.hset(store.keys.user("7"), mapping={"lists_l": held, "lists_s": held})
    for bytes_left in (0, 1000):
        for event in ("s", "u", "x"):
            reply = await store.announce(said(1, event, bytes_left=bytes_left))
            assert reply.outcome == {"s": "join", "u": "early", "x": "leave"}[event]
    store.clock.now += DAY
    assert await with_peers(store, said(1, "s"), said(2, "s")) == 2


async def test_a_user_of_a_wrong_type_fails_the_join_before_anything_is_written(make_store: MakeStore) -> None:
    store = await opened(make_store, torrents=1)
    await store.redis.unlink(store.keys.user("7"))
    await store.redis.set(store.keys.user("7"), "text")
    before = await store.dump()
    assert await store.refused(said(1, "s")) == "error"
    assert await store.dump() == before


async def test_announces_that_change_nothing_take_from_the_budget(make_store: MakeStore) -> None:
    """Else a second client at the same place, or one with the peer id of the first, gets peers of every torrent."""
    store = await opened(make_store, lists_per_day=8)
    assert await with_peers(store, *joins(2, key=b"8 bytes!")) == 2
    displaced = [said(torrent % 2 + 1, peer=2, endpoint=endpoint(1)) for torrent in range(10)]
    assert await with_peers(store, *displaced) == 6
    store.clock.now += WAIT
    strangers = [said(torrent % 2 + 1, endpoint=endpoint(3)) for torrent in range(10)]
    assert await with_peers(store, *strangers, *displaced) == 0
    for one, outcome in ((displaced[0], "displaced"), (strangers[0], "stranger")):
        assert (await store.announce(one)).outcome == outcome
    assert await with_peers(store, said(1, key=b"8 bytes!")) == 1, "it is due"
    assert not await store.redis.exists(store.keys.peer("1", said(peer=2).peer_id))


async def test_anonymous_peers_have_no_budget(make_store: MakeStore) -> None:
    store = await opened(make_store, accounts="optional")
    assert await with_peers(store, *joins(20, passkey="")) == 20
    assert await with_peers(store, *joins(20)) == 8
    replies = [await store.announce(one) for one in joins(20, passkey="x" * 20, peer=3)]
    assert all(reply.peers for reply in replies)


async def test_a_join_is_told_its_multipliers_while_it_has_peers(make_store: MakeStore) -> None:
    store = await opened(make_store)
    await store.multipliers.set("2", "0")
    replies = [await store.announce(one) for one in joins(10)]
    assert [type(reply) for reply in replies] == [JoinedWithMultipliers] * 8 + [WithoutPeers] * 2


async def test_many_joins_of_one_call_share_the_budget(make_store: MakeStore) -> None:
    store = await opened(make_store)
    replies, _ = await store.announce_together(*joins(30))
    assert [bool(reply.peers) for reply in replies] == [True] * 8 + [False] * 22


async def test_the_v2_half_of_a_hybrid_torrent_takes_from_the_budget(make_store: MakeStore) -> None:
    store = await opened(make_store)
    for torrent in range(2, 41, 2):
        await store.hybrids.link(info_hash(torrent), info_hash(torrent - 1))
    assert await with_peers(store, *joins(40)) == 8


async def test_a_peer_that_a_user_takes_over_from_an_anonymous_one(make_store: MakeStore) -> None:
    """A client that announced without its passkey is another peer with it: that is a join."""
    store = await opened(make_store, accounts="optional")
    assert await with_peers(store, *joins(10, passkey="")) == 10
    assert await with_peers(store, *[said(torrent) for torrent in range(1, 11)]) == 8


@pytest.mark.parametrize("shards", [4])
async def test_each_of_four_shards_has_its_part(make_store: MakeStore, shards: int) -> None:
    """T33: a quarter, but as much as leaves seeders one reply."""
    store = await make_store(**FEW, accounts="required", peer_memory=3600, early=EARLY)
    await store.users.add("7", ALICE)
    await store.users.add("8", BOB)
    every = [hash_in(shard, number) for shard in range(4) for number in range(1, 7)]
    counts = dict.fromkeys(range(4), 0)
    for torrent in every:
        await store.torrents.add(torrent)
        await store.announce(of(torrent, "s", peer=100, passkey=BOB))
        reply = await store.announce(of(torrent, "s"))
        counts[every.index(torrent) // 6] += bool(reply.peers)
        assert isinstance(reply, WithoutPeers) != bool(reply.peers)
    assert counts == dict.fromkeys(range(shards), 4)


def of(torrent: InfoHash, event: str, peer: int = 1, passkey: str = ALICE) -> PeerUpdate:
    return update(peer, event, info_hash=torrent, passkey=passkey)


async def test_regular_announces_read_and_write_no_budget(make_store: MakeStore) -> None:
    store = await opened(make_store)
    await with_peers(store, *joins(2))
    held = await field(store)
    for moved in range(1, 4):
        store.clock.now += 1800
        assert await with_peers(store, said(1, uploaded=moved), said(2)) == 2
    assert await field(store) == held
    row = text(await store.redis.hgetall(store.keys.user("7")))
    assert row["uploaded"] == "3"
