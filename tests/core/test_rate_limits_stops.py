"""Stops and completions of peers in the swarm pass a limit: clients repeat neither, and stops free memory."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from loadtest.invariants import check_invariants
from tests.core.harness import TrackerHarness, at, open_tracker
from tests.store.harness import ALICE, info_hash, peer_id
from tracker.bittorrent import Announce, AnnounceReply, Event
from tracker.core.rate_limits import ABSENT_STOPS_MINUTE, DROP, REJECT, THROTTLE
from tracker.refusals import Refusal, SilentlyDropped
from tracker.settings.model import Settings
from tracker.settings.public import LimitSettings

SEEDBOX, NEIGHBOUR = "11.7.7.7", "11.8.8.8"
ME, ANOTHER = 1, 2
"""Peer numbers; both behind the address of the seedbox."""


@pytest.fixture
async def tracker(redis_url: str, prefix: str) -> AsyncIterator[TrackerHarness]:
    settings = Settings.model_validate({"torrents": {"new_per_address_hour": 10_000}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        yield tracker


async def outcome(tracker: TrackerHarness, peer: int, *arguments: Any, **changes: Any) -> AnnounceReply | Refusal:
    """Each peer has its own port."""
    try:
        return await tracker.announce(peer, *arguments, **{"address": SEEDBOX, "port": 2000 + peer, **changes})
    except Refusal as error:
        return error


async def announce_all(tracker: TrackerHarness, event: str, torrents: range, peer: int = ME, **changes: Any) -> int:
    """The number of answered announces of one peer, one in each torrent, 1,000 at a time."""
    answered = 0
    for first in range(0, len(torrents), 1000):
        several = torrents[first : first + 1000]
        outcomes = await asyncio.gather(
            *(outcome(tracker, peer, event, info_hash=info_hash(n), **changes) for n in several)
        )
        answered += sum(isinstance(found, AnnounceReply) for found in outcomes)
        if event != "started":
            await tracker.share_limits()
    await tracker.share_limits()
    return answered


async def stage(tracker: TrackerHarness) -> int:
    """The stage in force for a new peer of the address; 0 for none."""
    decision = tracker.limits.check(Announce(info_hash(1), peer_id(999), 1), None, at(SEEDBOX))
    return decision.stage if decision is not None else 0


async def reach_stage(tracker: TrackerHarness, stage_wanted: int) -> None:
    """Brings the address to a stage of the limit on joins: a peer joins torrents 1 and up."""
    joins = tracker.limits.max["joins"] * {THROTTLE: 1, REJECT: 2, DROP: 4}[stage_wanted]
    await announce_all(tracker, "started", range(1, joins + 1))
    assert await stage(tracker) == stage_wanted


@pytest.fixture
async def limited(redis_url: str, prefix: str) -> AsyncIterator[TrackerHarness]:
    settings = Settings.model_validate({"limits": {"joins_minute": 16}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        yield tracker


@pytest.mark.long
async def test_a_seedbox_that_stops_all_its_torrents_over_its_limit_leaves_no_peer(tracker: TrackerHarness) -> None:
    """8,000 torrents with the default limits, and 500 torrents of another client behind the same address."""
    torrents, neighbours = range(1, 8001), range(1, 501)
    assert await announce_all(tracker, "started", neighbours, ANOTHER) == 500  # below the limit
    assert await announce_all(tracker, "started", torrents) == 8000
    assert await stage(tracker) == REJECT
    assert isinstance(await outcome(tracker, 3, "started"), Refusal)
    assert await announce_all(tracker, "stopped", torrents) == 8000
    assert await stage(tracker) == REJECT, "stops do not lead to the drop stage"
    assert await announce_all(tracker, "stopped", neighbours, ANOTHER) == 500
    assert await check_invariants(tracker.store.redis, tracker.store.keys) == 0


async def test_stops_over_the_limit_remove_peers_in_private_mode(redis_url: str, prefix: str) -> None:
    settings = Settings.model_validate({"limits": {"joins_minute": 16}, "users": {"private": "required"}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        await tracker.store.users.add("7", ALICE)
        assert await announce_all(tracker, "started", range(1, 41), passkey=ALICE) == 40
        assert await stage(tracker) == REJECT
        assert await announce_all(tracker, "stopped", range(1, 41), passkey=ALICE) == 40
        assert await check_invariants(tracker.store.redis, tracker.store.keys) == 0


async def test_stops_of_a_denied_client_pass_the_limit(redis_url: str, prefix: str) -> None:
    settings = Settings.model_validate({"limits": {"joins_minute": 16}, "clients": {"deny_list": True}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        assert await announce_all(tracker, "started", range(1, 41)) == 40
        await tracker.store.deny_list.add(b"-XX")
        await tracker.store.deny_list_cache.read()
        assert await announce_all(tracker, "completed", range(1, 2)) == 0
        assert await announce_all(tracker, "stopped", range(1, 41)) == 40
        assert await check_invariants(tracker.store.redis, tracker.store.keys) == 0


async def test_stops_that_remove_no_peer_are_limited(limited: TrackerHarness) -> None:
    """100 a minute beyond those that remove a peer. A stop of another address's peer removes none."""
    await reach_stage(limited, REJECT)
    await limited.announce(5, "started", address=NEIGHBOUR)
    absent = [await outcome(limited, 500 + n, "stopped") for n in range(ABSENT_STOPS_MINUTE - 1)]
    absent.append(await outcome(limited, 5, "stopped"))
    assert all(isinstance(found, AnnounceReply) for found in absent)
    refused = await outcome(limited, 700, "stopped")
    assert isinstance(refused, Refusal) and refused.label == "too many new peers"
    assert isinstance(await outcome(limited, 700, "stopped", address=NEIGHBOUR), AnnounceReply)
    limited.limits.begin_window()
    assert await announce_all(limited, "stopped", range(1, 33)) == 32, "those that remove a peer"
    absent = [await outcome(limited, 500 + n, "stopped") for n in range(ABSENT_STOPS_MINUTE + 32)]
    assert all(isinstance(found, AnnounceReply) for found in absent)
    assert isinstance(await outcome(limited, 700, "stopped"), Refusal)


