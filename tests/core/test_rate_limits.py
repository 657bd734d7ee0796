"""Rate limits: every process throttles, rejects and then drops a heavy source; memory stays bounded."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from types import FrameType
from typing import Any

import pytest
from structlog.testing import capture_logs

from loadtest.servers import Server
from tests.core.harness import TrackerHarness, at, open_tracker
from tests.store.harness import ALICE, START, Clock, info_hash, peer_id, timeout_key
from tests.waiting import eventually, in_background
from tracker.bittorrent import Address, Announce, AnnounceReply, Event, PeerId, Scrape
from tracker.core import rate_limits as module
from tracker.core.rate_limits import DROP, REJECT, THROTTLE, Limits, subject_key, subject_text
from tracker.core.request_counts import network
from tracker.refusals import REASONS, Refusal, SilentlyDropped
from tracker.settings.model import Settings
from tracker.settings.public import LimitSettings
from tracker.store.access.rate_limits import MAX_SOURCES, MAX_STATES, Hit, RateLimitState
from tracker.workers.admission import share_limits

ATTACKER = "11.7.7.7"
PAST_60 = 70
"""Guesses that exceed a limit of 60, also where some share a cell of the table that tells them apart."""
Processes = Callable[..., Awaitable[list[TrackerHarness]]]


@pytest.fixture
async def processes(redis_url: str, prefix: str) -> AsyncIterator[Processes]:
    """Makes two processes on one store, with one clock. Takes the limits that differ from the defaults."""
    async with AsyncExitStack() as stack:

        async def make(
            accounts: str = "off", announce: Mapping[str, Any] | None = None, **limits: Any
        ) -> list[TrackerHarness]:
            settings = Settings.model_validate(
                {"limits": limits, "users": {"private": accounts}, "announce": announce or {}}
            )
            clock = Clock()
            return [
                await stack.enter_async_context(open_tracker(redis_url, prefix, settings, clock=clock))
                for _ in range(2)
            ]

        yield make


async def outcome(tracker: TrackerHarness, *arguments: Any, **changes: Any) -> AnnounceReply | Refusal:
    try:
        return await tracker.announce(*arguments, **changes)
    except Refusal as error:
        return error


async def joins(tracker: TrackerHarness, numbers: range, address: str = ATTACKER, torrents: int = 1) -> None:
    """Joins with these peer numbers from one address, all at once."""
    await asyncio.gather(
        *(outcome(tracker, n, "started", address=address, info_hash=info_hash(1 + n % torrents)) for n in numbers)
    )


async def counted(tracker: TrackerHarness, pattern: str = "limited.*") -> dict[str, int]:
    await tracker.store.counters.flush()
    names = await tracker.store.counters.names(pattern)
    return {name: sum([n for _, n in await tracker.store.counters.series(name, 86400)]) for name in names}


async def test_a_peer_that_announces_every_second_is_throttled_then_rejected(processes: Processes) -> None:
    """20 early announces a minute pass, 20 more are throttled, then all are rejected. Other peers are not limited."""
    ours, theirs = await processes()
    seen: list[str] = []
    for number in range(20):
        await ours.announce(100 + number, bytes_left=0)
    await ours.announce(1, "started", address=ATTACKER)
    for _ in range(60):
        ours.store.clock.now += 1
        await ours.share_limits()
        found = await outcome(ours, 1, address=ATTACKER)
        if isinstance(found, Refusal):
            assert (found.text, found.retry_in) == (REASONS[module.LIMITED["peer"]].text, 5)
            seen.append("rejected")
        else:
            many, usual = found.interval_seconds > 2000, len(found.peers) == 6 * 20
            assert many != usual and len(found.peers) in (6 * 10, 6 * 20)
            seen.append("throttled" if many else "answered")
    assert seen == ["answered"] * 20 + ["throttled"] * 20 + ["rejected"] * 20
    assert await counted(ours) == {"limited.peer.softened": 20, "limited.peer.refused": 20}
    await theirs.share_limits()
    assert isinstance(await outcome(theirs, 1, address=ATTACKER), Refusal), "other processes know it"
    assert isinstance(await outcome(theirs, 2, address=ATTACKER), AnnounceReply), "its neighbours are not limited"
    ours.store.clock.now += 180
    await ours.share_limits()
    assert not ours.limits.strict and isinstance(await outcome(ours, 1, address=ATTACKER), AnnounceReply)


async def test_a_throttled_peer_has_the_usual_timeout(processes: Processes) -> None:
    """Its interval ends earlier: a peer that obeys its interval does not time out."""
    ours, _ = await processes(joins_minute=16)
    await joins(ours, range(16))
    await ours.share_limits()
    for number in range(100, 110):
        found = await ours.announce(number, "started", address=ATTACKER)
        key = timeout_key(ours.store.keys, "1", peer_id(number))
        left = await ours.store.redis.pttl(key) / 1000
        assert found.interval_seconds > 2000
        assert found.interval_seconds + 290 <= left <= 1.5 * 1.1 * 1800


async def applied(*processes: TrackerHarness) -> int:
    """How many announces for a torrent the store has applied."""
    for tracker in processes:
        await tracker.store.announce_counts.flush()
    return int((await processes[0].store.torrent(info_hash(1)))["announces"])


async def test_a_peer_that_continues_after_rejection_is_dropped(processes: Processes) -> None:
    """5 announces a second: after 20 s the peer gets no answer, and the store is not called."""
    ours, theirs = await processes()
    await ours.announce(1, "started", address=ATTACKER)
    for _ in range(20):
        ours.store.clock.now += 1
        for _ in range(5):
            last = await outcome(ours, 1, address=ATTACKER)
        await ours.share_limits()
    assert isinstance(last, SilentlyDropped)
    asked = await applied(ours, theirs)
    await theirs.share_limits()
    for tracker in (ours, theirs):
        assert isinstance(await outcome(tracker, 1, address=ATTACKER), SilentlyDropped)
    assert await applied(ours, theirs) == asked
    _, failures = await ours.counted()
    assert failures["dropped"] > 0 and (await counted(ours))["limited.peer.dropped"] > 0


@pytest.mark.parametrize(
    ("torrents", "limit", "allowed", "label"),
    [(1, "torrent", 2000, "too many announces"), (100, "joins", 3000, "too many new peers")],
)
@pytest.mark.slow
async def test_an_address_that_invents_peer_ids_is_dropped(
    processes: Processes, torrents: int, limit: str, allowed: int, label: str
) -> None:
    """In one torrent or many: joins beyond the limit are throttled, beyond twice the limit rejected, later dropped."""
    ours, theirs = await processes(joins_minute=3000 if limit == "joins" else 10**6)
    step, joined = allowed // 4, []
    for start in range(0, 6 * allowed, step):
        await joins(ours, range(start, start + step), torrents=torrents)
        joined.append(len(ours.joined))
        await ours.share_limits()
    assert joined[-1] == 2 * allowed, "later joins are rejected"
    figures = await counted(ours)
    assert figures == {
        f"limited.{limit}.softened": allowed,
        f"limited.{limit}.refused": 2 * allowed,
        f"limited.{limit}.dropped": 2 * allowed,
    }
    _, failures = await ours.counted()
    assert failures == {label: 2 * allowed, "dropped": 2 * allowed}
    await theirs.share_limits()
    assert isinstance(await outcome(theirs, 9_999_999, address=ATTACKER), SilentlyDropped)
    assert isinstance(await outcome(theirs, 9_999_999, address="11.7.7.8"), AnnounceReply)


async def test_the_hits_of_two_processes_are_added_up(processes: Processes) -> None:
    """Each process sees half of the hits, below the limit."""
    both = await processes()
    for half, tracker in enumerate(both):
        await joins(tracker, range(1300 * half, 1300 * half + 1300))
        await tracker.share_limits()
    assert [tracker.limits.strict for tracker in both] == [False, True]
    await both[0].share_limits()
    assert both[0].limits.strict


@pytest.mark.parametrize("event", ["stopped", "started", "", "paused"])
async def test_irregular_announces_count_for_their_torrent(processes: Processes, event: str) -> None:
    """With another peer's id, of absent peers, and of refused torrents."""
    ours, _ = await processes(torrent_announces_minute=50)
    await ours.announce(1, "started", address="11.0.0.1")
    if event == "paused":
        await ours.store.torrents.deny(info_hash(1), "no")
    for _ in range(60):
        await outcome(ours, 1, event, address=ATTACKER)
    await ours.share_limits()
    announce = Announce(info_hash(1), PeerId(b"x" * 20), 1)
    decision = ours.limits.check(announce, None, at(ATTACKER))
    assert decision is not None and (decision.limit, decision.stage) == ("torrent", THROTTLE)


