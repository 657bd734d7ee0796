"""Samples that StatHat accepted count there once; others wait (row B12).

Tested against a server with StatHat's faults.
"""

import asyncio
import itertools
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from http.client import HTTPConnection
from typing import Literal, get_args

import pytest
from structlog.testing import capture_logs

from loadtest.servers import ROOT, Server
from tests.store.client.proxy import Proxy
from tests.store.harness import Clock, Store, running
from tests.store.stats.outbox import contents, dropped, export
from tests.waiting import eventually, in_background
from tests.workers.flushing import MINUTE, Flushing, to_stathat
from tests.workers.stathat_server import KEY, Mode, StatHatServer, not_stathat, stathat_in_thread
from tracker.errors import StoreUnavailable
from tracker.settings.background import StatHatSettings
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.workers.push import StatHat, parse_reply, stat_name

FAULTS = [mode for mode in get_args(Mode) if mode != "ok"]


@pytest.fixture
async def store(valkey: Server, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(valkey.url, Keys(prefix), SwarmRules())) as store:
        yield store


@pytest.fixture
async def stathat() -> AsyncIterator[StatHatServer]:
    async with StatHatServer() as server:
        yield server


async def test_counts_are_sent_with_the_minute_they_were_counted_in(store: Store, stathat: StatHatServer) -> None:
    """B12: one count for each metric and minute in one batch, and the number of torrents as a value."""
    await export(store, (MINUTE, "countries.France.users", 2), (MINUTE + 60, "countries.France.users", 1))
    await export(store, (MINUTE, "failures.unknown torrent", 3), (MINUTE, "torrents.processed", 9))
    flushing = to_stathat(store, stathat.url, prefix="my ")
    await flushing.flush()
    assert stathat.by_minute == {
        ("my countries.France.users", MINUTE): 2,
        ("my countries.France.users", MINUTE + 60): 1,
        ("my failures.unknown torrent", MINUTE): 3,
        ("my torrents.processed", MINUTE): 9,
    }
    assert stathat.values == {"my torrents.count": [42]}
    assert len(stathat.requests) == 2
    assert flushing.counts == {"stathat.sent": 5}
    assert await contents(store) == {}
    headers, body = stathat.requests[-1]
    assert headers["Content-Type"] == "application/json"
    assert json.loads(body).keys() == {"ezkey", "data"}


async def test_without_a_key_nothing_is_sent(store: Store, stathat: StatHatServer) -> None:
    await export(store, (MINUTE, "a", 1))
    receiver = StatHat(StatHatSettings(url=stathat.url))
    assert not receiver.enabled
    await Flushing(store, receiver).flush()
    assert not stathat.requests
    assert await contents(store) == {MINUTE: {"a": 1}}


@pytest.mark.parametrize("fault", FAULTS)
async def test_after_a_fault_every_count_arrives_once(store: Store, stathat: StatHatServer, fault: Mode) -> None:
    """B12: an outage loses no count, and an accepted batch is not sent again."""
    patient = to_stathat(store, stathat.url)
    timeout = 0.1 if fault in ("hang", "slow") else 5
    impatient = to_stathat(store, stathat.url, timeout=timeout, clock=patient.clock)
    stathat.delay = 5
    await export(store, (MINUTE, "a", 2), (MINUTE + 60, "a", 1), (MINUTE, "b", 5))
    await patient.flush()
    assert stathat.accepted == {"a": 3, "b": 5}
    stathat.mode = fault
    impatient.counts.clear()
    await export(store, (MINUTE + 60, "a", 10), (MINUTE + 120, "c", 1))
    for _ in range(2):
        await impatient.flush()
    assert impatient.counts == {"stathat.failed": 2}
    assert await contents(store) == {MINUTE + 60: {"a": 10}, MINUTE + 120: {"c": 1}}
    stathat.mode = "ok"
    await export(store, (MINUTE + 60, "a", 100))
    await patient.flush()
    assert stathat.accepted == {"a": 113, "b": 5, "c": 1}
    assert await contents(store) == {}
    assert await dropped(store) == 0
    assert stathat.redirected == 0


