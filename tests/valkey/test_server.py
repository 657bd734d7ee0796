"""The private store with real processes: survival of data, ends of processes, access."""

import asyncio
import fcntl
import os
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import pytest
import uvloop
from redis import Redis as BlockingRedis
from redis.asyncio import Redis

from loadtest.servers import ROOT, Server
from tests.waiting import eventually, until, within
from tracker.errors import StartupError
from tracker.valkey.data_directory import WAIT_SECONDS
from tracker.valkey.memory import default_limit, usable_memory
from tracker.valkey.server import EmbeddedValkey

# A tracker reduced to its store. It prints the store's URL, and ends on SIGTERM.
TRACKER = """
import asyncio, signal, sys
from pathlib import Path
import uvloop
from tracker.valkey.memory import default_limit, usable_memory
from tracker.valkey.server import EmbeddedValkey

async def main():
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with EmbeddedValkey(Path(sys.argv[1]), supervised=sys.argv[3] == "supervised") as server:
        print("ready", server.url, flush=True)
        await stop.wait()

factory = uvloop.new_event_loop if sys.argv[2] == "uvloop" else None
with asyncio.Runner(loop_factory=factory) as runner:
    runner.run(main())
"""
EXPECTED = {
    "notify-keyspace-events": {"xK"},
    "appendonly": {"yes"},
    "appendfsync": {"everysec"},
    "maxmemory-policy": {"noeviction"},
    "active-expire-effort": {"5"},
    "save": {""},
    "client-output-buffer-limit": {
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 268435456 0 0",
        "normal 0 0 0 replica 268435456 67108864 60 pubsub 268435456 0 0",
    },
}
PROC = Path("/proc")
GUARD = "kernel" if sys.platform == "linux" else "supervised"
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel for a signal at the parent's death")
both_guards = pytest.mark.parametrize("guard", [pytest.param("kernel", marks=linux_only), "supervised"])
both_loops = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


class Tracker:
    """A separate process that runs a private store."""

    def __init__(self, directory: Path, loop: str = "asyncio", guard: str = GUARD) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRACKER, str(directory), loop, guard],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.url = self._read_url()
        with self.client() as client:
            self.server_pid = int(client.info("server")["process_id"])

    def client(self) -> BlockingRedis:
        return BlockingRedis.from_url(self.url)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(10)

    def _read_url(self) -> str:
        assert self.process.stdout is not None
        said = ""
        for line in self.process.stdout:  # the log goes there too
            said += line
            if line.startswith("ready "):
                return line.split()[1]
        raise AssertionError(f"the tracker ended: {said}")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def open_directory(directory: Path) -> Path:
    directory.mkdir()
    directory.chmod(0o755)
    return directory


@pytest.fixture
def run() -> Iterator[Callable[..., Tracker]]:
    trackers: list[Tracker] = []

    def start(*arguments: object) -> Tracker:
        trackers.append(Tracker(*arguments))  # type: ignore[arg-type]
        return trackers[-1]

    yield start
    for tracker in trackers:
        tracker.process.kill()
        tracker.process.communicate()
        wait_until_gone(tracker.server_pid, seconds=10)


@asynccontextmanager
async def client_of(server: EmbeddedValkey) -> AsyncIterator[Redis]:
    async with Redis.from_url(server.url) as client:
        yield client


@contextmanager
def lock_held(path: Path) -> Iterator[int]:
    path.parent.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield lock


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def size_of(path: Path) -> int:
    return path.stat().st_size


def exists(path: Path) -> bool:
    return path.exists()


def appended_to(directory: Path) -> int:
    return sum(size_of(path) for path in directory.glob("appendonlydir/*.incr.aof"))


def everything_in(directory: Path) -> list[Path]:
    return [directory, *directory.rglob("*")]


def append_only_file(directory: Path) -> Path:
    return next(directory.glob("appendonlydir/*.incr.aof"))


def wait_until_gone(pid: int, seconds: float) -> None:
    until(lambda: not is_alive(pid), seconds)


