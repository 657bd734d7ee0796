"""Rate limits while the store is unavailable: each process uses its own counts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from loadtest.servers import Server
from tests.core.harness import TrackerHarness, at, open_tracker
from tests.store.harness import START, Clock, info_hash, peer_id
from tests.waiting import in_background
from tracker.bittorrent import Announce, AnnounceReply, Scrape
from tracker.core.rate_limits import DROP, REJECT, THROTTLE, Limits
from tracker.core.request_counts import MAX_LOCAL_SUBJECTS, LocalCounts
from tracker.refusals import Refusal, SilentlyDropped
from tracker.settings.model import Settings
from tracker.settings.public import LimitSettings
from tracker.store.access.rate_limits import HOLD_SECONDS, MAX_STATES, Hit, RateLimitState

ATTACKER, NEIGHBOUR = "11.7.7.7", "11.8.8.8"
SETTINGS = Settings.model_validate({"limits": {"address_requests_minute": 40, "joins_minute": 40}})


@asynccontextmanager
async def open_on(server: Server, clock: Clock) -> AsyncIterator[TrackerHarness]:
    """A tracker on its own server, which it watches."""
    async with AsyncExitStack() as stack:
        tracker = await stack.enter_async_context(open_tracker(server.url, "x:", SETTINGS, clock=clock))
        async with in_background(tracker.store.connection.watch()):
            yield tracker


async def label(tracker: TrackerHarness, peer: int, address: str = ATTACKER) -> str:
    """The label of the refusal of an announce, or ``answered``."""
    try:
        await tracker.announce(peer, "started", address=address)
    except SilentlyDropped:
        return "dropped"
    except Refusal as error:
        return error.label
    return "answered"


async def lose_store(tracker: TrackerHarness, server: Server) -> None:
    server.kill()
    while not tracker.store.connection.unavailable:
        await label(tracker, 1, NEIGHBOUR)
    tracker.limits.take()


async def test_a_flood_is_rejected_while_the_store_is_unavailable(start_server: Callable[..., Server]) -> None:
    """A flooding address is rejected, then dropped; others get the usual failure. The store starts with no hits."""
    server, clock = start_server("--appendonly", "no"), Clock()
    async with open_on(server, clock) as tracker:
        await lose_store(tracker, server)
        await tracker.share_limits()
        labels_by_second = []
        for second in range(4):
            clock.now = START + second
            labels_by_second.append([await label(tracker, n) for n in range(50)])
            await tracker.share_limits()
        assert [set(labels) for labels in labels_by_second] == [
            {"store unavailable"},
            {"store unavailable"},
            {"too many requests"},
            {"too many requests"},
        ]
        for _ in range(2):
            await label(tracker, 1)
        await tracker.share_limits()
        assert await label(tracker, 1) == "dropped"
        assert await label(tracker, 1, NEIGHBOUR) == "store unavailable"
        server.start()
        await asyncio.wait_for(tracker.store.connection.until_available(), 20)
        await tracker.share_limits()
        assert not tracker.limits.strict and not tracker.limits.alone
        assert await label(tracker, 1) == "answered"


async def test_hits_from_before_the_outage_count(start_server: Callable[..., Server]) -> None:
    server, clock = start_server("--appendonly", "no"), Clock()
    async with open_on(server, clock) as tracker:
        assert {await label(tracker, n) for n in range(39)} == {"answered"}
        await tracker.share_limits()
        assert not tracker.limits.strict
        await lose_store(tracker, server)
        with pytest.raises(Refusal):
            await tracker.decisions.scrape(Scrape(tuple(info_hash(n) for n in range(41))), None, at(ATTACKER))
        await tracker.share_limits()
        decision = tracker.limits.check(Announce(info_hash(1), peer_id(1), 1), None, at(ATTACKER))
        assert decision is not None and decision[:2] == (REJECT, "address")


async def test_stages_from_before_the_outage_stay_until_they_expire(start_server: Callable[..., Server]) -> None:
    server, clock = start_server("--appendonly", "no"), Clock()
    async with open_on(server, clock) as tracker:
        await asyncio.gather(*(label(tracker, n) for n in range(80)))
        await tracker.share_limits()
        assert await label(tracker, 99) == "too many requests"
        await lose_store(tracker, server)
        clock.now += HOLD_SECONDS - 1
        await tracker.share_limits()
        assert tracker.limits.alone and await label(tracker, 99) == "too many requests"
        tracker.limits.take()
        clock.now += 2
        await tracker.share_limits()
        assert not tracker.limits.strict and await label(tracker, 99) == "store unavailable"


async def test_failed_announces_are_not_counted_while_the_store_answers(start_server: Callable[..., Server]) -> None:
    server = start_server("--appendonly", "no")
    async with open_on(server, Clock()) as tracker:
        tracker.limits.note_unserved(at(ATTACKER))
        assert not tracker.limits.take()
        await label(tracker, 1)
        assert isinstance(await tracker.announce(2, address=ATTACKER), AnnounceReply)


def hit(number: int, subject: str = ATTACKER) -> Hit:
    return Hit("joins", subject, number)


def stages(states: list[RateLimitState]) -> list[tuple[int, float]]:
    return [(state.stage, state.until) for state in states]


def test_the_window_slides() -> None:
    """Half a minute into a window, half of the one before counts."""
    counts, allowed = LocalCounts(), {"joins": 100}
    counts.add([hit(120)])
    counts.begin_window()
    counts.add([hit(39)])
    assert counts.decide([hit(39)], allowed, START + 30) == []
    counts.add([hit(1)])
    assert stages(counts.decide([hit(1)], allowed, START + 30)) == [(THROTTLE, START + 30 + HOLD_SECONDS)]
    counts.begin_window()
    counts.begin_window()
    assert len(counts.decide([], allowed, START + 149)) == 1
    assert counts.decide([hit(0)], allowed, START + 150) == []


@pytest.mark.parametrize(("count", "stage"), [(99, 0), (100, THROTTLE), (200, REJECT), (399, REJECT), (400, DROP)])
def test_local_stages_begin_at_the_same_counts_as_in_the_store(count: int, stage: int) -> None:
    counts = LocalCounts()
    counts.add([hit(count)])
    found = counts.decide([hit(count)], {"joins": 100}, START)
    assert [state.stage for state in found] == ([stage] if stage else [])


def test_local_counts_are_bounded() -> None:
    counts, limits = LocalCounts(), Limits(LimitSettings(joins_minute=1), accounts="off")
    for first in range(0, 10_000, 500):
        hits = [hit(9, f"2a00:1:0:{n:x}::/64") for n in range(first, first + 500)]
        counts.add(hits)
        states = counts.decide(hits, limits.max, START)
    assert len(counts._counts) == MAX_LOCAL_SUBJECTS and len(states) == MAX_STATES


async def test_disabled_limits_forget_their_counts(redis_url: str, prefix: str) -> None:
    async with open_tracker(redis_url, prefix, SETTINGS) as tracker:
        await asyncio.gather(*(label(tracker, n) for n in range(80)))
        taken: Any = tracker.limits.take()
        tracker.limits.apply_settings(LimitSettings(enabled=False))
        tracker.limits.apply_settings(SETTINGS.limits)
        tracker.limits.decide_alone([], START)
        assert taken and not tracker.limits.strict