async def test_a_slow_reply_is_accepted_within_the_timeout(store: Store, stathat: StatHatServer) -> None:
    await export(store, (MINUTE, "a", 2))
    stathat.mode, stathat.delay = "slow", 0.05
    await to_stathat(store, stathat.url).flush()
    assert stathat.accepted == {"a": 2}
    assert await contents(store) == {}


async def test_a_closed_port_loses_nothing(store: Store, stathat: StatHatServer) -> None:
    """B12."""
    flushing = to_stathat(store, stathat.url)
    await export(store, (MINUTE, "a", 2))
    await stathat.refuse()
    await flushing.flush()
    await stathat.listen()
    await flushing.flush()
    assert stathat.accepted == {"a": 2}


async def test_a_fault_between_two_batches_keeps_the_remaining_ones(store: Store, stathat: StatHatServer) -> None:
    """B12: 1,800 samples, of which the first batches were accepted."""
    wanted = {f"s{n}": n + 1 for n in range(1800)}
    await export(store, *((MINUTE + 60 * (by % 3), name, by) for name, by in wanted.items()))
    flushing = to_stathat(store, stathat.url)

    async def fail_soon() -> None:
        if len(stathat.batches) == 3:
            stathat.mode = "500"

    stathat.before_reply = fail_soon
    await flushing.flush()
    assert len(stathat.accepted) == 1000
    stathat.mode, stathat.before_reply = "ok", None
    await flushing.flush()
    assert stathat.accepted == wanted
    assert max(map(len, stathat.batches)) <= 1000


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b\x08",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 16_000,
        b'HTTP/1.1 200 OK\r\n\r\n{"status":' + b"9" * 8000 + b"}",
        b"HTTP/1.1 999 \xff\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_samples_wait_whatever_an_unknown_server_replies(store: Store, reply: bytes) -> None:
    """No reply raises an error."""
    await export(store, (MINUTE, "a", 2))
    async with not_stathat(reply) as url:
        flushing = to_stathat(store, url, timeout=0.3)
        await flushing.flush()
    assert flushing.counts == {"stathat.failed": 1}
    assert await contents(store) == {MINUTE: {"a": 2}}
    tls = to_stathat(store, url.replace("http:", "https:"))
    await tls.flush()
    assert tls.counts == {"stathat.failed": 1}


# Pauses


async def test_pauses_double_up_to_15_minutes_and_a_success_resets_them(store: Store, stathat: StatHatServer) -> None:
    """B12: a flush during a pause sends nothing and returns at once."""
    flushing = to_stathat(store, stathat.url)
    stathat.mode = "500"
    await export(store, (MINUTE, "a", 2))
    sent_at: list[float] = []
    for second in range(0, 6000, 10):
        before = len(stathat.requests)
        await flushing.flush(seconds=10)
        if len(stathat.requests) > before:
            sent_at.append(second)
    pauses = [after - before for before, after in itertools.pairwise(sent_at)]
    assert pauses == [60, 120, 240, 480, 900, 900, 900, 900, 900]
    stathat.mode = "ok"
    await flushing.flush()
    assert stathat.accepted == {"a": 2}
    stathat.mode = "500"
    await flushing.flush(seconds=60)
    before = len(stathat.requests)
    await flushing.flush(seconds=61)
    assert len(stathat.requests) == before + 1, "a success resets the pause"


async def test_a_clock_step_back_does_not_extend_a_pause(store: Store, stathat: StatHatServer) -> None:
    flushing = to_stathat(store, stathat.url)
    flushing.clock.now += 10**8
    stathat.mode = "500"
    await flushing.flush()
    stathat.mode = "ok"
    await flushing.flush(seconds=-(10**8))
    assert stathat.values == {"torrents.count": [42]}