def is_alive(pid: int) -> bool:
    """Whether the process has ended; a zombie has."""
    try:
        os.kill(pid, 0)
        return not PROC.exists() or (PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


# Survival of data


async def test_the_server_answers_while_the_tracker_is_blocked(directory: Path) -> None:
    """Importing modules takes a second, and loading data may take longer: both happen at the same time."""
    server, seen = EmbeddedValkey(directory), []
    await server.start(lambda: seen.append(server.pid))
    async with server:
        assert seen == [server.pid]


async def test_data_survives_stop_and_start(directory: Path) -> None:
    for expected in (1, 2, 3):
        async with EmbeddedValkey(directory) as server, client_of(server) as client:
            assert await client.incr("starts") == expected


@pytest.mark.parametrize("seconds", [60, 0], ids=["finished", "cut off"])
async def test_a_large_append_only_file_is_compacted_at_the_stop(directory: Path, seconds: float) -> None:
    async with EmbeddedValkey(directory) as server:
        async with client_of(server) as client:
            for _ in range(20):
                await client.set("key", b"x" * 1_000_000)
            await eventually(lambda: appended_to(directory) > 20_000_000)
        await server.compact(seconds)
        assert not seconds or appended_to(directory) < 1_000_000
    async with EmbeddedValkey(directory) as server, client_of(server) as client:
        assert await client.strlen("key") == 1_000_000


async def test_the_memory_of_the_data_is_limited(directory: Path) -> None:
    """To a share of the usable memory by default, else to the setting; 0 is no limit."""
    async with EmbeddedValkey(directory) as server, client_of(server) as client:
        limit = int((await client.config_get("maxmemory"))["maxmemory"] or 0)
        assert limit == default_limit(0, usable_memory())
        assert (await client.config_get("maxmemory-policy"))["maxmemory-policy"] == "noeviction"
    for megabytes in (100, 0):
        async with EmbeddedValkey(directory, max_memory_mb=megabytes) as server, client_of(server) as client:
            assert int((await client.config_get("maxmemory"))["maxmemory"] or 0) == megabytes * 2**20


async def test_the_limit_grows_with_the_data(directory: Path) -> None:
    """A store larger than its share at the start still accepts joins."""
    small = partial(default_limit, usable=0, min_bytes=2**20)
    async with EmbeddedValkey(directory, max_memory_mb=0) as server, client_of(server) as client:
        await client.set("key", b"x" * 20_000_000)
    async with EmbeddedValkey(directory, memory_limit=small) as server, client_of(server) as client:
        limit = int((await client.config_get("maxmemory"))["maxmemory"] or 0)
        assert 25_000_000 <= limit < 40_000_000
        await client.set("another", b"x" * 1_000_000)


async def test_a_small_append_only_file_is_not_compacted(directory: Path) -> None:
    async with EmbeddedValkey(directory) as server, client_of(server) as client:
        await client.set("key", b"x" * 1_000_000)
        await eventually(lambda: appended_to(directory) > 1_000_000)
        before = everything_in(directory)
        await server.compact(60)
        assert everything_in(directory) == before


@both_guards
@both_loops
def test_data_survives_sigkill_and_the_next_tracker_starts_at_once(
    directory: Path, run: Callable[..., Tracker], loop: str, guard: str
) -> None:
    first = run(directory, loop, guard)
    with first.client() as client:
        client.set("kept", "yes")
    first.end(signal.SIGKILL)
    second = run(directory, loop, guard)
    with second.client() as client:
        assert client.get("kept") == b"yes"
    assert second.server_pid != first.server_pid


@both_loops
def test_data_survives_ctrl_c(directory: Path, run: Callable[..., Tracker], loop: str) -> None:
    first = run(directory, loop)
    with first.client() as client:
        client.set("kept", "yes")
    os.killpg(first.process.pid, signal.SIGINT)  # as a terminal does, to the whole foreground group
    assert first.process.wait(10) == 0
    assert not is_alive(first.server_pid)
    with run(directory, loop).client() as client:
        assert client.get("kept") == b"yes"


async def test_a_dead_server_is_restarted_with_its_data(directory: Path) -> None:
    async with EmbeddedValkey(directory) as server:
        url, pid = server.url, server.pid
        async with client_of(server) as client:
            await client.set("kept", "yes")
        async with asyncio.TaskGroup() as tasks:
            supervisor = tasks.create_task(server.supervise())
            os.kill(pid, signal.SIGKILL)

            async def is_back() -> bool:
                return await server.is_running() and server.pid != pid

            await eventually(is_back)
            assert server.url == url
            async with client_of(server) as client:
                assert await client.get("kept") == b"yes"
            supervisor.cancel()


async def test_the_end_of_the_server_is_described(directory: Path) -> None:
    async with EmbeddedValkey(directory) as server:
        os.kill(server.pid, signal.SIGKILL)
        assert (await server.wait_for_end()).startswith("ended with signal 9, saying: ")


async def test_a_stopped_server_is_not_restarted(directory: Path) -> None:
    server = EmbeddedValkey(directory)
    await server.start()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.supervise())
        await asyncio.sleep(0)
        await server.stop()
    assert not await server.is_running()


