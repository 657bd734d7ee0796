"""What StatHat answered is counted there once; what it did not, waits (row B12). Against a server with StatHat's faults."""

import asyncio
import itertools
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from http.client import HTTPConnection
from typing import Literal

import pytest
from structlog.testing import capture_logs

from tests.servers import ROOT, Server
from tests.stathat_server import KEY, Mode, StatHatServer, not_stathat, stathat_in_thread
from tests.store.harness import Clock, Store, running
from tests.store.outbox import contents, dropped, export
from tests.store.proxy import Proxy
from tests.workers.flushing import MINUTE, Flushing
from tracker.errors import StoreAway
from tracker.settings import StatHatSettings
from tracker.store.keys import Keys
from tracker.store.swarms import SwarmRules
from tracker.workers.stathat import judge, stat_name

FAULTS: list[Mode] = [
    "slow",
    "hang",
    "500",
    "503",
    "error in json",
    "garbage",
    "empty",
    "huge",
    "redirect",
    "404",
    "403",
    "bad key",
]


@pytest.fixture
async def store(valkey: Server, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(valkey.url, Keys(prefix), SwarmRules())) as store:
        yield store


@pytest.fixture
async def stathat() -> AsyncIterator[StatHatServer]:
    async with StatHatServer() as server:
        yield server