async def test_scrapes_count_for_their_address(processes: Processes) -> None:
    ours, _ = await processes(address_requests_minute=40)
    refused = []
    for _ in range(200):
        with suppress(Refusal):
            await ours.decisions.scrape(Scrape((info_hash(1),)), None, at(ATTACKER))
            refused.append(0)
        await ours.share_limits()
    assert len(refused) == 80
    for scrape in (Scrape((info_hash(1),)), Scrape()):
        with pytest.raises(SilentlyDropped):
            await ours.decisions.scrape(scrape, None, at(ATTACKER))


async def test_a_scrape_counts_once_per_torrent(processes: Processes) -> None:
    """40 torrents a minute, in one scrape or in many."""
    ours, _ = await processes(address_requests_minute=40)
    await ours.decisions.scrape(Scrape(tuple(info_hash(n) for n in range(39))), None, at(ATTACKER))
    await ours.share_limits()
    assert not ours.limits.strict
    await ours.decisions.scrape(Scrape((info_hash(1),)), None, at(ATTACKER))
    await ours.share_limits()
    assert [decision.stage for decision in ours.limits._decisions.values()] == [THROTTLE]
    await ours.decisions.scrape(Scrape(tuple(info_hash(n) for n in range(40))), None, at(ATTACKER))
    await ours.share_limits()
    with pytest.raises(Refusal, match="too many requests"):
        await ours.decisions.scrape(Scrape((info_hash(1),)), None, at(ATTACKER))