async def test_a_flush_ends_within_a_minute_with_a_slow_server(store: Store, stathat: StatHatServer) -> None:
    """The next flush sends the remaining samples."""
    await export(store, *((MINUTE, f"s{n}", 1) for n in range(2600)))
    flushing = to_stathat(store, stathat.url)

    async def take_long() -> None:
        flushing.clock.now += 20

    stathat.before_reply = take_long
    await flushing.flush()
    assert len(stathat.accepted) == 1000
    assert flushing.counts == {"stathat.sent": 1001}
    stathat.before_reply = None
    await flushing.flush(seconds=60)
    assert len(stathat.accepted) == 2600


# Rejections


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_only_the_rejected_sample_of_a_batch_is_dropped(
    store: Store, stathat: StatHatServer, status: int
) -> None:
    """B12: it blocks no other sample, and the drop is counted. Status 500 takes several attempts."""
    wanted = {f"s{n}": 1 for n in range(700)}
    await export(store, *((MINUTE, name, by) for name, by in wanted.items()), (MINUTE, "bad", 7))
    stathat.poison, stathat.poison_status = lambda name: name == "bad", status
    flushing = to_stathat(store, stathat.url)
    for _ in range(40 if status == 500 else 1):
        await flushing.flush()
    assert stathat.accepted == wanted
    assert await dropped(store) == 7
    assert await contents(store) == {}
    assert flushing.counts["stathat.dropped"] == 1


async def test_nothing_is_dropped_while_every_sample_is_rejected(store: Store, stathat: StatHatServer) -> None:
    """B12: the key or the address is wrong then, not the samples."""
    await export(store, (MINUTE, "a", 2))
    stathat.poison = lambda _: True
    flushing = to_stathat(store, stathat.url)
    for _ in range(20):
        await flushing.flush()
    assert await dropped(store) == 0
    stathat.poison = lambda _: False
    await flushing.flush()
    assert stathat.accepted == {"a": 2}


async def test_batches_shrink_to_the_size_that_the_server_accepts(store: Store, stathat: StatHatServer) -> None:
    wanted = {f"s{n}": 1 for n in range(700)}
    await export(store, *((MINUTE, name, by) for name, by in wanted.items()))
    stathat.max_samples = 60
    flushing = to_stathat(store, stathat.url)
    await flushing.flush()
    assert stathat.accepted == wanted
    assert await dropped(store) == 0


async def test_an_outage_loses_only_counts_beyond_the_outbox_limit(store: Store, stathat: StatHatServer) -> None:
    """B12: drops are counted, and all that the outbox holds arrives after the outage."""
    flushing = to_stathat(store, stathat.url)
    stathat.mode = "503"
    for minute in range(10):
        await export(store, *((MINUTE + 60 * minute, f"s{n}", 1) for n in range(20)), max_waiting=100)
        await flushing.flush()
    assert await dropped(store) == 100
    stathat.mode = "ok"
    await flushing.flush()
    assert sum(stathat.accepted.values()) == 100
    assert set(stathat.by_minute) == {(f"s{n}", MINUTE + 60 * m) for m in range(5) for n in range(20)}


# The key


@pytest.mark.parametrize("fault", [*FAULTS, "refuse", "tls"])
async def test_the_key_is_in_no_log(
    store: Store, stathat: StatHatServer, fault: Mode | Literal["refuse", "tls"], caplog: pytest.LogCaptureFixture
) -> None:
    """B12: not even at debug level, with asyncio's debug mode, and with a server that repeats the key."""
    caplog.set_level(logging.DEBUG)
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.0  # describes every callback in the log
    await export(store, (MINUTE, "a", 2))
    if fault == "refuse":
        await stathat.refuse()
    elif fault != "tls":
        stathat.mode = fault
    url = stathat.url.replace("http:", "https:") if fault == "tls" else stathat.url
    flushing = to_stathat(store, url, timeout=0.15 if fault in ("hang", "slow") else 5)
    with capture_logs() as lines:
        for _ in range(3):
            await flushing.flush()
    loop.set_debug(False)
    records = "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert len(caplog.records) > 10, "asyncio logs"
    assert KEY not in caplog.text
    assert KEY not in records
    assert KEY not in str(lines)
    assert [line["log_level"] for line in lines] == ["warning"]
    assert KEY not in f"{vars(flushing.sender)!r} {vars(flushing.receiver)!r}"


