"""Faults of the store: its connections, its scripts, its data, its memory and its disk."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis.asyncio import Redis

from loadtest.chaos.environment import REAP_SECONDS, Environment, ExperimentError, until
from loadtest.chaos.experiment import PAUSED_SECONDS, Skipped, experiment
from loadtest.chaos.inspection import members_of
from loadtest.clients.load import AnnounceResult, Load
from loadtest.servers import Server
from tracker.valkey.server import server_binary

TMPFS_BYTES = 24 * 2**20
FULL_SECONDS = 6.0


def own_store(environment: Environment) -> None:
    """An external store with redis.conf and an append-only file."""
    environment.start_server()
    environment.add_tracker()


def on_a_small_disk(environment: Environment) -> None:
    """The private store's data on its own file system."""
    folder = environment.directory / "tracker0" / "data"
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES},mode=700", "tmpfs", str(folder)]
    mounted = shutil.which("mount") and subprocess.run(command, capture_output=True, check=False)
    if not mounted or mounted.returncode:
        raise Skipped("mounting a tmpfs needs root")
    environment.add_cleanup(lambda: subprocess.run(["umount", "-l", str(folder)], check=False))
    environment.add_tracker()


@experiment("connections-killed")
async def connections_killed(environment: Environment, _: Load) -> None:
    """CLIENT KILL of every connection to the store, three times in a second."""
    with environment.store() as store:
        for _again in range(3):
            store.client_kill_filter(_type="pubsub")
            store.client_kill_filter(_type="normal", skipme=True)
            await asyncio.sleep(0.3)


@experiment("scripts-flushed")
async def scripts_flushed(environment: Environment, _: Load) -> None:
    """SCRIPT FLUSH, ten times in two seconds."""
    with environment.store() as store:
        for _again in range(10):
            store.script_flush()
            await asyncio.sleep(0.2)


@experiment("store-restarted", prepare=own_store)
async def store_restarted(environment: Environment, _: Load) -> None:
    """An external store is killed, and restarted after 3 s with its append-only file."""
    server = _server(environment)
    server.kill()
    await asyncio.sleep(3.0)
    server.start()


@experiment("store-emptied", prepare=own_store, may_lose=None, keeps_active_peers=False, settles_seconds=PAUSED_SECONDS)
async def store_emptied(environment: Environment, _: Load) -> None:
    """An external store is killed, and restarted empty after 3 s."""
    server = _server(environment)
    server.kill()
    await asyncio.sleep(3.0)
    shutil.rmtree(server.directory / "appendonlydir")
    server.start()


@experiment("file-cut-off", prepare=own_store, may_lose=200, keeps_active_peers=False, settles_seconds=PAUSED_SECONDS)
async def file_cut_off(environment: Environment, _: Load) -> None:
    """The store is killed, and the last second of its append-only file is cut off
    in the middle of a command, as after a power failure."""
    server = _server(environment)
    file = _commands(server.directory)
    keep = file.stat().st_size + 7
    await asyncio.sleep(1.0)
    server.kill()
    if file.stat().st_size <= keep:
        raise ExperimentError("nothing was written to the append-only file")
    os.truncate(file, keep)
    server.start()


@experiment("file-broken", heals_seconds=30.0, may_lose=2000, keeps_active_peers=False, settles_seconds=PAUSED_SECONDS)
async def file_broken(environment: Environment, load: Load) -> None:
    """The private store is killed, and its append-only file is damaged in the middle;
    after 8 s the damaged end is cut off by hand."""
    os.kill(environment.tracker.pid, signal.SIGSTOP)  # so that the store does not restart before its file is damaged
    os.kill(environment.store_pid, signal.SIGKILL)
    file = _commands(environment.data)
    middle = file.stat().st_size * 9 // 10
    with file.open("r+b") as data:
        data.seek(middle)
        data.write(b"\x00broken\x00" * 8)
    os.kill(environment.tracker.pid, signal.SIGCONT)
    await asyncio.sleep(8.0)
    _none_answered(load, 4.0)
    for text in ("private store cannot be restarted", "Bad file format", "docs/backup.md"):
        if text not in environment.tracker.log:
            raise ExperimentError(f"the log does not contain {text!r}")
    _repair(environment.data)


@experiment("disk-full", prepare=on_a_small_disk)
async def disk_full(environment: Environment, load: Load) -> None:
    """The disk of the private store is full for 6 s."""
    with _filled_disk(environment.data / "ballast"), environment.store() as store:
        await until(lambda: store.info("persistence")["aof_last_write_status"] == "err", 10.0, "the disk is full")
        await asyncio.sleep(FULL_SECONDS)
        _none_answered(load, 3.0)


@experiment("memory-full")
async def memory_full(environment: Environment, load: Load) -> None:
    """maxmemory is reached for two reap intervals: joins are refused, updates and stops work, and peers time out."""
    with environment.store() as store:
        store.config_set("maxmemory", store.info("memory")["used_memory"] - 2**20)
        full = time.monotonic()
        await asyncio.sleep(2 * REAP_SECONDS)
        now = time.monotonic()
        silent = [p for p in load.departed if p.leaves == "silent" and p.last_answer < now - 2 * REAP_SECONDS]
        stopped = [p for p in load.departed if p.leaves == "stopped"]
        async with Redis.from_url(environment.store_url) as redis:
            there = {info_hash: await members_of(redis, info_hash) for info_hash in load.acknowledged}
        store.config_set("maxmemory", 0)
    for kind, departed in (("silent", silent), ("stopped", stopped)):
        stay = sum(peer.peer_id in there[peer.info_hash] for peer in departed)
        if stay or not departed:
            raise ExperimentError(f"{stay} of {len(departed)} {kind} peers stay while memory is full")
    since = [result for result in load.results if result.sent > full + 0.5]
    _all_were(since, "started", "refused")
    _all_were(since, "", "answered")
    _all_were(since, "stopped", "answered")


def _all_were(results: list[AnnounceResult], event: str, kind: str) -> None:
    others = [one for one in results if one.event == event and one.kind != kind]
    if others or not any(one.event == event for one in results):
        raise ExperimentError(f"announces with event {event!r} must be {kind}: {len(others)} were not, {others[:1]}")


def _none_answered(load: Load, seconds: float) -> None:
    """Asserts that there were announces in the last ``seconds``, and that none was answered."""
    since = time.monotonic() - seconds
    results = [one for one in load.results if one.sent > since]
    answered = sum(one.kind == "answered" for one in results)
    if answered or not results:
        raise ExperimentError(
            f"{answered} of {len(results)} announces were answered, although the store could not keep them"
        )


def _server(environment: Environment) -> Server:
    assert environment.server is not None
    return environment.server


def _commands(directory: Path) -> Path:
    """The incremental part of the append-only file."""
    return max((directory / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)


def _repair(directory: Path) -> None:
    """Truncates the file at the first damaged command, with the server's own program, as docs/backup.md says."""
    done = subprocess.run(
        ["valkey-check-aof", "--fix", str(_commands(directory))],
        executable=server_binary(),
        input=b"y\n",
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise ExperimentError(f"the file could not be repaired: {done.stdout[-300:]!r}")


@contextmanager
def _filled_disk(path: Path) -> Iterator[None]:
    """Fills the file system inside the block."""
    try:
        with path.open("wb", buffering=0) as file:
            for size in (2**20, 2**12, 1):
                while True:
                    try:
                        if not file.write(b"\x00" * size):
                            break
                    except OSError:
                        break
        yield
    finally:
        path.unlink(missing_ok=True)
