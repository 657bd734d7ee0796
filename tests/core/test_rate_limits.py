"""Limits: who does too much is told less, then refused, then dropped, by every process; and nothing of it fills memory."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from types import FrameType
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.desk import Desk, at, open_desk
from tests.servers import Server
from tests.store.harness import ALICE, START, Clock, info_hash, peer_id
from tracker import limits as module
from tracker.bittorrent import Announce, AnnounceReply, PeerId, Scrape
from tracker.errors import ClientError, Dropped
from tracker.limits import DROP, REFUSE, SOFT, Limits, Sketch, network, subject_key, subject_text
from tracker.settings import Settings
from tracker.settings_limits import LimitSettings
from tracker.store.offences import MOST_SUBJECTS, MOST_VERDICTS, Charge, Offences, Verdict
from tracker.workers import limits as worker
from tracker.workers.limits import share_limits

ATTACKER = "11.7.7.7"
Processes = Callable[..., Awaitable[list[Desk]]]


@pytest.fixture
async def processes(redis_url: str, prefix: str) -> AsyncIterator[Processes]:
    """Called with the limits that differ from the defaults: two processes on one store, with one clock."""
    async with AsyncExitStack() as stack:

        async def make(private: bool = False, **limits: Any) -> list[Desk]:
            settings = Settings.model_validate({"limits": limits, "users": {"private": private}})
            clock = Clock()
            return [
                await stack.enter_async_context(open_desk(redis_url, prefix, settings, clock=clock))
                for _ in range(2)
            ]

        yield make


async def outcome(desk: Desk, *arguments: Any, **changes: Any) -> AnnounceReply | ClientError:
    try:
        return await desk.announce(*arguments, **changes)
    except ClientError as error:
        return error


async def joins(desk: Desk, numbers: range, address: str = ATTACKER, torrents: int = 1) -> None:
    """That many new peer ids from one address, as fast as they can."""
    await asyncio.gather(
        *(
            outcome(desk, n, "started", address=address, info_hash=info_hash(1 + n % torrents))
            for n in numbers
        )
    )


async def counted(desk: Desk, pattern: str = "limited.*") -> dict[str, int]:
    await desk.store.counters.flush()
    names = await desk.store.counters.names(pattern)
    return {name: sum([n for _, n in await desk.store.counters.series(name, 86400)]) for name in names}


async def test_a_peer_that_announces_every_second_is_told_less_then_refused(processes: Processes) -> None:
    """20 early announces in a minute are borne, 40 told less; who goes on is refused; one that asks at its interval never."""
    ours, theirs = await processes()
    seen: list[str] = []
    for number in range(20):
        await ours.announce(100 + number, bytes_left=0)
    await ours.announce(1, "started", address=ATTACKER)
    for _ in range(60):
        ours.store.clock.now += 1
        await ours.share_limits()
        found = await outcome(ours, 1, address=ATTACKER)
        if isinstance(found, ClientError):
            assert (found.text, found.retry_in) == (module.LIMITED["peer"][1], 5)
            seen.append("refused")
        else:
            many, usual = found.interval_seconds >= 3600, len(found.peers) == 6 * 20
            assert many != usual and len(found.peers) in (6 * 10, 6 * 20)
            seen.append("softened" if many else "answered")
    assert seen == ["answered"] * 20 + ["softened"] * 20 + ["refused"] * 20
    assert await counted(ours) == {"limited.peer.softened": 20, "limited.peer.refused": 20}
    await theirs.share_limits()
    assert isinstance(await outcome(theirs, 1, address=ATTACKER), ClientError), "known to the others"
    assert isinstance(await outcome(theirs, 2, address=ATTACKER), AnnounceReply), (
        "its neighbours are not meant"
    )
    ours.store.clock.now += 180
    await ours.share_limits()
    assert not ours.limits.strict and isinstance(await outcome(ours, 1, address=ATTACKER), AnnounceReply)


async def test_who_goes_on_when_refused_is_dropped(processes: Processes) -> None:
    """5 announces a second: within 20 s it has no answers any more, and the store is not asked."""
    ours, theirs = await processes()
    await ours.announce(1, "started", address=ATTACKER)
    for _ in range(20):
        ours.store.clock.now += 1
        for _ in range(5):
            last = await outcome(ours, 1, address=ATTACKER)
        await ours.share_limits()
    assert isinstance(last, Dropped)
    asked = (await ours.store.torrent(info_hash(1)))["announces"]
    await theirs.share_limits()
    for desk in (ours, theirs):
        assert isinstance(await outcome(desk, 1, address=ATTACKER), Dropped)
    assert (await ours.store.torrent(info_hash(1)))["announces"] == asked
    _, failures = await ours.counted()
    assert failures["dropped"] > 0 and (await counted(ours))["limited.peer.dropped"] > 0


@pytest.mark.parametrize(
    ("torrents", "limit", "allowed", "label"),
    [(1, "torrent", 2000, "too many announces"), (100, "joins", 3000, "too many new peers")],
)
@pytest.mark.slow
async def test_an_address_that_invents_peer_ids(
    processes: Processes, torrents: int, limit: str, allowed: int, label: str
) -> None:
    """In one torrent, or in many: as many as the limit join, the next are told less, and beyond twice as many none joins."""
    ours, theirs = await processes(joins_minute=3000 if limit == "joins" else 10**6)
    step, joined = allowed // 4, []
    for start in range(0, 6 * allowed, step):
        await joins(ours, range(start, start + step), torrents=torrents)
        joined.append(len(ours.joined))
        await ours.share_limits()
    assert joined[-1] == 2 * allowed, "refused from there on"
    figures = await counted(ours)
    assert figures == {
        f"limited.{limit}.softened": allowed,
        f"limited.{limit}.refused": 2 * allowed,
        f"limited.{limit}.dropped": 2 * allowed,
    }
    _, failures = await ours.counted()
    assert failures == {label: 2 * allowed, "dropped": 2 * allowed}
    await theirs.share_limits()
    assert isinstance(await outcome(theirs, 9_999_999, address=ATTACKER), Dropped)
    assert isinstance(await outcome(theirs, 9_999_999, address="11.7.7.8"), AnnounceReply)


async def test_two_processes_add_up_what_they_have_seen(processes: Processes) -> None:
    """Half of it each: neither would say anything by itself."""
    both = await processes()
    for half, desk in enumerate(both):
        await joins(desk, range(1300 * half, 1300 * half + 1300))
        await desk.share_limits()
    assert [desk.limits.strict for desk in both] == [False, True]
    await both[0].share_limits()
    assert both[0].limits.strict


@pytest.mark.parametrize("event", ["stopped", "started", "", "paused"])
async def test_other_announces_than_regular_ones_count_too(processes: Processes, event: str) -> None:
    """With somebody else's peer id, of peers that are not there, and of torrents that are refused."""
    ours, _ = await processes(torrent_announces_minute=50)
    await ours.announce(1, "started", address="11.0.0.1")
    if event == "paused":
        await ours.store.torrents.deny(info_hash(1), "no")
    for _ in range(60):
        await outcome(ours, 1, event, address=ATTACKER)
    await ours.share_limits()
    announce = Announce(info_hash(1), PeerId(b"x" * 20), 1)
    judged = ours.limits.judge(announce, None, at(ATTACKER))
    assert judged is not None and (judged.limit, judged.stage) == ("torrent", SOFT)