@pytest.mark.parametrize("fault", ["403", "bad key"])
async def test_a_rejected_key_is_logged_once(store: Store, stathat: StatHatServer, fault: Mode) -> None:
    """B12: the samples wait until the key is right."""
    await export(store, (MINUTE, "a", 2))
    stathat.mode = fault
    flushing = to_stathat(store, stathat.url)
    with capture_logs() as lines:
        for _ in range(4):
            await flushing.flush()
    assert ["TRACKER_STATHAT__EZKEY" in line["reason"] for line in lines] == [True]
    stathat.mode = "ok"
    with capture_logs() as lines:
        for _ in range(2):
            await flushing.flush()
    assert [line["event"] for line in lines] == ["metrics receiver available again"]
    assert stathat.accepted == {"a": 2}


# Several senders; killed and cancelled ones


async def test_three_senders_on_one_store_send_each_sample_once(store: Store, stathat: StatHatServer) -> None:
    """B12: at the same time."""
    wanted = {f"s{n}": n + 1 for n in range(3000)}
    await export(store, *((MINUTE + 60 * (by % 7), name, by) for name, by in wanted.items()))
    stathat.mode, stathat.delay = "slow", 0.01
    senders = [to_stathat(store, stathat.url) for _ in range(3)]
    await asyncio.gather(*(sender.flush() for sender in senders))
    assert stathat.accepted == wanted
    assert await contents(store) == {}
    assert senders[0].counts["stathat.sent"] == 3003, "all count in one store, which the first one follows too"


async def test_samples_of_a_killed_process_are_sent_by_another_after_the_lease(
    valkey: Server, store: Store, stathat: StatHatServer
) -> None:
    """B12: SIGKILL during a flush, before the reply to its batch."""
    await export(store, *((MINUTE, f"s{n}", 1) for n in range(700)))
    clock = Clock(MINUTE + 600)
    arguments = ["-m", "tests.workers.flushing", valkey.url, store.keys.prefix, stathat.url, str(clock.now)]

    async def hang_soon() -> None:
        if len(stathat.batches) == 2:
            stathat.mode = "hang"

    stathat.before_reply = hang_soon
    child = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT)
    await eventually(lambda: len(stathat.batches) >= 3)
    child.send_signal(signal.SIGKILL)
    await child.wait()
    assert sum(stathat.accepted.values()) == 500
    stathat.mode, stathat.before_reply = "ok", None
    other = to_stathat(store, stathat.url, clock=clock)
    await other.flush(seconds=1)
    assert sum(stathat.accepted.values()) == 500, "the lease has not expired"
    await other.flush(seconds=110)
    assert stathat.accepted == {f"s{n}": 1 for n in range(700)}
    assert await contents(store) == {}


async def test_a_cancelled_flush_releases_its_batches(store: Store, stathat: StatHatServer) -> None:
    """As at a stop, or when a job exceeds its timeout."""
    await export(store, (MINUTE, "a", 1))

    async def hang() -> None:
        stathat.mode = "hang"

    stathat.before_reply = hang
    flushing = to_stathat(store, stathat.url)
    task = asyncio.Task(flushing.flush())
    await eventually(lambda: len(stathat.batches) >= 2)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    stathat.mode, stathat.before_reply = "ok", None
    await flushing.flush(seconds=1)
    assert stathat.accepted == {"a": 1}


async def test_a_result_is_acknowledged_first_when_the_store_is_back(
    start_server: Callable[..., Server], stathat: StatHatServer
) -> None:
    """B12: an accepted batch is not sent again."""
    server = start_server()
    here = Store(server.url, Keys("x:"), SwarmRules())
    async with Proxy(server) as wire, running(Store(wire.url, Keys("x:"), SwarmRules())) as store:
        await export(here, (MINUTE, "a", 1), (MINUTE + 60, "b", 1))
        flushing = to_stathat(store, stathat.url)

        async def lose_the_store() -> None:
            if len(stathat.batches) == 2:
                await asyncio.to_thread(server.stop)
                wire.cut()

        stathat.before_reply = lose_the_store
        with pytest.raises(StoreUnavailable):
            await flushing.flush()
        assert stathat.accepted == {"a": 1, "b": 1}
        with pytest.raises(StoreUnavailable):
            await flushing.flush()
        await asyncio.to_thread(server.start)
        async with in_background(store.connection.watch()):
            await store.connection.until_available()
        assert await contents(store) == {}
        await flushing.flush()
        assert stathat.accepted == {"a": 1, "b": 1}
    await here.connection.close()


