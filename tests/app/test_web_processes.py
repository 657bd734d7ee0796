"""Several web processes of one tracker: as an operator starts them, and what becomes of them."""

import asyncio
import json
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
from pydantic import SecretStr

from tests import trackers
from tests.servers import Server
from tests.trackers import RunningTracker
from tracker import workforce
from tracker.errors import StartupError
from tracker.listeners import open_listeners
from tracker.loops import running
from tracker.settings import AnnounceSettings, HttpSettings, RedisSettings, Settings
from tracker.telemetry import Snapshot, Telemetry
from tracker.workforce import (
    Orders,
    Workforce,
    decode_snapshot,
    encode_snapshot,
    open_workforce,
    receive_orders,
    send_orders,
)

SECONDS = 30.0
StartTracker = Callable[..., RunningTracker]


@pytest.fixture
def start_tracker(tmp_path: Path) -> Iterator[StartTracker]:
    started: list[RunningTracker] = []

    def start(*words: str, **settings: str) -> RunningTracker:
        started.append(trackers.start(tmp_path, *words, TRACKER_HTTP__WORKERS="2", **settings))
        return started[-1]

    yield start
    for tracker in started:
        tracker.kill()


def web_processes(tracker: RunningTracker) -> list[int]:
    """The pids of the children that are web processes."""
    children = Path(f"/proc/{tracker.process.pid}/task/{tracker.process.pid}/children").read_text().split()
    return [int(pid) for pid in children if b"web_process" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


linux_only = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")


@linux_only
def test_two_processes_serve_one_swarm_and_stop_together(start_tracker: StartTracker) -> None:
    tracker = start_tracker()
    pids = web_processes(tracker)
    assert len(pids) == 2
    with ThreadPoolExecutor(8) as pool:
        replies = list(
            pool.map(
                lambda n: tracker.announce(peer_id=f"-TR4000-abcdefgh{n:04}", port=str(1000 + n)), range(64)
            )
        )
    assert max(reply[b"complete"] for reply in replies) == 64
    assert tracker.end() == 0
    assert all(gone(pid) for pid in pids)


@linux_only
def test_how_many_may_be_said_in_the_command(start_tracker: StartTracker) -> None:
    tracker = start_tracker("--workers", "3")
    assert len(web_processes(tracker)) == 3
    assert tracker.end() == 0


def ended(tracker: RunningTracker) -> list[str]:
    """What the log says of web processes that ended, by whole lines."""
    *lines, _unfinished = tracker.log.split("\n")
    return [line for line in lines if "a web process ended" in line]


@linux_only
def test_one_that_is_killed_is_replaced(start_tracker: StartTracker) -> None:
    tracker = start_tracker()
    victim, other = web_processes(tracker)
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(web_processes(tracker)) == 2 and victim not in web_processes(tracker))
    assert other in web_processes(tracker)
    until(lambda: b"complete" in tracker.announce())
    until(lambda: bool(ended(tracker)))  # a thread of its own writes the log
    assert [json.loads(line)["how"] for line in ended(tracker)] == ["signal 9"]
    assert tracker.end() == 0


@linux_only
@pytest.mark.slow
def test_the_admin_port_knows_that_nobody_serves(start_tracker: StartTracker) -> None:
    """Requests wait in the queue of the sockets meanwhile, so nobody would be told there."""
    tracker = start_tracker()
    (admin,) = re.findall(r"admin +http://(\S+?)/", tracker.banner)

    def ready() -> tuple[int, bytes]:
        connection = HTTPConnection(admin, timeout=SECONDS)
        try:
            connection.request("GET", "/ready")
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    assert ready() == (200, b"ready\n")
    for pid in web_processes(tracker):
        os.kill(pid, signal.SIGKILL)
    until(lambda: ready() == (503, b"no web process serves\n"))
    until(lambda: ready()[0] == 200)
    assert tracker.end() == 0


@linux_only
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.slow
def test_none_outlives_the_tracker(start_tracker: StartTracker, number: signal.Signals) -> None:
    tracker = start_tracker()
    pids = web_processes(tracker)
    tracker.end(number)
    until(lambda: all(gone(pid) for pid in pids))


