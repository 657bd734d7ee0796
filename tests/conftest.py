"""Fixtures for all tests: real servers, clients, key prefixes, and a check for leaked tasks and processes.

Options: `--long` adds the tests marked long, `--serial without|only` selects by the mark `serial`,
`--hypothesis-profile long` tries many more examples (tests/examples.py).

    redis_url      the session's valkey-server, as a URL (unix socket, database 0)
    redis          an asyncio client to it: replies in bytes, no retries
    prefix         a unique key prefix; its keys are deleted after the test
    debian_redis   the system's redis-server with redis.conf, TCP and TLS; skips the test if there is none
    any_server     redis_url's Server; in tests/store the test runs a second time with the system's redis-server
    start_server   starts servers that the test may stop, kill and restart (see loadtest/servers.py)
    short_directory   a directory for sockets
    keys           a blocking client to redis_url, for tests that are not coroutines
    tracker        runs one command of the command line on redis_url and prefix, in a new directory
    nodes          a cluster of three nodes without persistence; None first, for the same test on redis_url
    own_interpreter   trackers are started as operators start them, not forked (tests/fork_server.py)

All tests share the session's servers. A test that changes one (CONFIG SET) restores it, or starts its own.
"""

import asyncio
import gc
import inspect
import itertools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from loadtest import trackers
from loadtest.cluster import Cluster, cluster
from loadtest.databases import Database
from loadtest.servers import SYSTEM_REDIS, Server, start_system_redis, start_valkey
from tests import examples, fork_server
from tests.commands import Command, command, set_store

examples.register_profiles()
NO_PERSISTENCE = ("--appendonly", "no")
_prefixes = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("which tests")
    group.addoption("--long", action="store_true", help="also the tests marked long")
    group.addoption("--serial", choices=("with", "without", "only"), default="with", help="the tests marked serial")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collects without Python's garbage collector, which would search the growing list of tests again and again, and
    leaves the list out of its later searches, which are as rare as in a tracker: with Python's defaults they took a
    sixth of the CPU time of tests. Each process saves 3 of 8 seconds of it here, and more later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 20, 50)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of the serial tests alone, files without one need not be imported."""
    if config.getoption("--serial") == "only" and collection_path.suffix == ".py":
        return True if "mark.serial" not in collection_path.read_text(encoding="utf-8") else None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes the tests that the options exclude. They are not counted as deselected."""
    serial, wants_long = config.getoption("--serial"), config.getoption("--long")
    kept = {"with": (True, False), "without": (False,), "only": (True,)}[serial]
    items[:] = [item for item in items if bool(item.get_closest_marker("serial")) in kept]
    if not wants_long:
        again = _only_long_on_the_second_server(items)
        items[:] = [item for item in items if not item.get_closest_marker("long") and item not in again]


def _only_long_on_the_second_server(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """On the system's redis-server a test runs once, with the first of its parameters, and not if it is slow or of
    several shards: that is enough to show that the server runs the scripts alike."""
    found, shown = set[pytest.Item](), set[str]()
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if parameters.get("any_server") == "debian_redis":
            several, name = parameters.get("shards", 1) != 1, item.nodeid.partition("[")[0]
            if several or item.get_closest_marker("slow") or item.get_closest_marker("long") or name in shown:
                found.add(item)
            else:
                shown.add(name)
    return found


@pytest.fixture(scope="session")
def servers() -> Iterator[list[Server]]:
    """The servers of the session, in the order of their start."""
    running: list[Server] = []
    yield running
    for server in running:
        server.stop()


@pytest.fixture(scope="session")
def databases() -> list[Database]:
    """The database servers of the session."""
    return []


@pytest.fixture(scope="session")
def valkey(servers: list[Server]) -> Iterator[Server]:
    with temporary_directory() as directory:
        servers.append(start_valkey(directory, *NO_PERSISTENCE))
        yield servers[-1]


@pytest.fixture(scope="session")
def debian_redis(servers: list[Server]) -> Iterator[Server]:
    if SYSTEM_REDIS is None:
        pytest.skip("no redis-server on this system")
    with temporary_directory() as directory:
        servers.append(start_system_redis(directory, *NO_PERSISTENCE))
        yield servers[-1]


@pytest.fixture
def any_server(valkey: Server) -> Server:
    return valkey


@pytest.fixture
def start_server() -> Iterator[Callable[..., Server]]:
    """Starts servers with command-line options; persistence is on as in redis.conf. They are stopped after the test."""
    with temporary_directory() as top:
        started: list[Server] = []

        def start(*options: str, binary: str = "valkey") -> Server:
            (directory := top / str(len(started))).mkdir()
            if binary != "valkey" and SYSTEM_REDIS is None:
                pytest.skip("no redis-server on this system")
            make = start_valkey if binary == "valkey" else start_system_redis
            started.append(make(directory, *options))
            return started[-1]

        yield start
        for server in started:
            server.kill()


@pytest.fixture(scope="session", autouse=True)
def forked_trackers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if sys.platform == "linux":
            patch.setattr(trackers, "starter", fork_server.Forked)
        yield
    fork_server.SERVER.stop()


@pytest.fixture
def own_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "starter", subprocess.Popen)