async def test_figures_go_out_by_their_minute(store: Store, stathat: StatHatServer) -> None:
    """B12: a counter for each metric, in one batch; and how many torrents there are."""
    await export(store, (MINUTE, "countries.GB.users", 2), (MINUTE + 60, "countries.GB.users", 1))
    await export(store, (MINUTE, "failures.unknown torrent", 3), (MINUTE, "torrents.processed", 9))
    flushing = Flushing(store, stathat.url, prefix="my ")
    await flushing.flush()
    assert stathat.by_minute == {
        ("my countries.GB.users", MINUTE): 2,
        ("my countries.GB.users", MINUTE + 60): 1,
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


async def test_without_a_key_nothing_happens(store: Store, stathat: StatHatServer) -> None:
    await export(store, (MINUTE, "a", 1))
    worker = Flushing(store, stathat.url).made_with(StatHatSettings(url=stathat.url))
    assert not worker.wanted
    await worker.flush({})
    assert not stathat.requests
    assert await contents(store) == {MINUTE: {"a": 1}}


@pytest.mark.parametrize("fault", FAULTS)
async def test_after_a_fault_everything_arrives_once(
    store: Store, stathat: StatHatServer, fault: Mode
) -> None:
    """B12: an outage loses nothing, and what was answered is not sent again."""
    patient = Flushing(store, stathat.url)
    impatient = Flushing(
        store, stathat.url, timeout=0.1 if fault in ("hang", "slow") else 5, clock=patient.clock
    )
    stathat.delay = 5
    await export(store, (MINUTE, "a", 2), (MINUTE + 60, "a", 1), (MINUTE, "b", 5))
    await patient.flush()
    assert stathat.answered == {"a": 3, "b": 5}
    stathat.mode = fault
    await export(store, (MINUTE + 60, "a", 10), (MINUTE + 120, "c", 1))
    for _ in range(2):
        await impatient.flush()
    assert impatient.counts == {"stathat.failed": 2}
    assert await contents(store) == {MINUTE + 60: {"a": 10}, MINUTE + 120: {"c": 1}}
    stathat.mode = "ok"
    await export(store, (MINUTE + 60, "a", 100))
    await patient.flush()
    assert stathat.answered == {"a": 113, "b": 5, "c": 1}
    assert await contents(store) == {}
    assert await dropped(store) == 0
    assert stathat.redirected == 0


async def test_a_slow_answer_is_an_answer(store: Store, stathat: StatHatServer) -> None:
    await export(store, (MINUTE, "a", 2))
    stathat.mode, stathat.delay = "slow", 0.05
    await Flushing(store, stathat.url).flush()
    assert stathat.answered == {"a": 2}
    assert await contents(store) == {}


async def test_a_closed_port_is_an_outage(store: Store, stathat: StatHatServer) -> None:
    """B12."""
    flushing = Flushing(store, stathat.url)
    await export(store, (MINUTE, "a", 2))
    await stathat.refuse()
    await flushing.flush()
    await stathat.listen()
    await flushing.flush()
    assert stathat.answered == {"a": 2}


async def test_a_fault_in_the_middle_keeps_the_rest(store: Store, stathat: StatHatServer) -> None:
    """B12: thousands of figures, of which the first batches were answered."""
    wanted = {f"s{n}": n + 1 for n in range(1800)}
    await export(store, *((MINUTE + 60 * (by % 3), name, by) for name, by in wanted.items()))
    flushing = Flushing(store, stathat.url)

    async def fail_soon() -> None:
        if len(stathat.batches) == 3:
            stathat.mode = "500"

    stathat.before_answer = fail_soon
    await flushing.flush()
    assert len(stathat.answered) == 1000
    stathat.mode, stathat.before_answer = "ok", None
    await flushing.flush()
    assert stathat.answered == wanted
    assert max(map(len, stathat.batches)) <= 1000


@pytest.mark.parametrize(
    "answer",
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
async def test_any_server_may_be_there(store: Store, answer: bytes) -> None:
    """Whatever it says, the figures wait and nothing is raised."""
    await export(store, (MINUTE, "a", 2))
    async with not_stathat(answer) as url:
        flushing = Flushing(store, url, timeout=0.3)
        await flushing.flush()
    assert flushing.counts == {"stathat.failed": 1}
    assert await contents(store) == {MINUTE: {"a": 2}}
    tls = Flushing(store, flushing.url.replace("http:", "https:"))
    await tls.flush()
    assert tls.counts == {"stathat.failed": 1}


# Pauses


async def test_pauses_grow_and_have_an_end(store: Store, stathat: StatHatServer) -> None:
    """B12: an outage is asked about less and less; nothing blocks."""
    flushing = Flushing(store, stathat.url)
    stathat.mode = "500"
    await export(store, (MINUTE, "a", 2))
    asked: list[float] = []
    for second in range(0, 6000, 10):
        before = len(stathat.requests)
        await flushing.flush(pause=10)
        if len(stathat.requests) > before:
            asked.append(second)
    pauses = [after - before for before, after in itertools.pairwise(asked)]
    assert pauses == [60, 120, 240, 480, 900, 900, 900, 900, 900]
    stathat.mode = "ok"
    await flushing.flush()
    assert stathat.answered == {"a": 2}
    stathat.mode = "500"
    await flushing.flush(pause=60)
    before = len(stathat.requests)
    await flushing.flush(pause=61)
    assert len(stathat.requests) == before + 1, "a success makes the next pause short again"


async def test_a_clock_that_goes_back_does_not_stop_it(store: Store, stathat: StatHatServer) -> None:
    flushing = Flushing(store, stathat.url)
    flushing.clock.now += 10**8
    stathat.mode = "500"
    await flushing.flush()
    stathat.mode = "ok"
    await flushing.flush(pause=-(10**8))
    assert stathat.values == {"torrents.count": [42]}


async def test_a_flush_ends_in_time(store: Store, stathat: StatHatServer) -> None:
    """What a slow server leaves over is for the next minute."""
    await export(store, *((MINUTE, f"s{n}", 1) for n in range(2600)))
    flushing = Flushing(store, stathat.url)

    async def take_long() -> None:
        flushing.clock.now += 20

    stathat.before_answer = take_long
    await flushing.flush()
    assert len(stathat.answered) == 1000
    assert flushing.counts == {"stathat.sent": 1001}
    stathat.before_answer = None
    await flushing.flush(pause=60)
    assert len(stathat.answered) == 2600


# Refusals


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_poisonous_figure_is_dropped_alone(store: Store, stathat: StatHatServer, status: int) -> None:
    """B12: what is never taken blocks nothing, and the drop is counted. At 500 it is not clear at once."""
    wanted = {f"s{n}": 1 for n in range(700)}
    await export(store, *((MINUTE, name, by) for name, by in wanted.items()), (MINUTE, "bad", 7))
    stathat.poison, stathat.poison_status = lambda name: name == "bad", status
    flushing = Flushing(store, stathat.url)
    for _ in range(40 if status == 500 else 1):
        await flushing.flush()
    assert stathat.answered == wanted
    assert await dropped(store) == 7
    assert await contents(store) == {}
    assert flushing.counts["stathat.dropped"] == 1


async def test_when_everything_is_refused_nothing_is_dropped(store: Store, stathat: StatHatServer) -> None:
    """B12: then it is not the figures that are wrong."""
    await export(store, (MINUTE, "a", 2))
    stathat.poison = lambda _: True
    flushing = Flushing(store, stathat.url)
    for _ in range(20):
        await flushing.flush()
    assert await dropped(store) == 0
    stathat.poison = lambda _: False
    await flushing.flush()
    assert stathat.answered == {"a": 2}


async def test_a_server_that_takes_less_gets_less(store: Store, stathat: StatHatServer) -> None:
    wanted = {f"s{n}": 1 for n in range(700)}
    await export(store, *((MINUTE, name, by) for name, by in wanted.items()))
    stathat.most = 60
    flushing = Flushing(store, stathat.url)
    await flushing.flush()
    assert stathat.answered == wanted
    assert await dropped(store) == 0


async def test_a_full_outbox_loses_only_what_it_cannot_hold(store: Store, stathat: StatHatServer) -> None:
    """B12: during an outage drops are counted, and what the outbox holds arrives."""
    flushing = Flushing(store, stathat.url)
    stathat.mode = "503"
    for minute in range(10):
        await export(store, *((MINUTE + 60 * minute, f"s{n}", 1) for n in range(20)), most=100)
        await flushing.flush()
    assert await dropped(store) == 100
    stathat.mode = "ok"
    await flushing.flush()
    assert sum(stathat.answered.values()) == 100
    assert set(stathat.by_minute) == {(f"s{n}", MINUTE + 60 * m) for m in range(5) for n in range(20)}


# The key


@pytest.mark.parametrize("fault", [*FAULTS, "refuse", "tls"])
async def test_the_key_is_in_no_log(
    store: Store,
    stathat: StatHatServer,
    fault: Mode | Literal["refuse", "tls"],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B12: not even at debug level, with asyncio's own debugging on, and a server that repeats it."""
    caplog.set_level(logging.DEBUG)
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.0  # then it describes every callback
    await export(store, (MINUTE, "a", 2))
    if fault == "refuse":
        await stathat.refuse()
    elif fault != "tls":
        stathat.mode = fault
    url = stathat.url.replace("http:", "https:") if fault == "tls" else stathat.url
    flushing = Flushing(store, url, timeout=0.15 if fault in ("hang", "slow") else 5)
    with capture_logs() as ours:
        for _ in range(3):
            await flushing.flush()
    loop.set_debug(False)
    records = "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    assert len(caplog.records) > 10, "asyncio logs"
    assert KEY not in caplog.text
    assert KEY not in records
    assert KEY not in str(ours)
    assert [line["log_level"] for line in ours] == ["warning"]
    assert KEY not in f"{flushing.worker!r} {vars(flushing.worker)!r}"


@pytest.mark.parametrize("fault", ["403", "bad key"])
async def test_a_refused_key_is_told_once(store: Store, stathat: StatHatServer, fault: Mode) -> None:
    """B12: the figures wait for the right one."""
    await export(store, (MINUTE, "a", 2))
    stathat.mode = fault
    flushing = Flushing(store, stathat.url)
    with capture_logs() as told:
        for _ in range(4):
            await flushing.flush()
    assert ["TRACKER_STATHAT__EZKEY" in line["reason"] for line in told] == [True]
    stathat.mode = "ok"
    with capture_logs() as told:
        for _ in range(2):
            await flushing.flush()
    assert [line["event"] for line in told] == ["figures are taken again"]
    assert stathat.answered == {"a": 2}


# Several senders, and their ends


async def test_two_senders_send_each_figure_once(store: Store, stathat: StatHatServer) -> None:
    """B12: at the same time, on one store."""
    wanted = {f"s{n}": n + 1 for n in range(3000)}
    await export(store, *((MINUTE + 60 * (by % 7), name, by) for name, by in wanted.items()))
    stathat.mode, stathat.delay = "slow", 0.01
    senders = [Flushing(store, stathat.url) for _ in range(3)]
    await asyncio.gather(*(sender.flush() for sender in senders))
    assert stathat.answered == wanted
    assert await contents(store) == {}
    assert sum(sender.counts["stathat.sent"] for sender in senders) == 3003


async def test_what_a_killed_process_had_not_sent_is_sent_by_another(
    valkey: Server, store: Store, stathat: StatHatServer
) -> None:
    """B12: SIGKILL in the middle of a flush, while the batch is not answered."""
    await export(store, *((MINUTE, f"s{n}", 1) for n in range(700)))
    clock = Clock(MINUTE + 600)
    words = ["-m", "tests.workers.flushing", valkey.url, store.keys.prefix, stathat.url, str(clock.now)]

    async def hang_soon() -> None:
        if len(stathat.batches) == 2:
            stathat.mode = "hang"

    stathat.before_answer = hang_soon
    child = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT)
    async with asyncio.timeout(30):
        while len(stathat.batches) < 3:
            await asyncio.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    await child.wait()
    assert sum(stathat.answered.values()) == 500
    stathat.mode, stathat.before_answer = "ok", None
    other = Flushing(store, stathat.url, clock=clock)
    await other.flush(pause=1)
    assert sum(stathat.answered.values()) == 500, "its lease has not ended"
    await other.flush(pause=110)
    assert stathat.answered == {f"s{n}": 1 for n in range(700)}
    assert await contents(store) == {}


async def test_a_flush_that_is_cancelled_gives_back_what_it_took(
    store: Store, stathat: StatHatServer
) -> None:
    """As on a stop, or when a job takes too long."""
    await export(store, (MINUTE, "a", 1))

    async def hang() -> None:
        stathat.mode = "hang"

    stathat.before_answer = hang
    flushing = Flushing(store, stathat.url)
    task = asyncio.Task(flushing.flush())
    async with asyncio.timeout(5):
        while len(stathat.batches) < 2:
            await asyncio.sleep(0.005)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    stathat.mode, stathat.before_answer = "ok", None
    await flushing.flush(pause=1)
    assert stathat.answered == {"a": 1}


async def test_the_store_may_leave_before_it_hears_the_answer(
    start_server: Callable[..., Server], stathat: StatHatServer
) -> None:
    """B12: what was answered is told to the store as the first thing when it is back, and is not sent again."""
    server = start_server()
    here = Store(server.url, Keys("x:"), SwarmRules())
    async with Proxy(server) as wire, running(Store(wire.url, Keys("x:"), SwarmRules())) as store:
        await export(here, (MINUTE, "a", 1), (MINUTE + 60, "b", 1))
        flushing = Flushing(store, stathat.url)

        async def lose_the_store() -> None:
            if len(stathat.batches) == 2:
                await asyncio.to_thread(server.stop)
                wire.cut()

        stathat.before_answer = lose_the_store
        with pytest.raises(StoreAway):
            await flushing.flush()
        assert stathat.answered == {"a": 1, "b": 1}
        with pytest.raises(StoreAway):
            await flushing.flush()
        await asyncio.to_thread(server.start)
        watch = asyncio.Task(store.connection.watch())
        await store.connection.until_back()
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        assert await contents(store) == {}
        await flushing.flush()
        assert stathat.answered == {"a": 1, "b": 1}
    await here.connection.close()


async def test_a_result_is_noted_once_though_the_line_broke(
    valkey: Server, store: Store, stathat: StatHatServer, prefix: str
) -> None:
    """The store heard it, only its answer was lost: what was counted since must stay."""
    async with Proxy(valkey) as wire:
        far = Store(wire.url, Keys(prefix), SwarmRules())
        await export(store, (MINUTE, "a", 1))
        flushing = Flushing(far, stathat.url)

        async def lose_the_next_answer() -> None:
            if len(stathat.batches) == 2:
                wire.swallow_answers()

        stathat.before_answer = lose_the_next_answer
        with pytest.raises(StoreAway):
            await flushing.flush()
        await export(store, (MINUTE, "a", 5))
        async with asyncio.timeout(5):
            watch = asyncio.Task(far.connection.watch())
            await far.connection.until_back()
            watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        await flushing.flush()
        assert stathat.answered == {"a": 6}
        await far.connection.close()


# Names and answers


def test_the_server_also_runs_beside_a_test_without_a_loop() -> None:
    with stathat_in_thread() as server:
        stat = {"stat": "a", "count": 2, "t": MINUTE}
        for key, status in ((KEY, 200), ("another", 403)):
            line = HTTPConnection("127.0.0.1", server.port, timeout=10)
            body = json.dumps({"ezkey": key, "data": [stat]})
            line.request("POST", "/ez", body, {"Content-Type": "application/json"})
            assert line.getresponse().status == status
            line.close()
        assert server.answered == {"a": 2}


def test_names_are_what_stathat_takes() -> None:
    """B11: at most 255 characters, no ``~``; different names stay different."""
    assert stat_name("my ", "countries.GB.users") == "my countries.GB.users"
    assert stat_name("", "a~b,c\n\x00") == "a%7Eb,c%0A%00"
    assert stat_name("", "cities.São Paulo.users") == "cities.São Paulo.users"
    assert stat_name("", "x" * 255) == "x" * 255
    long = [stat_name("p" * 60, "x" * 300 + end) for end in "ab"]
    assert [len(name) for name in long] == [255, 255]
    assert len(set(long)) == 2


@pytest.mark.parametrize(
    ("status", "body", "verdict"),
    [
        (200, '{"status":200,"msg":"ok"}', "taken"),
        (200, '{"status":"ok","msg":"ok"}', "taken"),
        (202, '{"status":"200"}', "taken"),
        (204, "", "failed"),
        (200, '{"msg":"ok"}', "failed"),
        (200, '{"status":true}', "failed"),
        (200, '["ok"]', "failed"),
        (200, '{"status":400,"msg":"bad stat"}', "refused"),
        (200, '{"status":500,"msg":"invalid key"}', "failed"),
        (200, '{"status":500,"msg":"oops"}', "trouble"),
        (500, '{"status":200,"msg":"ok"}', "trouble"),
        (400, "", "refused"),
        (401, "", "failed"),
        (413, "", "refused"),
        (404, "", "failed"),
        (429, "", "failed"),
        (301, "", "failed"),
    ],
)
def test_what_an_answer_means(status: int, body: str, verdict: str) -> None:
    answer = judge(status, "", body.encode())
    assert answer.verdict.value == verdict
    assert bool(answer.reason) == (verdict != "taken")


@pytest.mark.parametrize(
    ("retry_after", "pause"), [("120", 120.0), ("", 0.0), ("soon", 0.0), ("9" * 99, 0.0)]
)
def test_a_server_may_ask_for_a_pause(retry_after: str, pause: float) -> None:
    assert judge(503, retry_after, b"").pause == pause
