"""Several web processes of one tracker: start, replacement, telemetry and end."""

import asyncio
import functools
import json
import os
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
from pydantic import SecretStr

from loadtest.servers import Server
from loadtest.trackers import RunningTracker
from tests.app.conftest import StartTracker
from tests.waiting import eventually, until
from tracker.app import web_processes
from tracker.app.web_process import send
from tracker.app.web_processes import (
    MAX_UNANSWERED,
    MODULE,
    WebProcess,
    WebProcessPool,
    WorkerConfig,
    decode_snapshot,
    encode_snapshot,
    open_web_processes,
    receive_config,
    send_config,
)
from tracker.errors import StartupError
from tracker.runtime.telemetry import Snapshot, Telemetry
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.public import AnnounceSettings, HttpSettings
from tracker.system.child_process import ChildProcess
from tracker.system.event_loop import new_event_loop, running
from tracker.system.listeners import open_listeners

SECONDS = 30.0


@pytest.fixture
def start_tracker(start_tracker: StartTracker) -> StartTracker:
    """With two web processes."""
    return functools.partial(start_tracker, TRACKER_HTTP__WORKERS="2")


def pids_of_web_processes(tracker: RunningTracker) -> list[int]:
    """The pids of the children that are web processes."""
    children = Path(f"/proc/{tracker.process.pid}/task/{tracker.process.pid}/children").read_text().split()
    found = []
    for pid in children:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if b"web_process" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(int(pid))
    return found


def has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


linux_only = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


@linux_only
def test_two_processes_serve_one_swarm_and_stop_together(start_tracker: StartTracker) -> None:
    tracker = start_tracker()
    pids = pids_of_web_processes(tracker)
    assert len(pids) == 2
    with ThreadPoolExecutor(8) as pool:
        replies = list(
            pool.map(lambda n: tracker.announce(peer_id=f"-TR4000-abcdefgh{n:04}", port=str(1000 + n)), range(64))
        )
    assert max(reply[b"complete"] for reply in replies) == 64
    assert tracker.end() == 0
    assert all(has_ended(pid) for pid in pids)


@pytest.mark.long
@linux_only
def test_an_option_sets_the_number_of_processes(start_tracker: StartTracker) -> None:
    tracker = start_tracker("--workers", "3")
    assert len(pids_of_web_processes(tracker)) == 3
    assert tracker.end() == 0


@pytest.mark.long
@linux_only
@pytest.mark.slow
def test_a_stopped_background_process_is_no_outage(
    start_tracker: StartTracker, start_server: Callable[..., Server]
) -> None:
    """Web processes serve without it and write the heartbeat, so seed time still counts."""
    server = start_server("--appendonly", "no")
    tracker = start_tracker(TRACKER_REDIS__URL=server.url)
    with server.client() as client:
        until(lambda: bool(client.exists("t:heartbeat")))
        tracker.send(signal.SIGSTOP)
        try:
            client.delete("t:heartbeat")
            until(lambda: bool(client.exists("t:heartbeat")))
            assert b"peers" in tracker.announce()
        finally:
            tracker.send(signal.SIGCONT)
    assert tracker.end() == 0


def ended_lines(tracker: RunningTracker) -> list[str]:
    """The complete log lines about web processes that ended."""
    *lines, _unfinished = tracker.log.split("\n")
    return [line for line in lines if "web process ended" in line]


@linux_only
def test_a_killed_process_is_replaced(start_tracker: StartTracker) -> None:
    tracker = start_tracker()
    victim, other = pids_of_web_processes(tracker)
    os.kill(victim, signal.SIGKILL)
    until(lambda: len(pids_of_web_processes(tracker)) == 2 and victim not in pids_of_web_processes(tracker))
    assert other in pids_of_web_processes(tracker)
    until(lambda: b"complete" in tracker.announce())
    until(lambda: bool(ended_lines(tracker)))  # another thread writes the log
    assert [json.loads(line)["how"] for line in ended_lines(tracker)] == ["signal 9"]
    assert tracker.end() == 0


@linux_only
@pytest.mark.slow
def test_the_admin_port_is_not_ready_when_no_web_process_serves(start_tracker: StartTracker) -> None:
    """Only the admin port can report it: requests of peers wait in the socket queues meanwhile."""
    tracker = start_tracker()
    (admin,) = re.findall(r"admin +http://(\S+?)/", tracker.banner)

    def ready() -> tuple[int, bytes]:
        connection = HTTPConnection(admin, timeout=SECONDS)
        try:
            connection.request("GET", "/ready")
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    assert ready() == (200, b"ready\n")
    for pid in pids_of_web_processes(tracker):
        os.kill(pid, signal.SIGKILL)
    until(lambda: ready() == (503, b"no web process is running\n"))
    until(lambda: ready()[0] == 200)
    assert tracker.end() == 0


@linux_only
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
@pytest.mark.slow
def test_no_process_outlives_the_tracker(start_tracker: StartTracker, number: signal.Signals) -> None:
    tracker = start_tracker()
    pids = pids_of_web_processes(tracker)
    tracker.end(number)
    until(lambda: all(has_ended(pid) for pid in pids))