async def test_a_half_written_last_command_is_dropped(directory: Path) -> None:
    async with EmbeddedValkey(directory) as server, client_of(server) as client:
        await client.set("first", "kept")
        await client.set("last", "cut")
    log = append_only_file(directory)
    os.truncate(log, size_of(log) - 3)
    async with EmbeddedValkey(directory) as server, client_of(server) as client:
        assert await client.mget("first", "last") == [b"kept", None]


async def test_damaged_data_is_refused_with_the_servers_message(directory: Path) -> None:
    async with EmbeddedValkey(directory) as server, client_of(server) as client:
        await client.set("a", "x" * 100)
        await client.set("b", "y" * 100)
    log = append_only_file(directory)
    log.write_bytes(log.read_bytes().replace(b"$100", b"#oops"))
    with pytest.raises(
        StartupError,
        match=r"^the private store did not start: it ended with status 1, saying: .*Bad file format.*docs/backup\.md",
    ):
        await EmbeddedValkey(directory).start()
    log.write_bytes(b"")  # a refused start has released its locks
    async with EmbeddedValkey(directory):
        pass


# Ends of processes


@both_guards
@both_loops
def test_the_server_does_not_outlive_a_killed_tracker(
    directory: Path, run: Callable[..., Tracker], loop: str, guard: str
) -> None:
    tracker = run(directory, loop, guard)
    tracker.end(signal.SIGKILL)
    wait_until_gone(tracker.server_pid, seconds=5)


@both_guards
@both_loops
def test_a_stopping_tracker_stops_its_server(
    directory: Path, run: Callable[..., Tracker], loop: str, guard: str
) -> None:
    tracker = run(directory, loop, guard)
    assert tracker.end(signal.SIGTERM) == 0
    assert not is_alive(tracker.server_pid)
    assert not (directory / "valkey.sock").exists()


@pytest.mark.parametrize("supervised", [pytest.param(False, marks=linux_only), True])
async def test_a_server_that_does_not_stop_is_killed(directory: Path, supervised: bool) -> None:
    async with EmbeddedValkey(directory, stop_seconds=0.1, supervised=supervised) as server:
        async with client_of(server) as client:
            pid = int((await client.info("server"))["process_id"])
        os.kill(pid, signal.SIGSTOP)
    await asyncio.to_thread(wait_until_gone, pid, seconds=5)


async def test_the_server_has_its_own_session(directory: Path) -> None:
    async with EmbeddedValkey(directory) as server:
        assert os.getsid(server.pid) != os.getsid(0)


async def test_a_cancelled_start_leaves_no_process(directory: Path) -> None:
    with lock_held(directory / "server.lock") as lock:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await EmbeddedValkey(directory).start()
        os.close(lock)
    async with EmbeddedValkey(directory):
        pass


@both_loops
def test_it_runs_on_both_event_loops(directory: Path, loop: str) -> None:
    async def main() -> None:
        async with EmbeddedValkey(directory) as server, client_of(server) as client:
            assert await client.ping()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
        runner.run(main())