async def test_the_limit_on_stops_covers_all_entries_of_an_address(limited: TrackerHarness) -> None:
    """A client with partly rejected joins stops all its torrents, those without its peer first."""
    entries = 6 * ABSENT_STOPS_MINUTE
    await announce_all(limited, "started", range(1, entries + 1))
    limited.limits.apply_settings(LimitSettings(joins_minute=entries // 2))
    await limited.store.redis.delete(limited.store.keys.limits())
    await announce_all(limited, "started", range(entries + 1, entries + 2))  # rejected, and counted
    assert await stage(limited) == REJECT
    absent = range(5000, 5000 + 4 * ABSENT_STOPS_MINUTE)
    assert await announce_all(limited, "stopped", absent) == len(absent)
    assert await announce_all(limited, "stopped", range(1, entries + 1)) == entries
    assert await check_invariants(limited.store.redis, limited.store.keys) == 0


async def test_a_completion_of_a_peer_in_the_swarm_passes(limited: TrackerHarness) -> None:
    await reach_stage(limited, REJECT)
    done = await outcome(limited, ME, "completed", bytes_left=0, downloaded=1000)
    assert isinstance(done, AnnounceReply) and (done.seeders, done.completions) == (1, 1)
    for peer, torrent in ((7, 1), (ME, 999)):
        refused = await outcome(limited, peer, "completed", bytes_left=0, info_hash=info_hash(torrent))
        assert isinstance(refused, Refusal)
        assert (refused.label, refused.retry_in) == ("too many new peers", 5)
    assert await limited.store.torrent(info_hash(999)) == {}
    assert (await limited.store.torrent(info_hash(1)))["seeders"] == "1"
    _, failures = await limited.counted()
    assert failures == {"too many new peers": 2}


async def test_a_completion_of_an_absent_peer_counts_as_a_join(limited: TrackerHarness) -> None:
    """At the limit it joins and is throttled; beyond twice the limit it is rejected, and leads to the drop stage."""
    await reach_stage(limited, THROTTLE)
    for peer in range(100, 100 + 16):
        assert isinstance(await outcome(limited, peer, "completed", bytes_left=0), AnnounceReply)
    await limited.share_limits()
    assert await stage(limited) == REJECT and len(limited.joined) == 32
    for peer in range(200, 200 + 32):
        assert isinstance(await outcome(limited, peer, "completed", bytes_left=0), Refusal)
    await limited.share_limits()
    assert await stage(limited) == DROP and len(limited.joined) == 32


@pytest.mark.parametrize("event", ["stopped", "completed"])
async def test_the_drop_stage_applies_to_stops_and_completions(limited: TrackerHarness, event: str) -> None:
    await reach_stage(limited, DROP)
    before = await limited.store.torrent(info_hash(1))
    assert isinstance(await outcome(limited, ME, event, bytes_left=0), SilentlyDropped)
    assert await limited.store.torrent(info_hash(1)) == before


@pytest.mark.parametrize("event", [Event.STOPPED, Event.COMPLETED])
async def test_announces_that_pass_a_limit_are_counted(redis_url: str, prefix: str, event: Event) -> None:
    """For the address and for its torrent, so that stops and completions alone lead to a higher stage too."""
    limits = {"joins_minute": 16, "torrent_announces_minute": 64}
    settings = Settings.model_validate({"limits": limits})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        await reach_stage(tracker, REJECT)
        found = [await outcome(tracker, ME, event, bytes_left=0) for _ in range(90)]
        assert all(isinstance(reply, AnnounceReply) for reply in found)
        tracker.store.clock.now += 1
        await tracker.share_limits()
        decision = tracker.limits.check(Announce(info_hash(1), peer_id(1), 1), None, at(SEEDBOX))
        assert decision is not None
        states = {(v.limit, v.stage) for v in await tracker.rate_limits.count_hits([], tracker.limits.max)}
        assert ("torrent", THROTTLE) in states


@pytest.mark.parametrize(("event", "added"), [("stopped", 0), ("completed", 1)])
async def test_announces_that_pass_a_limit_extend_its_stage(limited: TrackerHarness, event: str, added: int) -> None:
    """A stop adds nothing to the limit on joins: a seedbox's stops must not lead to the drop stage."""
    await reach_stage(limited, REJECT)
    (until,) = [
        v.until
        for v in await limited.rate_limits.count_hits([], limited.limits.max)
        if (v.limit, v.stage) == ("joins", REJECT)
    ]
    limited.store.clock.now += 1
    assert isinstance(await outcome(limited, ME, event, bytes_left=0), AnnounceReply)
    hits = limited.limits.take()
    assert [hit.number for hit in hits if hit.limit == "joins"] == [added]
    states = await limited.rate_limits.count_hits(hits, limited.limits.max)
    assert ("joins", REJECT, until + 1) in {(v.limit, v.stage, v.until) for v in states}


async def test_a_completion_that_passes_is_counted_once(redis_url: str, prefix: str) -> None:
    """For its torrent, and for its address as a regular announce."""
    settings = Settings.model_validate({"limits": {"joins_minute": 16, "address_requests_minute": 64}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        await reach_stage(tracker, REJECT)
        tracker.limits.begin_window()
        for _ in range(20):
            tracker.store.clock.now += 1000
            assert isinstance(await outcome(tracker, ME, "completed", bytes_left=0), AnnounceReply)
        await asyncio.sleep(0)
        counted = {hit.limit: hit.number for hit in tracker.limits.take()}
        assert counted["address"] <= 20 and counted["joins"] == 20


async def test_stops_with_guessed_passkeys_are_dropped(redis_url: str, prefix: str) -> None:
    """100 beyond the limit are looked up; beyond four times the limit all are dropped."""
    settings = Settings.model_validate({"limits": {}, "users": {"private": "required"}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        labels: list[str] = []
        for number in range(300):
            labels.append((await tracker.refused(1, "stopped", passkey=f"guess{number}", address=SEEDBOX)).label)
            await tracker.share_limits()
        # Two passkeys may share a cell of the table that tells guesses apart, and count as one.
        assert 0 <= labels.count("unknown passkey") - (60 + ABSENT_STOPS_MINUTE) < 10
        assert 0 <= labels.index("dropped") - 240 < 10 and set(labels[250:]) == {"dropped"}