async def test_scrapes_count(processes: Processes) -> None:
    ours, _ = await processes(address_requests_minute=40)
    refused = []
    for _ in range(200):
        with suppress(ClientError):
            await ours.tracker.scrape(Scrape((info_hash(1),)), None, at(ATTACKER))
            refused.append(0)
        await ours.share_limits()
    assert len(refused) == 80
    for scrape in (Scrape((info_hash(1),)), Scrape()):
        with pytest.raises(Dropped):
            await ours.tracker.scrape(scrape, None, at(ATTACKER))


async def test_scrapes_of_everything_count_where_there_are_none(processes: Processes) -> None:
    ours, _ = await processes(address_requests_minute=40)
    for _ in range(80):
        with pytest.raises(ClientError, match="switched off"):
            await ours.tracker.scrape(Scrape(), None, at(ATTACKER))
    await ours.share_limits()
    with pytest.raises(ClientError, match="too many requests"):
        await ours.tracker.scrape(Scrape(), None, at(ATTACKER))


async def test_guessed_passkeys(processes: Processes) -> None:
    """60 different ones are looked up; then only those that were good before are. Asking again with the same is no guess."""
    ours, theirs = await processes(private=True)
    await ours.store.users.add("7", ALICE)
    for desk in (ours, theirs):
        await desk.announce(1, passkey=ALICE, address=ATTACKER)
    for _ in range(500):
        assert (await ours.refused(2, passkey="rotated", address=ATTACKER)).label == "unknown passkey"
    await ours.share_limits()
    assert not ours.limits.strict
    for number in range(30):
        await ours.refused(2, passkey=f"guess{number}", address=ATTACKER)
        with pytest.raises(ClientError, match="unknown passkey"):
            await ours.scrape(1, passkey=f"other{number}")  # from 11.0.0.1
    for number in range(30, 60):
        await ours.refused(2, passkey=f"guess{number}", address=ATTACKER)
    for desk in (ours, theirs):
        await desk.share_limits()
        assert (await desk.refused(2, passkey="next", address=ATTACKER)).label == "too many unknown passkeys"
        with pytest.raises(ClientError, match="too many unknown passkeys"):
            await desk.tracker.scrape(Scrape((info_hash(1),)), "next", at(ATTACKER))
        await desk.announce(1, passkey=ALICE, address=ATTACKER)
        assert (await desk.refused(2, passkey="next", address="11.0.0.9")).label == "unknown passkey"