@linux_only
@pytest.mark.slow
@pytest.mark.usefixtures("own_interpreter")
def test_no_secret_is_in_a_command_line_or_an_environment(
    start_tracker: StartTracker, start_server: Callable[..., Server]
) -> None:
    server = start_server("--appendonly", "no")
    with server.client() as client:
        client.config_set("requirepass", "hunter2")
    tracker = start_tracker(TRACKER_REDIS__URL=f"unix://:hunter2@{server.socket_path}")
    assert tracker.announce()[b"complete"] == 1
    for pid in pids_of_web_processes(tracker):
        for about in ("cmdline", "environ"):
            assert b"hunter2" not in Path(f"/proc/{pid}/{about}").read_bytes()
    assert tracker.end() == 0


@pytest.mark.long
@linux_only
@pytest.mark.slow
def test_a_socket_file_stays_until_the_tracker_ends(start_tracker: StartTracker, tmp_path: Path) -> None:
    path = Path(f"/tmp/swk-{os.getpid()}.sock")  # noqa: S108  # a path short enough for a socket
    tracker = start_tracker(TRACKER_HTTP__LISTEN=f"127.0.0.1:0,unix:{path}")
    (victim, _) = pids_of_web_processes(tracker)
    os.kill(victim, signal.SIGTERM)
    until(lambda: victim not in pids_of_web_processes(tracker) and len(pids_of_web_processes(tracker)) == 2)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    assert tracker.end() == 0
    assert not path.exists()


def settings_on(url: str, prefix: str = "t:", workers: int = 1) -> Settings:
    http = HttpSettings(listen=("127.0.0.1:0",), workers=workers)
    return Settings(redis=RedisSettings(url=SecretStr(url), prefix=prefix), http=http)


@asynccontextmanager
async def processes_on(
    url: str, prefix: str = "t:", workers: int = 1, config_url: str = "", secret: bytes = b"secret"
) -> AsyncIterator[WebProcessPool]:
    settings = settings_on(url, prefix, workers)
    listeners = await open_listeners(settings.http.listen)
    config = WorkerConfig(settings, config_url or url, secret, (listeners[0].address,))
    try:
        async with open_web_processes(config, listeners, tuple) as pool:
            yield pool
    finally:
        listeners[0].close()


@pytest.mark.slow
async def test_counts_outlive_their_process(redis_url: str, prefix: str) -> None:
    """The counts of an ended process stay in the sums; its gauges do not."""
    settings = settings_on(redis_url, prefix)
    listeners = await open_listeners(settings.http.listen)
    config = WorkerConfig(settings, redis_url, b"secret", tuple(listener.address for listener in listeners))
    host, _, port = listeners[0].address.rpartition(":")

    async def announce() -> bytes:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /announce?info_hash=short HTTP/1.0\r\n\r\n")
        reply = await reader.read()
        writer.close()
        return reply

    try:
        async with open_web_processes(config, listeners, tuple) as pool:
            assert pool.alive == 1
            assert b"failure reason" in await announce()
            await eventually(lambda: pool.snapshot().counts.get("requests") == 1)
            (pid,) = pool.pids
            os.kill(pid, signal.SIGKILL)
            await eventually(lambda: bool(pool.pids) and pool.pids != [pid] and pool.alive == 1)
            assert pool.snapshot().counts["requests"] == 1
            await announce()
            await eventually(lambda: pool.snapshot().counts["requests"] == 2)
        assert pool.snapshot().counts["requests"] == 2
        assert pool.alive == 0
    finally:
        for listener in listeners:
            listener.close()


@pytest.mark.slow
async def test_an_unresponsive_process_is_replaced(redis_url: str, prefix: str) -> None:
    """A stopped process keeps its sockets, and the connections that it accepted wait."""
    async with processes_on(redis_url, prefix) as pool:
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)
        pool.max_unanswered = 3
        await eventually(lambda: pid not in pool.pids)
        pool.max_unanswered = MAX_UNANSWERED  # on a busy machine a new one takes longer to reply
        await eventually(lambda: pool.alive == 1)


async def test_a_process_that_ends_before_its_configuration_is_a_startup_error() -> None:
    config = WorkerConfig(settings_on("unix:///missing"), "", b"x" * 10_000_000, ())
    pool = WebProcessPool(config, [], tuple)
    pool.module = "tracker.nothing"
    with pytest.raises(StartupError, match="a web process ended with"):
        await pool.start()
    assert pool.pids == []


@pytest.mark.long
@pytest.mark.slow
async def test_other_processes_serve_while_one_cannot_be_restarted(redis_url: str, prefix: str) -> None:
    """For example during an upgrade, when files of the package are missing for a moment."""
    async with processes_on(redis_url, prefix, 2, secret=b"x" * 1_000_000) as pool:
        victim, other = pool.pids
        with structlog.testing.capture_logs() as logs:
            pool.module = "tracker.nothing"
            os.kill(victim, signal.SIGKILL)
            await eventually(lambda: any("cannot restart a web process" in line["event"] for line in logs))
            assert pool.pids == [other]
        pool.module = MODULE
        await eventually(lambda: pool.alive == 2)