@linux_only
@pytest.mark.slow
def test_no_secret_stands_in_a_command_line_or_an_environment(
    start_tracker: StartTracker, start_server: Callable[..., Server]
) -> None:
    server = start_server("--appendonly", "no")
    with server.client() as client:
        client.config_set("requirepass", "hunter2")
    tracker = start_tracker(TRACKER_REDIS__URL=f"unix://:hunter2@{server.socket_path}")
    assert tracker.announce()[b"complete"] == 1
    for pid in web_processes(tracker):
        for about in ("cmdline", "environ"):
            assert b"hunter2" not in Path(f"/proc/{pid}/{about}").read_bytes()
    assert tracker.end() == 0


@linux_only
@pytest.mark.slow
def test_a_socket_file_stays_until_the_tracker_ends(start_tracker: StartTracker, tmp_path: Path) -> None:
    path = Path(f"/tmp/swk-{os.getpid()}.sock")  # noqa: S108  # a path short enough for a socket
    tracker = start_tracker(TRACKER_HTTP__LISTEN=f"127.0.0.1:0,unix:{path}")
    (victim, _) = web_processes(tracker)
    os.kill(victim, signal.SIGTERM)
    until(lambda: victim not in web_processes(tracker) and len(web_processes(tracker)) == 2)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    assert tracker.end() == 0
    assert not path.exists()


def settings_on(url: str, workers: int = 1) -> Settings:
    http = HttpSettings(listen=("127.0.0.1:0",), workers=workers)
    return Settings(redis=RedisSettings(url=SecretStr(url)), http=http)


