"""The measured servers: this tracker in several configurations, constant servers, and other trackers."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType

import redis

from loadtest.bench import processes
from loadtest.bench.baseline import ANSWER
from loadtest.bench.loader import PIPELINED, BenchError
from loadtest.bench.population import info_hash_of
from loadtest.geoip_databases import LONDON, make_city
from loadtest.servers import free_port

MODES = ("keep-alive", "close")
"""Connection modes: many requests per connection, or one."""
NPM = Path(__file__).with_name("npm")
CACHE = Path(os.environ.get("BENCH_CACHE") or Path(tempfile.gettempdir()) / "swarmkeeper-bench")
"""Cache of npm packages."""
_NGINX = """
daemon off; master_process off; pid {directory}/nginx.pid; error_log stderr;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 1000000000; default_type text/plain;
  client_body_temp_path {directory}; proxy_temp_path {directory}; fastcgi_temp_path {directory};
  uwsgi_temp_path {directory}; scgi_temp_path {directory};
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location = /announce {{ return 200 "{answer}"; }}
    location = /scrape {{ return 200 "{answer}"; }}
  }}
}}
"""


@dataclass(slots=True)
class Target:
    """A server under test. ``sent`` remembers where in the round of requests its next run begins.

    With ``spread`` it runs on all cores, and shares them with the load; else on one of its own.
    """

    name: str
    port: int
    pids: list[int]
    store: "redis.Redis | None" = None
    spread: bool = False
    modes: tuple[str, ...] = MODES
    at_once: int = PIPELINED
    is_tracker: bool = True
    sent: int = 0
    answer_bytes: dict[str, float] = field(default_factory=dict)


Start = Callable[[Path, int], AbstractContextManager[Target]]
"""Starts it in its own directory, for this many torrents."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Something to measure; ``missing``: how to install what it needs, or empty."""

    name: str
    group: str
    start: Start
    missing: Callable[[], str] = str