async def test_a_full_scrape_counts_once_per_torrent(redis_url: str, prefix: str) -> None:
    settings = Settings.model_validate({"torrents": {"full_scrape": True}, "limits": {"address_requests_minute": 20}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        for number in range(10):
            await tracker.store.torrents.add(info_hash(number))
        stages = []
        for _ in range(4):
            await tracker.decisions.scrape(Scrape(), None, at(ATTACKER))
            await tracker.share_limits()
            stages += [decision.stage for decision in tracker.limits._decisions.values()] or [0]
        assert stages == [0, THROTTLE, THROTTLE, REJECT]


async def test_regular_announces_count_for_their_address(processes: Processes) -> None:
    """1,316 a minute with a limit of 1,000, none of them a join, early or refused. Another network is not limited."""
    ours, theirs = await processes(address_requests_minute=1000, announce={"min_interval_seconds": 0})
    host6, neighbour = "2a00:1:2:3::1", "11.7.7.8"
    for address in (ATTACKER, host6, neighbour):
        await ours.announce(at(address)[-1], "started", address=address)
    for _ in range(329):
        for address in (ATTACKER, host6):
            await asyncio.gather(*(ours.announce(at(address)[-1], address=address) for _ in range(4)))
        await ours.announce(at(neighbour)[-1], address=neighbour)
    await ours.share_limits()
    found = {subject_text(key): (decision.limit, decision.stage) for key, decision in ours.limits._decisions.items()}
    assert found == {ATTACKER: ("address", THROTTLE), "2a00:1:2:3::/64": ("address", THROTTLE)}
    for _ in range(2):
        await asyncio.gather(*(ours.announce(7, address=ATTACKER) for _ in range(350)))
        await ours.share_limits()
    assert isinstance(await outcome(ours, 7, address=ATTACKER), Refusal)
    await theirs.share_limits()
    assert isinstance(await outcome(theirs, 7, address=ATTACKER), Refusal)


async def test_refused_full_scrapes_count(processes: Processes) -> None:
    ours, _ = await processes(address_requests_minute=40)
    for _ in range(80):
        with pytest.raises(Refusal, match="disabled"):
            await ours.decisions.scrape(Scrape(), None, at(ATTACKER))
    await ours.share_limits()
    with pytest.raises(Refusal, match="too many requests"):
        await ours.decisions.scrape(Scrape(), None, at(ATTACKER))


async def test_guessed_passkeys_are_rejected_without_a_lookup(processes: Processes) -> None:
    """60 different ones are looked up; then only those seen valid before. Repeating one passkey is no guess."""
    ours, theirs = await processes(accounts="required")
    await ours.store.users.add("7", ALICE)
    for tracker in (ours, theirs):
        await tracker.announce(1, passkey=ALICE, address=ATTACKER)
    for _ in range(500):
        assert (await ours.refused(2, passkey="rotated", address=ATTACKER)).label == "unknown passkey"
    await ours.share_limits()
    assert not ours.limits.strict
    for number in range(30):
        await ours.refused(2, passkey=f"guess{number}", address=ATTACKER)
        with pytest.raises(Refusal, match="unknown passkey"):
            await ours.scrape(1, passkey=f"other{number}")  # from 11.0.0.1
    for number in range(30, PAST_60):
        await ours.refused(2, passkey=f"guess{number}", address=ATTACKER)
    for tracker in (ours, theirs):
        await tracker.share_limits()
        assert (await tracker.refused(2, passkey="next", address=ATTACKER)).label == "too many unknown passkeys"
        with pytest.raises(Refusal, match="too many unknown passkeys"):
            await tracker.decisions.scrape(Scrape((info_hash(1),)), "next", at(ATTACKER))
        with pytest.raises(Refusal, match="too many unknown passkeys"):
            await tracker.decisions.check_passkey("next", at(ATTACKER))
        await tracker.decisions.check_passkey(ALICE, at(ATTACKER))
        await tracker.announce(1, passkey=ALICE, address=ATTACKER)
        assert (await tracker.refused(2, passkey="next", address="11.0.0.9")).label == "unknown passkey"


async def test_passkeys_that_open_nothing_are_guesses(processes: Processes) -> None:
    """A front end checks a passkey when a connection opens."""
    ours, _ = await processes(accounts="required", unknown_passkeys_minute=8)
    await ours.store.users.add("7", ALICE, enabled=False, reason="you know why")
    with pytest.raises(Refusal, match="you know why"):
        await ours.decisions.check_passkey(ALICE, at(ATTACKER))
    for number in range(8 + 2):
        with pytest.raises(Refusal, match="unknown passkey"):
            await ours.decisions.check_passkey(f"guess{number}", at(ATTACKER))
    await ours.share_limits()
    with pytest.raises(Refusal, match="too many unknown passkeys"):
        await ours.decisions.check_passkey("next", at(ATTACKER))


async def test_a_passkey_is_remembered_as_valid_at_once(processes: Processes) -> None:
    """A user of another address passes from the address of the guesses within the same second."""
    ours, _ = await processes(accounts="required", unknown_passkeys_minute=8)
    await ours.store.users.add("7", ALICE)
    for number in range(8 + 2):  # two may share a cell of the table that tells guesses apart
        await ours.refused(2, passkey=f"guess{number}", address=ATTACKER)
    await ours.share_limits()
    assert (await ours.refused(1, passkey=ALICE, address=ATTACKER)).label == "too many unknown passkeys"
    await ours.announce(1, passkey=ALICE, address="11.0.0.9")
    await ours.announce(1, passkey=ALICE, address=ATTACKER)


async def test_guessing_with_optional_accounts_is_limited_and_stops_no_anonymous_announce(processes: Processes) -> None:
    """Guesses count whatever becomes of the announce; no scrape looks up a passkey."""
    ours, theirs = await processes(accounts="optional")
    await ours.store.users.add("7", ALICE)
    await ours.store.torrents.deny(info_hash(2), "no")
    for tracker in (ours, theirs):
        await tracker.announce(1, passkey=ALICE, address=ATTACKER)
    for number in range(PAST_60):
        if number % 2:
            await ours.refused(2, passkey=f"guess{number}", address=ATTACKER, info_hash=info_hash(2))
        else:
            reply = await ours.announce(2, passkey=f"guess{number}", address=ATTACKER)
            assert reply.warning and reply.warning.startswith("unknown passkey")
    for tracker in (ours, theirs):
        await tracker.share_limits()
        refused = await tracker.refused(2, passkey="next", address=ATTACKER)
        assert refused.label == "too many unknown passkeys"
        assert (await tracker.announce(3, address=ATTACKER, port=7000)).warning is None
        assert (await tracker.announce(1, passkey=ALICE, address=ATTACKER)).warning is None
        await tracker.decisions.scrape(Scrape((info_hash(1),)), "next", at(ATTACKER))
        await tracker.decisions.scrape(Scrape((info_hash(1),)), None, at(ATTACKER))


async def test_announces_without_a_passkey_are_no_guesses_where_accounts_are_optional(processes: Processes) -> None:
    ours, _ = await processes(accounts="optional", unknown_passkeys_minute=1)
    for number in range(50):
        await ours.announce(number, address=f"11.0.0.{number}")
        await ours.announce(number, "stopped", address=f"11.0.0.{number}")
    await ours.share_limits()
    assert not ours.limits._guessing


async def test_no_guessed_passkey_is_stored_or_logged(processes: Processes) -> None:
    ours, _ = await processes(accounts="required", unknown_passkeys_minute=8)
    with capture_logs() as lines:
        for number in range(64):
            await ours.refused(2, passkey=f"guess{number}", address=ATTACKER)
            await ours.share_limits()
    assert "guess" not in repr(lines)
    assert b"guess" not in b"".join(key + value for key, value in (await ours.store.dump()).items())


async def test_ipv6_addresses_count_by_their_64(processes: Processes) -> None:
    ours, _ = await processes(joins_minute=100)
    for number in range(150):
        await outcome(ours, number, address=f"2a00:1:2:3:{number:x}::1")
        await outcome(ours, 1000 + number, address=f"2a00:1:3:{number:x}::1")
    await ours.share_limits()
    assert [subject_text(key) for key in ours.limits._decisions] == ["2a00:1:2:3::/64"]


@pytest.mark.parametrize(
    ("address", "limits", "limited"),
    [
        ("192.168.1.5", {}, False),
        ("192.168.1.5", {"private_addresses": True}, True),
        ("11.7.7.7", {}, True),
        ("11.7.7.7", {"exempt": ["11.7.0.0/16"]}, False),
        ("2a00:1::1", {"exempt": ["2a00::/16"]}, False),
        ("2a00:1::1", {"exempt": ["2a00:1::1", "11.7.7.7"]}, False),
        ("2a00:1::1", {"exempt": ["2a00:1:0:1::1"]}, True),
        ("11.7.7.7", {"enabled": False}, False),
    ],
)
async def test_limits_skip_exempt_and_private_addresses(
    processes: Processes, address: str, limits: dict[str, Any], limited: bool
) -> None:
    ours, _ = await processes(joins_minute=40, **limits)
    await joins(ours, range(60), address)
    await ours.share_limits()
    assert ours.limits.strict is limited


def test_subjects_convert_to_text_and_back() -> None:
    for host, text in (("11.7.7.7", "11.7.7.7"), ("2a00:1:2:3:4::5", "2a00:1:2:3::/64")):
        net = network(at(host))
        for key, shown in (
            (net, text),
            (net + info_hash(1), f"{text} {info_hash(1).hex()}"),
            (net + info_hash(1) + peer_id(2), f"{text} {info_hash(1).hex()} {peer_id(2).hex()}"),
        ):
            assert subject_text(key) == shown and subject_key(shown) == key


def test_learning_a_state_takes_at_most_6_calls() -> None:
    """A process learns thousands of states a second, and answers no request meanwhile. Calls are counted, not timed."""
    limits, calls = Limits(LimitSettings(), accounts="off"), 0
    states = [RateLimitState(THROTTLE, "torrent", f"2a00:1:2:{n:x}::/64 {info_hash(n).hex()}", 9e9) for n in range(100)]

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        limits.learn(states)
    finally:
        sys.setprofile(None)
    assert len(limits._decisions) == 100 and calls <= 6 * 100


async def test_memory_of_rate_limits_is_bounded(processes: Processes) -> None:
    """With an IPv6 /32 an attacker fills neither a process nor the store; the heaviest sources stay known."""
    ours, _ = await processes(joins_minute=1, torrent_announces_minute=1, address_requests_minute=1)
    limits = ours.limits
    before = sum(sys.getsizeof(sketch._cells) for sketch in limits._sketches.values())
    for number in range(20_000):
        announce = Announce(info_hash(number), peer_id(number), 6881)
        limits.note("join", announce, at(f"2a00:1:{number >> 8:x}:{number & 255:x}::1"))
    for _ in range(5000):
        limits.note("join", announce, at("2a00:1:4e:1f::1"))
    assert len(limits._hits) <= module.MAX_SUBJECTS
    assert sum(sys.getsizeof(sketch._cells) for sketch in limits._sketches.values()) == before
    hits = limits.take()
    assert len(hits) <= module.MAX_SENT and not limits.take()
    await ours.rate_limits.count_hits(hits, ours.limits.max)

    states: list[RateLimitState] = []
    for start in range(0, MAX_SOURCES + 2000, 1000):
        hits = [Hit("joins", f"2a00:2:0:{n:x}::/64", 9) for n in range(start, start + 1000)]
        states = await ours.rate_limits.count_hits(hits, ours.limits.max)
    assert len(states) == MAX_STATES == await ours.store.redis.zcard(ours.store.keys.limits())
    window = f"{ours.store.keys.prefix}limits:{START}"
    assert await ours.store.redis.hlen(window) == MAX_SOURCES
    assert 0 < await ours.store.redis.ttl(window) <= 180
    limits.learn(states)
    assert len(limits._decisions) == MAX_STATES


async def test_malformed_states_in_the_store_are_ignored(processes: Processes) -> None:
    ours, _ = await processes()
    key, until = ours.store.keys.limits(), START + 100
    strange = ["", "1", "4 joins 11.7.7.7", "2 joins no-address", "2 else 11.7.7.7", "2 passkeys 11.7.7.7", "\xff"]
    await ours.store.redis.zadd(key, {**dict.fromkeys(strange, until), "2 joins 11.7.7.7": until})
    await ours.share_limits()
    assert [(j.stage, j.limit) for j in ours.limits._decisions.values()] == [(REJECT, "joins")]


async def test_the_highest_of_several_stages_applies() -> None:
    limits = Limits(LimitSettings(), accounts="off")
    net = at(ATTACKER)
    announce = Announce(info_hash(1), peer_id(1), 1)
    swarm = subject_text(net + info_hash(1))
    limits.learn(
        [
            RateLimitState(THROTTLE, "joins", ATTACKER, 10),
            RateLimitState(DROP, "torrent", swarm, 20),
            RateLimitState(REJECT, "joins", ATTACKER, 30),
        ]
    )
    decision = limits.check(announce, None, net)
    assert decision is not None and decision[:2] == (DROP, "torrent")
    limits.decide_alone((), 25)
    decision = limits.check(announce, None, net)
    assert decision is not None and decision[:2] == (REJECT, "joins")
    limits.decide_alone((), 30)
    assert not limits.strict


async def test_every_process_learns_the_stages_in_force(start_server: Callable[..., Server]) -> None:
    """Stages also expire while the store is unavailable."""
    server, clock = start_server("--appendonly", "no"), Clock()
    async with open_tracker(server.url, "x:", Settings(), clock=clock) as ours:
        other = Limits(LimitSettings(), accounts="off")
        store = ours.store.rate_limits
        loops = [share_limits(limits, store, clock, pause_seconds=0.01) for limits in (ours.limits, other)]
        async with in_background(*loops):
            with capture_logs() as lines:
                await joins(ours, range(2400))
                await eventually(lambda: ours.limits.strict and other.strict)
                clock.now += 60
                swarm = network(at(ATTACKER)) + info_hash(1)
                await eventually(lambda: ours.limits._sketches["torrent"].add(swarm) == 0)  # a new minute
                server.kill()
                clock.now += 200
                await eventually(lambda: not ours.limits.strict and not other.strict)
    assert {
        "event": "addresses exceed a rate limit",
        "log_level": "warning",
        "softened": 1,
        "refused": 0,
        "dropped": 0,
    } in lines
    assert ATTACKER not in repr(lines)


def decision(limit: str) -> module.Decision:
    return module.Decision(REJECT, limit, network(at(ATTACKER)), START + 60)


@pytest.mark.parametrize(
    ("limit", "outcome", "event", "hits"),
    [
        (module.JOINS, "join", Event.COMPLETED, [1]),
        (module.JOINS, "early", Event.COMPLETED, [1]),
        (module.JOINS, "leave", Event.STOPPED, [0]),
        (module.PEER, "update", Event.COMPLETED, [1]),
        (module.PEER, "leave", Event.STOPPED, [1]),
        (module.PEER, "early", Event.COMPLETED, []),
        (module.TORRENT, "update", Event.COMPLETED, []),
        (module.ADDRESS, "leave", Event.STOPPED, []),
    ],
)
def test_an_announce_that_passes_is_counted_for_the_limits_that_do_not_count_it_yet(
    limit: str, outcome: str, event: Event, hits: list[int]
) -> None:
    """An early announce counts for its peer already, every announce for its torrent and its address."""
    limits = Limits(LimitSettings(), accounts="off")
    limits.note_passed(decision(limit), outcome, event, Address(bytes(4)))
    assert [hit.number for hit in limits.take()] == hits


@pytest.mark.parametrize(
    ("alone", "address", "counted"),
    [(True, ATTACKER, True), (False, ATTACKER, False), (True, "127.0.0.1", False), (False, "127.0.0.1", False)],
)
def test_unserved_announces_count_only_while_the_store_is_unavailable(alone: bool, address: str, counted: bool) -> None:
    limits = Limits(LimitSettings(address_requests_minute=8), accounts="off")
    if alone:
        limits.decide_alone([], START)
    for _ in range(8):
        limits.note_unserved(at(address))
    assert bool(limits.take()) == counted


async def test_a_guess_that_a_limit_rejects_counts_as_a_guess(processes: Processes) -> None:
    """A completion is looked up, as it may be of a peer in the swarm; here it is of none, and with a wrong passkey."""
    ours, _ = await processes(accounts="optional", joins_minute=16, unknown_passkeys_minute=8)
    await joins(ours, range(40))
    await ours.share_limits()
    for number in range(8):
        refused = await ours.refused(50, "completed", passkey=f"guess{number}", address=ATTACKER, bytes_left=0)
        assert refused.label == "too many new peers"
    assert sum(hit.number for hit in ours.limits.take() if hit.limit == module.PASSKEYS) > 0


@pytest.mark.parametrize("which", ["regular", "noted"])
async def test_answered_announces_wait_to_be_counted_up_to_a_number(processes: Processes, which: str) -> None:
    ours, _ = await processes()
    await ours.announce(1, "started")
    ours.limits.count_noted()
    if which == "regular":
        ours.limits.regular.extend([at(ATTACKER)] * (module.MAX_NOTED - 2))
    else:
        other = ("leave", Announce(info_hash(1), peer_id(9), 1), at(ATTACKER))
        ours.limits.noted.extend([other] * (module.MAX_NOTED - 2))
    for waiting in (module.MAX_NOTED - 1, 0):
        ours.store.clock.now += 900
        await ours.announce(1)
        assert len(ours.limits.regular) + len(ours.limits.noted) == waiting