async def test_an_acknowledgement_whose_reply_is_lost_applies_once(
    valkey: Server, store: Store, stathat: StatHatServer, prefix: str
) -> None:
    """Counts that were added after the first acknowledgement stay."""
    async with Proxy(valkey) as wire:
        far = Store(wire.url, Keys(prefix), SwarmRules())
        await export(store, (MINUTE, "a", 1))
        flushing = to_stathat(far, stathat.url)

        async def lose_the_next_reply() -> None:
            if len(stathat.batches) == 2:
                wire.swallow_answers()

        stathat.before_reply = lose_the_next_reply
        with pytest.raises(StoreUnavailable):
            await flushing.flush()
        await export(store, (MINUTE, "a", 5))
        async with asyncio.timeout(5):
            async with in_background(far.connection.watch()):
                await far.connection.until_available()
        await flushing.flush()
        assert stathat.accepted == {"a": 6}
        await far.connection.close()


# Names and replies


def test_the_stathat_server_also_runs_in_a_thread() -> None:
    with stathat_in_thread() as server:
        stat = {"stat": "a", "count": 2, "t": MINUTE}
        for key, status in ((KEY, 200), ("another", 403)):
            connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
            body = json.dumps({"ezkey": key, "data": [stat]})
            connection.request("POST", "/ez", body, {"Content-Type": "application/json"})
            assert connection.getresponse().status == status
            connection.close()
        assert server.accepted == {"a": 2}


def test_names_fit_stathat_and_stay_distinct() -> None:
    """B11: at most 255 characters, no ``~``."""
    assert stat_name("my ", "countries.France.users") == "my countries.France.users"
    assert stat_name("", "a~b,c\n\x00") == "a%7Eb,c%0A%00"
    assert stat_name("", "countries.Brazil.cities.São Paulo.users") == "countries.Brazil.cities.São Paulo.users"
    assert stat_name("", "x" * 255) == "x" * 255
    long = [stat_name("p" * 60, "x" * 300 + end) for end in "ab"]
    assert [len(name) for name in long] == [255, 255]
    assert len(set(long)) == 2


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (200, '{"status":200,"msg":"ok"}', "accepted"),
        (200, '{"status":"ok","msg":"ok"}', "accepted"),
        (202, '{"status":"200"}', "accepted"),
        (204, "", "unavailable"),
        (200, '{"msg":"ok"}', "unavailable"),
        (200, '{"status":true}', "unavailable"),
        (200, '["ok"]', "unavailable"),
        (200, '{"status":400,"msg":"bad stat"}', "rejected"),
        (200, '{"status":500,"msg":"invalid key"}', "unavailable"),
        (200, '{"status":500,"msg":"oops"}', "server error"),
        (500, '{"status":200,"msg":"ok"}', "server error"),
        (400, "", "rejected"),
        (401, "", "unavailable"),
        (413, "", "rejected"),
        (404, "", "unavailable"),
        (429, "", "unavailable"),
        (301, "", "unavailable"),
    ],
)
def test_a_reply_is_accepted_only_if_status_and_json_say_so(status: int, body: str, outcome: str) -> None:
    result = parse_reply(status, "", body.encode())
    assert result.outcome.value == outcome
    assert bool(result.reason) == (outcome != "accepted")


@pytest.mark.parametrize(("header", "seconds"), [("120", 120.0), ("", 0.0), ("soon", 0.0), ("9" * 99, 0.0)])
def test_retry_after_in_seconds_is_obeyed(header: str, seconds: float) -> None:
    assert parse_reply(503, header, b"").retry_after == seconds