@contextlib.contextmanager
def everything_on(directory: Path) -> Iterator[dict[str, str]]:
    """Enables features that are off by default: GeoIP, and a StatsD server that reads nothing."""
    database = make_city(directory / "places.mmdb", {"127.0.0.0/8": LONDON})
    with socket.socket(type=socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{statsd.getsockname()[1]}"
        yield {"TRACKER_GEOIP__DATABASE": str(database), "TRACKER_STATSD__ADDRESS": address}


@contextlib.contextmanager
def tracker(
    directory: Path,
    torrents: int,
    *,
    name: str,
    file: bool,
    workers: int,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Target]:
    """`tracker serve` with everything on; without ``file`` on a store that writes no append-only file.

    ``more`` are further settings.
    """
    with contextlib.ExitStack() as stack:
        settings = stack.enter_context(everything_on(directory)) | {"TRACKER_HTTP__WORKERS": str(workers)} | dict(more)
        if file:
            pid, port = stack.enter_context(processes.tracker(directory, **settings))
            pids, path = [pid], embedded_socket(directory)
        else:
            store_pid, path = stack.enter_context(processes.store(directory))
            settings["TRACKER_REDIS__URL"] = f"unix://{path}"
            pid, port = stack.enter_context(processes.tracker(directory, **settings))
            pids = [pid, store_pid]
        store = redis.Redis(unix_socket_path=str(path))
        stack.callback(store.close)
        yield Target(name, port, pids, store, spread=workers > 1)


def embedded_socket(directory: Path) -> Path:
    for path in directory.rglob("*"):
        if path.is_socket():
            return path
    raise BenchError("the embedded store has no unix socket below the data directory")


@contextlib.contextmanager
def constant_python(directory: Path, torrents: int, *, name: str, bare: bool) -> Iterator[Target]:
    port = free_port()
    command = [sys.executable, "-m", "loadtest.bench.baseline", "--port", str(port), *(["--bare"] if bare else [])]
    with _serving(name, command, directory, port) as target:
        target.is_tracker = False
        yield target


@contextlib.contextmanager
def constant_nginx(directory: Path, torrents: int, *, name: str) -> Iterator[Target]:
    port, configuration = free_port(), directory / "nginx.conf"
    configuration.write_text(_NGINX.format(directory=directory, port=port, answer=ANSWER))
    command = [find("nginx") or "nginx", "-e", "stderr", "-c", str(configuration)]
    with _serving(name, command, directory, port) as target:
        target.is_tracker = False
        yield target


@contextlib.contextmanager
def opentracker(directory: Path, torrents: int, *, name: str) -> Iterator[Target]:
    """Debian's is built to serve listed torrents only, and to close each connection after its answer."""
    port = free_port()
    directory.chmod(0o755)  # as root it becomes another user
    (directory / "allowed").write_text("".join(f"{info_hash_of(n).hex()}\n" for n in range(torrents)))
    options = ["-i", "127.0.0.1", "-p", str(port), "-P", str(port), "-d", str(directory), "-w", "allowed"]
    with _serving(name, [find("opentracker") or "opentracker", *options], directory, port) as target:
        target.modes, target.at_once = ("close",), 0
        yield target


@contextlib.contextmanager
def npm_tracker(directory: Path, torrents: int, *, name: str, udp: bool = False) -> Iterator[Target]:
    """bittorrent-tracker with its defaults, of the versions that bench/npm/ pins; over HTTP, or also over UDP."""
    install_npm()
    port = free_port()
    command = [find("node") or "node", str(CACHE / "npm" / "serve.mjs"), str(port), *(["udp"] if udp else [])]
    with _serving(name, command, directory, port) as target:
        yield target


def install_npm(source: Path = NPM, *omitted: str) -> Path:
    """The folder where npm's packages are, of the versions that ``source`` pins, beside the scripts of ``source``;
    raises BenchError if npm cannot install them. ``omitted``: kinds of packages, by default optional ones."""
    folder, lock = CACHE / source.name, "package-lock.json"
    stamp = folder / ".installed"
    if stamp.exists() and stamp.read_bytes() == (source / lock).read_bytes():
        for script in source.glob("*.mjs"):
            shutil.copy(script, folder)
        return folder
    shutil.copytree(source, folder, dirs_exist_ok=True)
    kinds = [f"--omit={kind}" for kind in omitted or ("optional",)]
    words = ["ci", "--ignore-scripts", *kinds, "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(["npm", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"npm could not install {source.name}:\n{done.stderr[-1000:]}")
    shutil.copy(folder / lock, stamp)
    return folder


@contextlib.contextmanager
def _serving(name: str, command: list[str], directory: Path, port: int) -> Iterator[Target]:
    with processes.running(name, command, directory) as pid:
        processes.wait_until_listening(pid, port)
        yield Target(name, port, [pid])


def find(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path="/usr/sbin")


def _missing(*programs: str, package: str) -> str:
    return "" if all(map(find, programs)) else f"apt install {package}"


def _tracker_kind(words: str, *, file: bool, workers: int) -> Kind:
    name = f"this tracker, {words}"
    return Kind(name, "tracker", partial(tracker, name=name, file=file, workers=workers))


YARDSTICK = "nginx, a constant answer"
FIRST = _tracker_kind("no append-only file", file=False, workers=1)
KINDS = (
    FIRST,
    _tracker_kind("append-only file", file=True, workers=1),
    _tracker_kind("no append-only file, 2 workers", file=False, workers=2),
    _tracker_kind("append-only file, 2 workers", file=True, workers=2),
    Kind(
        YARDSTICK,
        "constants",
        partial(constant_nginx, name=YARDSTICK),
        partial(_missing, "nginx", package="nginx-light"),
    ),
    Kind(
        "asyncio.Protocol, a constant answer",
        "constants",
        partial(constant_python, name="asyncio.Protocol, a constant answer", bare=True),
    ),
    Kind(
        "aiohttp, a constant answer",
        "constants",
        partial(constant_python, name="aiohttp, a constant answer", bare=False),
    ),
    Kind(
        "opentracker",
        "others",
        partial(opentracker, name="opentracker"),
        partial(_missing, "opentracker", package="opentracker"),
    ),
    Kind(
        "bittorrent-tracker (npm)",
        "others",
        partial(npm_tracker, name="bittorrent-tracker (npm)"),
        partial(_missing, "node", "npm", package="nodejs npm"),
    ),
)