@pytest.mark.slow
async def test_figures_outlive_their_process(redis_url: str, prefix: str) -> None:
    """What a process had counted when it ended stays in the sums, and what it was doing does not."""
    settings = settings_on(redis_url)
    settings = settings.model_copy(update={"redis": settings.redis.model_copy(update={"prefix": prefix})})
    listeners = await open_listeners(settings.http.listen)
    orders = Orders(settings, redis_url, b"secret", tuple(listener.address for listener in listeners))
    host, _, port = listeners[0].address.rpartition(":")

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /announce?info_hash=short HTTP/1.0\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer

    try:
        async with open_workforce(orders, listeners, tuple) as force:
            assert force.alive == 1
            assert b"failure reason" in await ask()
            await _until(lambda: force.snapshot().counts.get("requests") == 1)
            (pid,) = force.pids
            os.kill(pid, signal.SIGKILL)
            await _until(lambda: bool(force.pids) and force.pids != [pid] and force.alive == 1)
            assert force.snapshot().counts["requests"] == 1
            await ask()
            await _until(lambda: force.snapshot().counts["requests"] == 2)
        assert force.snapshot().counts["requests"] == 2
        assert force.alive == 0
    finally:
        for listener in listeners:
            listener.close()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(SECONDS):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_one_that_hangs_is_replaced(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is stopped keeps its sockets, and whoever was accepted by it waits."""
    settings = settings_on(redis_url)
    settings = settings.model_copy(update={"redis": settings.redis.model_copy(update={"prefix": prefix})})
    listeners = await open_listeners(settings.http.listen)
    orders = Orders(settings, redis_url, b"secret", tuple(listener.address for listener in listeners))
    try:
        async with open_workforce(orders, listeners, tuple) as force:
            (pid,) = force.pids
            os.kill(pid, signal.SIGSTOP)
            monkeypatch.setattr(workforce, "MOST_SILENT", 3)
            await _until(lambda: pid not in force.pids)
            monkeypatch.undo()  # on a busy machine a new one takes longer to be heard
            await _until(lambda: force.alive == 1)
    finally:
        listeners[0].close()


async def test_one_that_ends_before_it_has_its_orders_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workforce, "_MODULE", "tracker.nothing")
    orders = Orders(settings_on("unix:///nobody"), "", b"x" * 10_000_000, ())
    force = Workforce(orders, [], tuple)
    with pytest.raises(StartupError, match="a web process ended with"):
        await force.start()
    assert force.pids == []


@pytest.mark.slow
async def test_what_cannot_be_started_again_does_not_take_the_others_down(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the middle of an upgrade, when files of the package are missing for a moment."""
    settings = settings_on(redis_url, workers=2)
    settings = settings.model_copy(update={"redis": settings.redis.model_copy(update={"prefix": prefix})})
    listeners = await open_listeners(settings.http.listen)
    orders = Orders(settings, redis_url, b"x" * 1_000_000, (listeners[0].address,))
    try:
        async with open_workforce(orders, listeners, tuple) as force:
            victim, other = force.pids
            with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
                patch.setattr(workforce, "_MODULE", "tracker.nothing")
                os.kill(victim, signal.SIGKILL)
                await _until(lambda: any("cannot be started again" in line["event"] for line in logs))
                assert force.pids == [other]
            await _until(lambda: force.alive == 2)
    finally:
        listeners[0].close()


async def test_one_that_is_being_started_hears_of_settings_that_change_meanwhile(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the old ones by then, and is none of those that run."""
    settings = settings_on(redis_url)
    settings = settings.model_copy(update={"redis": settings.redis.model_copy(update={"prefix": prefix})})
    changed = settings.model_copy(
        update={"announce": AnnounceSettings(interval_seconds=77, interval_jitter=0)}
    )
    listeners = await open_listeners(settings.http.listen)
    orders = Orders(settings, redis_url, b"secret", (listeners[0].address,))
    host, _, port = listeners[0].address.rpartition(":")

    def send(*told: Any) -> None:
        send_orders(*told)
        force.go_by(changed)

    def interval() -> bytes:
        with closing(HTTPConnection(host, int(port), timeout=SECONDS)) as connection:
            connection.request("GET", f"/announce?info_hash={'a' * 20}&peer_id={'b' * 20}&port=1&left=0")
            return connection.getresponse().read()

    force = Workforce(orders, listeners, tuple)
    monkeypatch.setattr(workforce, "send_orders", send)
    try:
        process = await force.start()
        async with running(process.listen):
            async with asyncio.timeout(SECONDS):
                await process.serving.wait()
                while b"8:intervali77e" not in await asyncio.to_thread(interval):
                    await asyncio.sleep(0.02)
            await force.stop()
        process.close()
    finally:
        await force.stop()


async def test_one_that_cannot_start_says_why(tmp_path: Path) -> None:
    settings = settings_on(f"unix://{tmp_path}/nobody")
    listeners = await open_listeners(settings.http.listen)
    orders = Orders(settings, f"unix://{tmp_path}/nobody", b"", (listeners[0].address,))
    try:
        with pytest.raises(StartupError, match="a web process ended with status 1"):
            async with open_workforce(orders, listeners, tuple):
                raise AssertionError("it serves")
    finally:
        listeners[0].close()


async def test_no_module_comes_out_of_the_working_directory(
    redis_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "structlog.py").write_text('raise SystemExit("taken from the working directory")')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f":{os.environ.get('PYTHONPATH', '')}:")
    settings = settings_on(redis_url)
    settings = settings.model_copy(update={"redis": settings.redis.model_copy(update={"prefix": prefix})})
    listeners = await open_listeners(settings.http.listen)
    orders = Orders(settings, redis_url, b"secret", (listeners[0].address,))
    try:
        async with open_workforce(orders, listeners, tuple) as force:
            assert force.alive == 1
    finally:
        listeners[0].close()


def test_orders_arrive_with_their_sockets() -> None:
    settings = settings_on("redis://:hunter2@127.0.0.1/1")
    orders = Orders(settings, "redis://:hunter2@127.0.0.1/1", b"\0" * 32, ("127.0.0.1:1",))
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(send_orders, ours, orders, [listener])
            received, sockets = receive_orders(theirs)
        assert received == orders
        assert [s.getsockname() for s in sockets] == [listener.getsockname()]
        sockets[0].close()


def test_a_parent_that_went_away_gives_no_orders() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, pytest.raises(EOFError):
        receive_orders(theirs)


def test_figures_cross_the_line_as_they_are() -> None:
    telemetry = Telemetry()
    telemetry.take_over({("requests",): 3}, {"announce_seconds": [0.002]})
    telemetry.gauge("in_flight", lambda: 7.0)
    assert decode_snapshot(encode_snapshot(telemetry.snapshot())) == telemetry.snapshot()
    for wrong in (b"{", b"[]", b"{}", b'{"counts": 1, "histograms": {}, "gauges": {}}'):
        with pytest.raises((ValueError, TypeError, KeyError)):
            decode_snapshot(wrong)


def test_nothing_is_known_of_processes_that_never_were() -> None:
    force = Workforce(Orders(Settings(), "", b"", ()), [], tuple)
    assert (force.alive, force.pids, force.snapshot()) == (0, [], Snapshot())