async def test_no_passkey_stands_in_the_store_or_the_log(processes: Processes) -> None:
    ours, _ = await processes(private=True, unknown_passkeys_minute=8)
    with capture_logs() as lines:
        for number in range(64):
            await ours.refused(2, passkey=f"guess{number}", address=ATTACKER)
            await ours.share_limits()
    assert "guess" not in repr(lines)
    assert b"guess" not in b"".join(key + value for key, value in (await ours.store.dump()).items())


async def test_ipv6_counts_by_its_64(processes: Processes) -> None:
    ours, _ = await processes(joins_minute=100)
    for number in range(150):
        await outcome(ours, number, address=f"2a00:1:2:3:{number:x}::1")
        await outcome(ours, 1000 + number, address=f"2a00:1:3:{number:x}::1")
    await ours.share_limits()
    assert [subject_text(key) for key in ours.limits._judged] == ["2a00:1:2:3::/64"]


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
async def test_who_is_left_out(
    processes: Processes, address: str, limits: dict[str, Any], limited: bool
) -> None:
    ours, _ = await processes(joins_minute=40, **limits)
    await joins(ours, range(60), address)
    await ours.share_limits()
    assert ours.limits.strict is limited


def test_subjects_are_written_for_people_and_read_back() -> None:
    for host, text in (("11.7.7.7", "11.7.7.7"), ("2a00:1:2:3:4::5", "2a00:1:2:3::/64")):
        net = network(at(host))
        for key, shown in (
            (net, text),
            (net + info_hash(1), f"{text} {info_hash(1).hex()}"),
            (net + info_hash(1) + peer_id(2), f"{text} {info_hash(1).hex()} {peer_id(2).hex()}"),
        ):
            assert subject_text(key) == shown and subject_key(shown) == key


def test_learning_verdicts_costs_little() -> None:
    """There may be thousands, each process learns them every second, and nobody is answered meanwhile. Counted, not timed."""
    limits, calls = Limits(LimitSettings(), private=False), 0
    verdicts = [
        Verdict(SOFT, "torrent", f"2a00:1:2:{n:x}::/64 {info_hash(n).hex()}", 9e9) for n in range(100)
    ]

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        limits.learn(verdicts)
    finally:
        sys.setprofile(None)
    assert limits.known == 100 and calls <= 6 * 100


def test_a_sketch_charges_from_an_eighth_on_and_forgets_nothing_then() -> None:
    sketch = Sketch(800)
    assert sum(sketch.add(b"x") for _ in range(100)) == 0
    assert sketch.add(b"x") == 101
    assert sum(sketch.add(b"x") for _ in range(99)) == 99
    assert sum(sketch.add(bytes([n])) for n in range(120)) == 0
    sketch.clear()
    assert sketch.add(b"x") == 0