def test_a_start_that_is_cancelled_leaves_no_pipe_open(redis_url: str, prefix: str) -> None:
    """uvloop may fail to close with one, and from Python 3.12 on a forgotten writer warns."""

    async def start() -> None:
        async with processes_on(redis_url, prefix):
            raise AssertionError("the start was not cancelled in time")

    async def start_and_cancel() -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(start())
            await eventually(lambda: any("keep" in str(each.get_coro()) for each in asyncio.all_tasks()))
            task.cancel()

    with asyncio.Runner(loop_factory=new_event_loop()) as runner:
        runner.run(start_and_cancel())


async def test_a_starting_process_gets_settings_that_change_meanwhile(
    redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has received the old settings by then, and does not count as running yet."""
    settings = settings_on(redis_url, prefix)
    changed = settings.model_copy(update={"announce": AnnounceSettings(interval_seconds=77, interval_jitter=0)})
    listeners = await open_listeners(settings.http.listen)
    config = WorkerConfig(settings, redis_url, b"secret", (listeners[0].address,))
    host, _, port = listeners[0].address.rpartition(":")

    def send(*values: Any) -> None:
        send_config(*values)
        pool.apply_settings(changed)

    def interval() -> bytes:
        with closing(HTTPConnection(host, int(port), timeout=SECONDS)) as connection:
            connection.request("GET", f"/announce?info_hash={'a' * 20}&peer_id={'b' * 20}&port=1&left=0")
            return connection.getresponse().read()

    pool = WebProcessPool(config, listeners, tuple)
    monkeypatch.setattr(web_processes, "send_config", send)
    try:
        process = await pool.start()
        async with running(process.listen):
            async with asyncio.timeout(SECONDS):
                await process.serving.wait()

            async def is_changed() -> bool:
                return b"8:intervali77e" in await asyncio.to_thread(interval)

            await eventually(is_changed)
            await pool.stop()
        process.close()
    finally:
        await pool.stop()


async def test_a_process_starts_while_the_store_is_unavailable(tmp_path: Path) -> None:
    """It refuses peers with a retry time, and reconnects by itself."""
    async with processes_on(f"unix://{tmp_path}/missing") as pool:
        assert pool.alive == 1


async def test_a_process_that_cannot_start_is_a_startup_error() -> None:
    with pytest.raises(StartupError, match="a web process ended with status 1"):
        async with processes_on("redis://127.0.0.1:1/0", config_url="no URL of a store"):
            raise AssertionError("it serves")


async def test_no_module_is_imported_from_the_working_directory(
    redis_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "structlog.py").write_text('raise SystemExit("taken from the working directory")')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f":{os.environ.get('PYTHONPATH', '')}:")
    async with processes_on(redis_url, prefix) as pool:
        assert pool.alive == 1


def test_the_configuration_arrives_with_its_sockets() -> None:
    settings = settings_on("redis://:hunter2@127.0.0.1/1")
    config = WorkerConfig(settings, "redis://:hunter2@127.0.0.1/1", b"\0" * 32, ("127.0.0.1:1",))
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(send_config, ours, config, [listener])
            received, sockets = receive_config(theirs)
        assert received == config
        assert [s.getsockname() for s in sockets] == [listener.getsockname()]
        sockets[0].close()


def test_a_parent_that_ended_sends_no_configuration() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs, pytest.raises(EOFError):
        receive_config(theirs)


def test_a_snapshot_is_unchanged_after_encoding_and_decoding() -> None:
    telemetry = Telemetry()
    telemetry.add_second({("requests",): 3}, {"announce_seconds": [0.002]})
    telemetry.gauge("in_flight", lambda: 7.0)
    assert decode_snapshot(encode_snapshot(telemetry.snapshot())) == telemetry.snapshot()
    for wrong in (b"{", b"[]", b"{}", b'{"counts": 1, "histograms": {}, "gauges": {}}'):
        with pytest.raises((ValueError, TypeError, KeyError)):
            decode_snapshot(wrong)


def test_a_pool_without_processes_is_empty() -> None:
    pool = WebProcessPool(WorkerConfig(Settings(), "", b"", ()), [], tuple)
    assert (pool.alive, pool.pids, pool.snapshot()) == (0, [], Snapshot())


def test_writing_to_an_ended_process_is_no_error() -> None:
    """In both directions; uvloop raises RuntimeError for a write to a transport that has closed."""

    async def write_late() -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        process = WebProcess(ChildProcess(print, None), reader, writer, 0)
        theirs.close()
        await process.listen()
        while not writer.is_closing():  # the first write shows that the socket has closed
            process.notify(["x" * 1000])
            await asyncio.sleep(0)
        process.notify([])
        process.apply_settings(Settings())
        await send(writer, Snapshot())
        assert process.unanswered > 1

    with asyncio.Runner(loop_factory=new_event_loop()) as runner:
        runner.run(write_late())
