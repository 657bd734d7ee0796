"""What a store was made with: its layout, the number of its shards, and the secret that its trackers share.

The layout is a number that changes with the key table: trackers of one layout may share a store, whatever their
versions. It is in `layout` under the main prefix, as all parts of a store are upgraded together. A store that `tracker
reshard` fills is refused until it is full.

Each shard beside the main prefix has a copy of all three, by which a tracker starts while the main prefix is
unavailable. Copies that differ are refused: parts of other stores, or of other times, would be mixed.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import NamedTuple

from redis.exceptions import ResponseError

from tracker import __version__
from tracker.errors import StartupError, StoreUnavailable
from tracker.store.access.copies import restore_access
from tracker.store.access.rate_limits import shared_secret
from tracker.store.client.connection import Connection
from tracker.store.client.pipe import flattened
from tracker.store.jobs.lease import Lease
from tracker.store.schema.keys import MAX_SHARDS, Keys, main_prefix_of
from tracker.store.sharding.shards import MAIN, Shard, Shards
from tracker.system.logger import Logger

LAYOUT = 2
"""The layout of this version. Version 1.0.0 began with 1."""
ALIVE_SECONDS = 15.0
"""A heartbeat is at most so old while a tracker runs."""
_LEASE_SECONDS = 60
_POLL_SECONDS = 1.0
_PAGE = 100
"""Torrents that one script call upgrades."""
_COPIED = ("number", "version", "upgrading", "shards")
"""Fields of a copy."""

log = Logger("tracker.store")


class Step(NamedTuple):
    """Upgrades a store to layout ``to`` from the one before."""

    to: int
    run: Callable[[Shards, str], AsyncGenerator[str]]
    """Yields positions, each of which it goes on from after an interruption; the first is empty."""


async def _swarms(shards: Shards, position: str) -> AsyncGenerator[str]:
    """Layout 2: peers may have WebSockets, which scripts of layout 1 do not know; a torrent has the lengths of its
    arrays in one field; and peers of a user that overlap are marked. Positions: shard and rank of a torrent."""
    number, first = map(int, (position or "0:0").split(":"))
    for shard in shards.all[number:]:
        yield f"{number}:{first}"
        while ids := await shard.connection.command("ZRANGE", shard.keys.index("seeders"), first, first + _PAGE - 1):
            await shard.scripts.upgrade_swarms(ids)
            first += _PAGE
            yield f"{number}:{first}"
        number, first = number + 1, 0


STEPS: tuple[Step, ...] = (Step(2, _swarms),)
"""One for each layout after the first."""


class Layout(NamedTuple):
    """What the store says, or a shard beside the main prefix, which has a copy, the number of shards and the secret."""

    number: int
    version: str
    """The version of the tracker that wrote the number, or that began to upgrade the store."""
    upgrading: int = 0
    """The layout of an upgrade that is not complete; 0 for none."""
    position: str = ""
    shards: int = 0
    secret: bytes = b""

    @property
    def newest(self) -> int:
        return max(self.number, self.upgrading)


async def check_layout(shards: Shards, known: int = LAYOUT) -> Layout:
    """Writes the layout into a new store. Raises StartupError for one that this version cannot serve or upgrade."""
    if await _read(shards) is None and await shards.main.connection.command("EXISTS", shards.main.keys.secret()):
        raise StartupError(
            "the store has no layout: it was made before version 1.0.0, and no version serves it. Choose another "
            "prefix (TRACKER_REDIS__PREFIX), and import what the old version exported"
        )
    return await _fitting(shards, known)


async def _fitting(shards: Shards, known: int, secret: bytes = b"") -> Layout:
    found = await _read(shards)
    return await _begin(shards, known, secret) if found is None else _known(found, known)


async def _begin(shards: Shards, number: int, secret: bytes) -> Layout:
    """Writes the layout of a new main prefix, or of one that has lost everything: last, as it makes it complete."""
    if shards.others:
        await restore_access(shards)
        if secret:
            await shards.main.connection.command("SET", shards.main.keys.secret(), secret, "NX")
        await shards.main.connection.command("SET", shards.main.keys.shards(), len(shards), "NX")
    await _write(shards.main, **_complete(number))
    return Layout(number, __version__)


def _known(found: Layout, known: int) -> Layout:
    if found.newest > known:
        raise StartupError(
            f"the store has layout {found.newest} of version {found.version}, and this version, {__version__}, "
            f"serves up to layout {known}: use version {found.version} or newer"
        )
    return found


async def check_current(shards: Shards) -> None:
    """The same for a command, which does not upgrade the store. A store that refuses it, such as a replica, may still
    be read, so `tracker doctor` can say what is wrong."""
    with suppress(ResponseError, StoreUnavailable):
        _check_upgraded(await check_layout(shards))


async def check_part(shards: Shards, shard: Shard, secret: bytes) -> None:
    """Compares what a part of the store says with ``secret`` and this version's layout, and writes that where it says
    nothing. Raises StartupError and StoreUnavailable."""
    if shard is shards.main:
        _check_upgraded(await _fitting(shards, LAYOUT, secret))
    else:
        row = await shard.connection.command("HMGET", shard.keys.layout(), *_COPIED)
        found = None if row[0] is None else _copy(shard, row, secret)
        if found is None:
            await _write(shard, **_complete(LAYOUT), shards=len(shards))
        elif (found.newest, found.shards) != (LAYOUT, len(shards)):
            said = f"layout {found.newest} and {found.shards} shards"
            raise _differs(shard, f"{said}, the store layout {LAYOUT} and {len(shards)}")
    if await shared_secret(shard.connection, shard.keys, secret) != secret:
        raise _differs(shard, "another secret than the store")


def _differs(shard: Shard, what: str) -> StartupError:
    name = "the main prefix" if shard.number == MAIN else f"shard {shard.number}"
    return StartupError(
        f"{name} has {what}: it is a part of another store, or was restored from another time. Put back the right "
        f"data, or delete {shard.keys.layout()} and {shard.keys.secret()} to use it all the same"
    )


async def _agreed(shards: Shards) -> Layout | None:
    """What the available shards say instead of the main prefix; None if they say nothing. Raises StartupError if they
    differ, or if this version cannot serve the store; and StoreUnavailable."""
    replies = await shards.several(
        lambda shard: (("HMGET", shard.keys.layout(), *_COPIED), ("GET", shard.keys.secret()))
    )
    copies = {
        shard: _copy(shard, row, secret)
        for shard, (row, secret) in replies.items()
        if isinstance(row, list) and row[0] is not None and isinstance(secret, bytes)
    }
    if not copies:
        return None
    (first, made), *others = copies.items()
    for shard, copy in others:
        # Another version of the same layout may have written a lost copy again.
        if copy._replace(version="") != made._replace(version=""):
            raise _differs(shard, f"another layout, number of shards or secret than shard {first.number}")
    if made.shards != len(shards):
        raise _wrong_number(made.shards)
    return _known(made, LAYOUT)


def _copy(shard: Shard, row: Sequence[bytes | None], secret: bytes) -> Layout:
    number, version, upgrading, shards = (value or b"0" for value in row)
    if not (number.isdigit() and upgrading.isdigit() and shards.isdigit()):
        raise _differs(shard, "an unknown layout")
    return Layout(int(number), version.decode(errors="replace"), int(upgrading), "", int(shards), secret)


async def made_without_main(shards: Shards, prefix: str) -> Layout:
    """The same of the store under ``prefix``. Raises StoreUnavailable too if no shard says anything, or if the store is
    to be upgraded."""
    made, main = await _agreed(shards), shards.main.connection
    if made is None:
        await _check_other_numbers(main, prefix, len(shards))
        raise StoreUnavailable(
            f"the main store, at {main.master}, is unavailable ({main.cause}), and no shard has a copy of its layout"
        )
    if made.number != LAYOUT or made.upgrading:
        raise StoreUnavailable("the main store is unavailable, and the store needs it for an upgrade")
    return made


async def _check_other_numbers(main: Connection, prefix: str, configured: int) -> None:
    """Raises StartupError if the store was made with another number of shards, which have other names."""
    others = [2**power for power in range(1, MAX_SHARDS.bit_length()) if 2**power != configured]
    kept = list(main.topology.connections)
    answering = {each.server for each in kept if not each.unavailable}
    try:
        for shards in (Shards.under(main, prefix, number) for number in others):
            there = [shard for shard in shards if shard.connection.server in answering]
            found = await shards.each(lambda shard: ("HGET", shard.keys.layout(), "shards"), there) if there else {}
            for number in found.values():
                if number and number.isdigit():
                    raise _wrong_number(int(number))
    finally:
        main.topology.connections[:] = kept


async def restore_main(shards: Shards) -> None:
    """Writes what the shards say under a main prefix that has lost everything."""
    if not shards.others or await _read(shards) is not None:
        return
    try:
        made = await _agreed(shards)
    except StoreUnavailable:
        return
    if made is not None:
        log.warning("the main store is empty: it gets back what the shards have of it")
        await _begin(shards, made.number, made.secret)


def _check_upgraded(found: Layout) -> None:
    if found.number != LAYOUT:
        raise StartupError(
            f"the store has layout {found.number}, and this version, {__version__}, needs {LAYOUT}: start `tracker "
            "serve` of this version, which upgrades the store"
        )


async def upgrade(
    shards: Shards, clock: Callable[[], float] = time.time, steps: Sequence[Step] = STEPS, known: int = LAYOUT
) -> str:
    """Upgrades an older store, step by step, from where an earlier start was interrupted. Returns what was done; empty
    where there was nothing to do. Raises StartupError while a tracker of an older version runs."""
    first = await check_layout(shards, known)
    if first.number == known:
        return ""
    beats = await heartbeats(shards)
    # A tracker that was stopped just now has left a fresh heartbeat, which one that runs renews.
    while any(abs(clock() - beat) < ALIVE_SECONDS for beat in await heartbeats(shards)):
        if await heartbeats(shards) != beats:
            raise StartupError(
                f"a tracker of an older version runs on the store, whose layout is to be upgraded from {first.number} "
                f"to {known}: stop all trackers first"
            )
        await asyncio.sleep(_POLL_SECONDS)
    lease = Lease(shards.main.scripts, "layout", "", _LEASE_SECONDS, clock)
    while not await lease.hold():
        log.info("waiting for another tracker, which upgrades the store")
        await asyncio.sleep(_POLL_SECONDS)
    try:
        found = await check_layout(shards, known)
        for step in (each for each in steps if each.to > found.number):
            await _run(shards, step, found.position if found.upgrading == step.to else "", lease)
    finally:
        await lease.release()
    return f"upgraded from layout {first.number} (version {first.version}) to {known}"


async def _run(shards: Shards, step: Step, position: str, lease: Lease) -> None:
    log.warning("upgrading the store", layout=step.to, position=position)
    await _write_all(shards, upgrading=step.to, version=__version__)
    await _write(shards.main, position=position)
    async with aclosing(step.run(shards, position)) as positions:
        async for reached in positions:
            if not await lease.hold():
                raise StartupError("another tracker goes on with the upgrade of the store")
            await _write(shards.main, position=reached)
    await write_layout(shards, step.to)
    log.warning("upgraded the store", layout=step.to)


async def heartbeats(shards: Shards) -> list[int]:
    """Of each prefix, epoch seconds; 0 for none."""
    beats = await shards.send([(shard, ("GET", shard.keys.heartbeat())) for shard in shards.all], keep_errors=True)
    return [int(beat) if isinstance(beat, bytes) and beat.isdigit() else 0 for beat in beats]


async def _read(shards: Shards) -> Layout | None:
    names = ("number", "version", "upgrading", "position")
    row = await shards.main.connection.command("HMGET", shards.main.keys.layout(), *names)
    number, version, upgrading, position = (b"" if value is None else value for value in row)
    if not number:
        return None
    if not (number.isdigit() and int(number) and (upgrading or b"0").isdigit()):
        raise StartupError(
            f"the store has an unknown layout, {number.decode(errors='replace')!r} in {shards.main.keys.layout()}"
        )
    return Layout(int(number), version.decode(errors="replace"), int(upgrading or 0), position.decode())


async def write_layout(shards: Shards, number: int) -> None:
    await _write_all(shards, **_complete(number))


def _complete(number: int) -> dict[str, str | int]:
    return {"number": number, "version": __version__, "at": int(time.time()), "upgrading": 0, "position": ""}


async def _write_all(shards: Shards, **fields: str | int) -> None:
    """The main prefix comes last: while others say something else, it is not complete."""
    for shard in shards.others:
        await _write(shard, **fields, shards=len(shards))
    await _write(shards.main, **fields)


async def _write(shard: Shard, **fields: str | int) -> None:
    await shard.connection.command("HSET", shard.keys.layout(), *flattened(fields))


async def check_number(connection: Connection, prefix: str, shards: int) -> None:
    """Writes the number of shards into a new store. Raises StartupError if the store was made with another one, or is
    not full yet."""
    own = Keys(main_prefix_of(prefix, shards))
    with suppress(ResponseError):
        if await connection.command("EXISTS", own.reshard()):
            raise StartupError("`tracker reshard` has not filled this store yet: run it again to its end")
        if await connection.command("EXISTS", own.renumber()):
            raise StartupError("`tracker torrent renumber` was interrupted: run it again with the same file")
    keys = Keys(main_prefix_of(prefix, MAX_SHARDS))
    made_with = 1
    with suppress(ResponseError):  # the user may not read this key: then the store has one shard
        found = await connection.command("GET", keys.shards())
        # On a cluster there is none without a hash tag.
        if found is None and shards > 1 and (connection.topology.nodes or not await _has_one(connection, prefix)):
            await connection.command("SET", keys.shards(), shards, "NX")
            found = await connection.command("GET", keys.shards())
        made_with = 1 if found is None else int(found)
    if made_with != shards:
        raise _wrong_number(made_with)


def _wrong_number(made_with: int) -> StartupError:
    return StartupError(
        f"the store was made with {made_with} shard{'s' * (made_with > 1)}: "
        f"set TRACKER_REDIS__SHARDS={made_with}, or another prefix; `tracker reshard` makes a store with more"
    )


async def _has_one(connection: Connection, prefix: str) -> bool:
    """Whether a tracker or a command without shards has used the store."""
    keys = Keys(prefix)
    used = (keys.heartbeat(), keys.secret(), keys.users(), keys.index("seeders"), keys.admin_tokens())
    return bool(await connection.command("EXISTS", *used))