async def test_what_is_remembered_is_bounded(processes: Processes) -> None:
    """An attacker with a /32 of IPv6: a process and the store remember so many and no more, and the worst are known."""
    ours, _ = await processes(joins_minute=1, torrent_announces_minute=1, address_requests_minute=1)
    limits = ours.limits
    before = sum(sys.getsizeof(sketch._cells) for sketch in limits._sketches.values())
    for number in range(20_000):
        announce = Announce(info_hash(number), peer_id(number), 6881)
        limits.note("join", announce, at(f"2a00:1:{number >> 8:x}:{number & 255:x}::1"))
    for _ in range(5000):
        limits.note("join", announce, at("2a00:1:4e:1f::1"))
    assert len(limits._charges) <= module.MOST_CHARGED
    assert sum(sys.getsizeof(sketch._cells) for sketch in limits._sketches.values()) == before
    taken = limits.take()
    assert len(taken) <= module.MOST_SENT and not limits.take()
    await ours.offences.charge(taken)

    verdicts: list[Verdict] = []
    for start in range(0, MOST_SUBJECTS + 2000, 1000):
        charges = [Charge("joins", f"2a00:2:0:{n:x}::/64", 9) for n in range(start, start + 1000)]
        verdicts = await ours.offences.charge(charges)
    assert len(verdicts) == MOST_VERDICTS == await ours.store.redis.zcard(ours.store.keys.limits())
    window = ours.store.keys.limits_window(START)
    assert await ours.store.redis.hlen(window) == MOST_SUBJECTS
    assert 0 < await ours.store.redis.ttl(window) <= 180
    limits.learn(verdicts)
    assert limits.known == MOST_VERDICTS


async def test_strange_entries_in_the_store_are_passed_over(processes: Processes) -> None:
    ours, _ = await processes()
    key, until = ours.store.keys.limits(), START + 100
    strange = [
        "",
        "1",
        "4 joins 11.7.7.7",
        "2 joins nobody",
        "2 else 11.7.7.7",
        "2 passkeys 11.7.7.7",
        "\xff",
    ]
    await ours.store.redis.zadd(key, {**dict.fromkeys(strange, until), "2 joins 11.7.7.7": until})
    await ours.share_limits()
    assert [(j.stage, j.limit) for j in ours.limits._judged.values()] == [(REFUSE, "joins")]


async def test_the_hardest_of_several_verdicts_holds() -> None:
    limits = Limits(LimitSettings(), private=False)
    net = at(ATTACKER)
    announce = Announce(info_hash(1), peer_id(1), 1)
    place = subject_text(net + info_hash(1))
    limits.learn(
        [
            Verdict(SOFT, "joins", ATTACKER, 10),
            Verdict(DROP, "torrent", place, 20),
            Verdict(REFUSE, "joins", ATTACKER, 30),
        ]
    )
    judged = limits.judge(announce, None, net)
    assert judged is not None and judged[:2] == (DROP, "torrent")
    limits.expire(25)
    judged = limits.judge(announce, None, net)
    assert judged is not None and judged[:2] == (REFUSE, "joins")
    limits.expire(30)
    assert not limits.strict


async def test_verdicts_reach_every_process_by_themselves(
    start_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And end by themselves while the store is away."""
    monkeypatch.setattr(worker, "SHARE_SECONDS", 0.01)
    server, clock = start_server("--appendonly", "no"), Clock()
    async with open_desk(server.url, "x:", Settings(), clock=clock) as ours:
        other = Limits(LimitSettings(), private=False)
        offences = Offences(
            ours.store.connection, ours.store.scripts, ours.store.keys, clock, ours.limits.most
        )
        loops = [asyncio.Task(share_limits(limits, offences, clock)) for limits in (ours.limits, other)]
        try:
            with capture_logs() as lines:
                await joins(ours, range(2400))
                await until(lambda: ours.limits.strict and other.strict)
                clock.now += 60
                place = network(at(ATTACKER)) + info_hash(1)
                await until(lambda: ours.limits._sketches["torrent"].add(place) == 0)  # a new minute
                server.kill()
                clock.now += 200
                await until(lambda: not ours.limits.strict and not other.strict)
        finally:
            for loop in loops:
                loop.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
    assert {
        "event": "addresses are over a limit",
        "log_level": "warning",
        "softened": 1,
        "refused": 0,
        "dropped": 0,
    } in lines
    assert ATTACKER not in repr(lines)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)