# Access


async def test_a_second_tracker_on_the_same_data_is_refused_at_once(directory: Path) -> None:
    async with EmbeddedValkey(directory) as server:
        with (
            within(WAIT_SECONDS / 2),
            pytest.raises(StartupError, match=rf"is in use by another tracker \(pid {os.getpid()}\)"),
        ):
            await EmbeddedValkey(directory).start()
        assert await server.is_running()


async def test_commands_find_the_running_server(directory: Path) -> None:
    other = EmbeddedValkey(directory)
    assert not await other.is_running()
    async with EmbeddedValkey(directory) as server:
        assert await other.is_running()
        assert other.url == server.url
    assert not await other.is_running()


async def test_a_start_waits_for_the_end_of_the_last_server(directory: Path) -> None:
    server = EmbeddedValkey(directory)
    with lock_held(directory / "server.lock") as lock:
        async with asyncio.TaskGroup() as tasks:
            start = tasks.create_task(server.start())
            await eventually((directory / "tracker.lock").exists)
            await asyncio.sleep(0)
            assert not start.done()
            os.close(lock)
    assert await server.is_running()
    await server.stop()


async def test_only_its_owner_can_read_the_data(directory: Path) -> None:
    async with EmbeddedValkey(directory) as server, client_of(server) as client:
        await client.set("a", 1)
        assert [path for path in everything_in(directory) if mode_of(path) & 0o077] == []
        assert mode_of(directory) == mode_of(directory / "valkey.sock") == 0o700
        assert await client.config_get("port") == {"port": "0"}


async def test_an_empty_directory_becomes_private(open_directory: Path) -> None:
    async with EmbeddedValkey(open_directory):
        assert mode_of(open_directory) == 0o700


async def test_a_directory_that_holds_other_things_keeps_its_mode(open_directory: Path) -> None:
    (open_directory / "somebody-elses").touch()
    async with EmbeddedValkey(open_directory):
        assert mode_of(open_directory) == 0o755


@pytest.mark.parametrize("name", ["n" * 200, "with a space, 'quotes' and ?#%41", "ünïcödé"])
async def test_any_directory_name_is_usable(tmp_path: Path, name: str) -> None:
    server = EmbeddedValkey(tmp_path / name)
    async with server, client_of(server) as client:
        await client.set("kept", "yes")
        path = Path(str(client.connection_pool.connection_kwargs["path"]))
        assert mode_of(path.parent) == 0o700
        assert await EmbeddedValkey(tmp_path / name).is_running()
    assert not exists(path)
    assert path.parent == tmp_path / name or not exists(path.parent)
    async with EmbeddedValkey(tmp_path / name) as again, client_of(again) as client:
        assert await client.get("kept") == b"yes"


async def test_a_directory_that_cannot_be_created_is_one_error_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StartupError, match=r"^cannot use data directory .*file/data: Not a directory$"):
        await EmbeddedValkey(tmp_path / "file" / "data").start()
    with pytest.raises(StartupError, match=r"^cannot use data directory .*/file: not a directory$"):
        await EmbeddedValkey(tmp_path / "file").start()


async def test_a_system_without_a_binary_is_one_error_line(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "sparc")
    with pytest.raises(StartupError, match=r"^no private store for this system .*: set TRACKER_REDIS__URL$"):
        await EmbeddedValkey(directory).start()


# redis.conf


async def test_the_embedded_server_runs_with_redis_conf(directory: Path) -> None:
    async with EmbeddedValkey(directory) as server, client_of(server) as client:
        in_force = {name: (await client.config_get(name))[name] for name in EXPECTED}
    assert {name: value for name, value in in_force.items() if value not in EXPECTED[name]} == {}


@pytest.mark.parametrize("binary", ["valkey", "redis-server"])
def test_redis_conf_works_for_an_external_server(start_server: Callable[..., Server], binary: str) -> None:
    with start_server(binary=binary).client() as client:
        in_force = {name: client.config_get(name)[name] for name in EXPECTED}
    assert {name: value for name, value in in_force.items() if value not in EXPECTED[name]} == {}