@pytest.fixture
def redis_url(valkey: Server) -> str:
    return valkey.url


@pytest.fixture(scope="module", params=["one server", pytest.param("cluster", marks=pytest.mark.slow)])
def nodes(request: pytest.FixtureRequest) -> Iterator[Cluster | None]:
    if request.param == "one server":
        yield None
        return
    with cluster() as nodes:
        nodes.be_patient()
        yield nodes


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    never = Retry(NoBackoff(), 0)
    async with Redis.from_url(redis_url, retry=never, decode_responses=False, driver_info=None) as client:
        yield client


@pytest.fixture(scope="session")
def clients() -> Iterator[dict[str, "BlockingRedis"]]:
    """By URL, a client of each of the session's servers, to clean up: a new one for each test takes its time."""
    opened: dict[str, BlockingRedis] = {}
    yield opened
    for client in opened.values():
        client.close()


@pytest.fixture
def prefix(servers: list[Server], clients: dict[str, "BlockingRedis"]) -> Iterator[str]:
    name = f"x{next(_prefixes)}:"
    yield name
    for server in servers:
        client = clients.get(server.url) or clients.setdefault(server.url, server.client())
        if keys := list(client.scan_iter(f"{name}*", 10_000)):
            client.unlink(*keys)


@pytest.fixture
def keys(valkey: Server) -> Iterator["BlockingRedis"]:
    with valkey.client() as client:
        yield client


@pytest.fixture
def tracker(redis_url: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    set_store(monkeypatch, redis_url, prefix)
    monkeypatch.chdir(tmp_path)
    with command() as run:
        yield run


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """With a short path, as sockets need it."""
    path = Path(tempfile.mkdtemp(prefix="sk-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A private directory with a short path: sockets in pytest's own directories exceed the system's limit."""
    with temporary_directory() as path:
        yield path


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a task or a child process running. It is set up first, so it is torn down last."""
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        request.getfixturevalue("no_task_left_behind")
    running: list[Server] = request.getfixturevalue("servers")
    databases: list[Database] = request.getfixturevalue("databases")
    before = _children()
    yield
    known = {server.pid for server in running} | {server.pid for server in databases} | fork_server.SERVER.pids
    left = _children() - before - known
    assert not left, f"child processes left behind: {[_command_line(pid) for pid in left]}"


@pytest.fixture
async def no_task_left_behind() -> AsyncIterator[None]:
    yield
    me = asyncio.current_task()
    for _ in range(20):  # closing may take a few turns of the event loop
        left = {task for task in asyncio.all_tasks() if task is not me}
        if not left:
            return
        await asyncio.sleep(0.005)
    pytest.fail(f"tasks left behind: {left}")


def _children() -> set[int]:
    """The child processes; none on a system that does not list them. A thread that ends passes its children to another
    one, so the list is read again."""
    if sys.platform != "linux":
        return set()
    for _ in range(100):
        with suppress(OSError):
            threads = Path("/proc/self/task").iterdir()
            return {int(pid) for thread in threads for pid in (thread / "children").read_text().split()}
    return set()


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return f"pid {pid}, gone by now"
