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

from drills.drill import Skipped, drill
from drills.fleet import Fleet, Heard
from drills.inspection import members_of
from drills.scene import REAP_SECONDS, DrillError, Scene, until
from tests.servers import Server
from tracker.valkey import server_binary

TMPFS_BYTES = 24 * 2**20
FULL_SECONDS = 6.0


def own_store(scene: Scene) -> None:
    """A store that outlives the tracker, with redis.conf and its append-only file."""
    scene.start_server()
    scene.add_tracker()


def on_a_small_disk(scene: Scene) -> None:
    """The private store's data on a file system of its own."""
    folder = scene.directory / "tracker0" / "data"
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES},mode=700", "tmpfs", str(folder)]
    mounted = shutil.which("mount") and subprocess.run(command, capture_output=True, check=False)
    if not mounted or mounted.returncode:
        raise Skipped("it takes the right to mount a tmpfs (root)")
    scene.at_the_end(lambda: subprocess.run(["umount", "-l", str(folder)], check=False))  # noqa: S607
    scene.add_tracker()


@drill("connections-killed")
async def connections_killed(scene: Scene, _: Fleet) -> None:
    """CLIENT KILL of every connection to the store, three times in a second."""
    with scene.store() as store:
        for _again in range(3):
            store.client_kill_filter(_type="pubsub")
            store.client_kill_filter(_type="normal", skipme=True)
            await asyncio.sleep(0.3)


@drill("scripts-flushed")
async def scripts_flushed(scene: Scene, _: Fleet) -> None:
    """SCRIPT FLUSH, ten times in two seconds."""
    with scene.store() as store:
        for _again in range(10):
            store.script_flush()
            await asyncio.sleep(0.2)


@drill("store-restarted", prepare=own_store)
async def store_restarted(scene: Scene, _: Fleet) -> None:
    """A store of one's own is killed, and back after 3 s with what its append-only file has."""
    server = _server(scene)
    server.kill()
    await asyncio.sleep(3.0)
    server.start()


@drill("store-emptied", prepare=own_store, may_lose=None, spares_the_living=False)
async def store_emptied(scene: Scene, _: Fleet) -> None:
    """A store of one's own is killed, and back after 3 s with nothing at all."""
    server = _server(scene)
    server.kill()
    await asyncio.sleep(3.0)
    shutil.rmtree(server.directory / "appendonlydir")
    server.start()


@drill("file-cut-off", prepare=own_store, may_lose=200, spares_the_living=False)
async def file_cut_off(scene: Scene, _: Fleet) -> None:
    """The store dies and the last second of its append-only file is missing, up to the middle of a command, as after a power cut."""
    server = _server(scene)
    file = _commands(server.directory)
    keep = file.stat().st_size + 7
    await asyncio.sleep(1.0)
    server.kill()
    if file.stat().st_size <= keep:
        raise DrillError("nothing was written to the append-only file")
    os.truncate(file, keep)
    server.start()


@drill("file-broken", heals_seconds=30.0, may_lose=2000, spares_the_living=False)
async def file_broken(scene: Scene, fleet: Fleet) -> None:
    """The private store dies and its append-only file is broken in the middle; after 8 s somebody cuts off what is broken."""
    os.kill(scene.post.pid, signal.SIGSTOP)  # so that the store is not back before its file is broken
    os.kill(scene.store_pid, signal.SIGKILL)
    file = _commands(scene.data)
    middle = file.stat().st_size * 9 // 10
    with file.open("r+b") as data:
        data.seek(middle)
        data.write(b"\x00broken\x00" * 8)
    os.kill(scene.post.pid, signal.SIGCONT)
    await asyncio.sleep(8.0)
    _none_answered(fleet, 4.0)
    for told in ("the private store cannot be started again", "Bad file format", "docs/backup.md"):
        if told not in scene.post.log:
            raise DrillError(f"the log does not say {told!r}")
    _mend(scene.data)


@drill("disk-full", prepare=on_a_small_disk)
async def disk_full(scene: Scene, fleet: Fleet) -> None:
    """The disk below the private store is full for 6 s."""
    with _ballast(scene.data / "ballast"), scene.store() as store:
        await until(
            lambda: store.info("persistence")["aof_last_write_status"] == "err", 10.0, "the disk is full"
        )
        await asyncio.sleep(FULL_SECONDS)
        _none_answered(fleet, 3.0)


@drill("memory-full")
async def memory_full(scene: Scene, fleet: Fleet) -> None:
    """maxmemory is reached for two reap intervals: joins are refused, updates and stops go on, silent peers leave."""
    with scene.store() as store:
        store.config_set("maxmemory", store.info("memory")["used_memory"] - 2**20)
        full = time.monotonic()
        await asyncio.sleep(2 * REAP_SECONDS)
        now = time.monotonic()
        silent = [p for p in fleet.gone if p.leaves == "silent" and p.last_answer < now - 2 * REAP_SECONDS]
        stopped = [p for p in fleet.gone if p.leaves == "stopped"]
        async with Redis.from_url(scene.store_url) as redis:
            there = {info_hash: await members_of(redis, info_hash) for info_hash in fleet.promised}
        store.config_set("maxmemory", 0)
    for kind, gone in (("silent", silent), ("stopped", stopped)):
        stay = sum(peer.peer_id in there[peer.info_hash] for peer in gone)
        if stay or not gone:
            raise DrillError(f"{stay} of {len(gone)} {kind} peers stay while memory is full")
    since = [heard for heard in fleet.heard if heard.sent > full + 0.5]
    _all_were(since, "started", "refused")
    _all_were(since, "", "answered")
    _all_were(since, "stopped", "answered")


def _all_were(heard: list[Heard], event: str, how: str) -> None:
    others = [one for one in heard if one.event == event and one.how != how]
    if others or not any(one.event == event for one in heard):
        raise DrillError(f"announces with event {event!r} were to be {how}: {len(others)} were {others[:1]}")


def _none_answered(fleet: Fleet, seconds: float) -> None:
    """In the last so many seconds, and not because nobody asked."""
    since = time.monotonic() - seconds
    heard = [one for one in fleet.heard if one.sent > since]
    answered = sum(one.how == "answered" for one in heard)
    if answered or not heard:
        raise DrillError(
            f"{answered} of {len(heard)} announces were answered, by a store that cannot keep them"
        )


def _server(scene: Scene) -> Server:
    assert scene.server is not None
    return scene.server


def _commands(directory: Path) -> Path:
    """The part of the append-only file that grows."""
    return max((directory / "appendonlydir").glob("*.incr.aof"), key=lambda path: path.stat().st_mtime)


def _mend(directory: Path) -> None:
    """As docs/backup.md says: the server's own program cuts off everything from the first broken command on."""
    done = subprocess.run(
        ["valkey-check-aof", "--fix", str(_commands(directory))],  # noqa: S607
        executable=server_binary(),
        input=b"y\n",
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise DrillError(f"the file could not be mended: {done.stdout[-300:]!r}")


@contextmanager
def _ballast(path: Path) -> Iterator[None]:
    """Every byte of the file system that is left, until the block is left."""
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
