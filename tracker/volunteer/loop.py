"""The loop of the volunteer's program: asks the tracker for torrents, and lets a BitTorrent client seed them.

Each round compares three lists: the torrents in the client that carry the label, the claims that the tracker lists, and
the state file. Steps that change one of them are noted in the file before, so a round can end anywhere, and the next
one goes on. The file is replaced as a whole. It is readable by its owner only, because announce URLs contain the
passkey.
"""

import asyncio
import fcntl
import math
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

from pydantic import BaseModel, ValidationError

from tracker.errors import StartupError
from tracker.system.logger import Logger
from tracker.system.private_file import private_file
from tracker.volunteer.clients import ClientUnavailable, NewTorrent, NotAdded, Torrent, TorrentClient
from tracker.volunteer.work_api import InvalidTorrent, Mine, Unavailable, WorkApi

ROUNDS_MISSING = 3
"""Rounds without a torrent after which it counts as removed from the client by its user. A client that starts lists
few."""
UNLISTED_SECONDS = 7 * 86_400.0
"""A torrent that the tracker did not list for so long is no longer needed. A tracker may lose its data for a while."""
_FIRST_RETRY_SECONDS = 15.0
_MAX_RETRY_SECONDS = 1800.0
_MAX_STATE_BYTES = 64 * 1024 * 1024


class Item(BaseModel):
    """A torrent that was claimed. Times are epoch seconds. ``claimed``: nothing happened in the client yet. ``adding``:
    the client may or may not have it. ``added``: it has. ``foreign``: it had it before, so it is left alone."""

    size: int
    name: str = ""
    stage: Literal["claimed", "adding", "added", "foreign"] = "claimed"
    token: str = ""
    torrent_url: str = ""
    announce_url: str = ""
    rounds_missing: int = 0  # rounds in a row in which the client did not list it
    unlisted_since: float = 0.0  # when the tracker stopped listing it; 0: it lists it
    too_large: bool = False  # it turned out larger than claimed, and is stopped


class State(BaseModel):
    """What the file holds. ``save`` writes it only if ``open_state`` gave it."""

    items: dict[str, Item] = {}  # by info hash
    asking: list[str] | None = None
    """While a claim is being requested: the info hashes that the tracker listed before. Else None."""
    _path: Path | None = None

    def save(self) -> None:
        if self._path is not None:
            with private_file(self._path) as file:
                file.write(self.model_dump_json().encode())


@contextmanager
def open_state(path: Path) -> Iterator[State]:
    """Raises StartupError if another process uses the file, or if it is not readable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(f"another process uses {path}") from None
        state = read_state(path)
        state._path = path
        yield state
    finally:
        os.close(lock)


def read_state(path: Path) -> State:
    """What the file holds, also while another process uses it. Raises StartupError."""
    try:
        with path.open("rb") as file:
            return State.model_validate_json(file.read(_MAX_STATE_BYTES))
    except FileNotFoundError:
        return State()
    except ValidationError:
        raise StartupError(f"{path} is damaged; if you remove it, labelled torrents are found again") from None


@dataclass(frozen=True, slots=True)
class Rules:
    """What a volunteer allows. ``space`` is in bytes; 0: never more than the client's disk has."""

    space: int
    max_torrents: int
    auto_drop: bool = False
    delete_data: bool = False
    round_seconds: float = 300.0
    extend_seconds: float = 1800.0
    drop_chance: float = 0.25
    """Of a torrent in a round, so that many volunteers with the same list do not all drop it at once."""


Confirm = Callable[[str], Awaitable[bool]]

log = Logger("tracker.volunteer")


@dataclass(eq=False)
class Volunteer:
    """``confirm`` asks a person whether to drop a torrent; None: no person can answer."""

    api: WorkApi
    client: TorrentClient
    state: State
    rules: Rules
    _: KW_ONLY
    confirm: Confirm | None = None
    random: Random = field(default_factory=Random)
    clock: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self) -> None:
        self._failures = 0
        """Of rounds, in a row."""
        self._extended: dict[str, float] = {}
        self._kept: set[str] = set()
        """Torrents that are not needed, and that a person decided to keep or was informed of."""

    async def run(self) -> None:
        """Runs until cancelled. Raises Denied."""
        while True:
            try:
                await self.round()
            except (Unavailable, ClientUnavailable, OSError) as error:
                longest = min(_FIRST_RETRY_SECONDS * 2.0 ** min(self._failures, 30), _MAX_RETRY_SECONDS)
                pause = getattr(error, "retry_seconds", 0.0) + longest * self.random.uniform(0.5, 1.0)
                self._failures += 1
                reason = (
                    f"the state file: {error.strerror or type(error).__name__}" if isinstance(error, OSError) else error
                )
                log.warning("round failed", reason=str(reason), retry_seconds=round(pause))
            else:
                self._failures = 0
                pause = self.rules.round_seconds * self.random.uniform(0.75, 1.25)
            await self.sleep(pause)

    async def round(self) -> None:
        """Does one round. Raises Denied, Unavailable, ClientUnavailable and OSError (of the state file)."""
        torrents = await self._torrents()
        mine = await self.api.mine()
        await self._release_unknown(mine)
        await self._stop_too_large(self._adopt(torrents, mine), mine)
        for info_hash in list(self._items):
            await self._continue(info_hash, torrents, mine)
        await self._extend(mine)
        await self._drop(torrents, mine)
        await self._ask(torrents, mine)

    @property
    def _items(self) -> dict[str, Item]:
        return self.state.items

    async def _torrents(self) -> dict[str, Torrent]:
        known = {info_hash: item.announce_url for info_hash, item in self._items.items()}
        return {each.info_hash: each for each in await asyncio.to_thread(self.client.torrents, known)}

    async def _release_unknown(self, mine: Mine) -> None:
        """Gives back what a request claimed whose answer was lost. Claims of other programs of this user stay."""
        asking = self.state.asking
        if asking is None:
            return
        for info_hash, claim in mine.claimed.items():
            if info_hash not in asking and info_hash not in self._items:
                await self.api.release(info_hash, claim.token)
        self.state.asking = None
        self.state.save()

    def _adopt(self, torrents: Mapping[str, Torrent], mine: Mine) -> list[str]:
        """Remembers labelled torrents that the file does not know, and real sizes. Returns those that are incomplete
        and larger than claimed."""
        changed, larger = False, []
        for info_hash, torrent in torrents.items():
            listed = mine.items.get(info_hash)
            size = (listed.size or 0) if listed else 0  # a magnet link does not say it
            before = self._items.get(info_hash) or Item(size=size, name=torrent.name, stage="added")
            if 0 < before.size < torrent.size and torrent.missing_bytes:
                larger.append(info_hash)
            after = before.model_copy(update={"size": max(before.size, torrent.size), "rounds_missing": 0})
            if after.stage != "adding":
                after.stage = "added"
            changed |= self._items.get(info_hash) != after
            self._items[info_hash] = after
        if changed:
            self.state.save()
        return larger

    async def _stop_too_large(self, larger: Sequence[str], mine: Mine) -> None:
        """A magnet link does not say how large its torrent is."""
        for info_hash in larger:
            if not self.rules.space or self._used() <= self.rules.space:
                return
            item = self._items[info_hash]
            log.warning("stopped: larger than the tracker said, and above the space", item=info_hash)
            await asyncio.to_thread(self.client.stop, info_hash)
            item.too_large = True
            self.state.save()
            if info_hash in mine.claimed:
                await self.api.release(info_hash, item.token)

    async def _continue(self, info_hash: str, torrents: Mapping[str, Torrent], mine: Mine) -> None:
        """Brings one torrent of the file in line with the client and the tracker."""
        item = self._items[info_hash]
        claimed = info_hash in mine.claimed
        if item.stage == "added":
            if (listed := info_hash in mine.items) == bool(item.unlisted_since):
                item.unlisted_since = 0.0 if listed else self.clock()
                self.state.save()
            if info_hash not in torrents:
                item.rounds_missing += 1
                self.state.save()
                if item.rounds_missing >= ROUNDS_MISSING:
                    log.info("torrent was removed from the client", item=info_hash, torrent=item.name)
                    await self._let_go(info_hash, claimed=claimed)
        elif item.stage != "adding" and not claimed:
            log.info("claim is over", item=info_hash, torrent=item.name)
            await self._let_go(info_hash, claimed=False)
        elif item.stage != "foreign":
            await self._add(info_hash)

    async def _let_go(self, info_hash: str, *, claimed: bool) -> None:
        """Forgets a torrent, and gives back its claim if it has one."""
        if claimed:
            await self.api.release(info_hash, self._items[info_hash].token)
        self._items.pop(info_hash, None)
        self._extended.pop(info_hash, None)
        self._kept.discard(info_hash)
        self.state.save()

    async def _extend(self, mine: Mine) -> None:
        """Tells the tracker now and then that this program still works on its claims."""
        now = self.timer()
        for info_hash, claim in mine.claimed.items():
            item = self._items.get(info_hash)
            due = now - self._extended.get(info_hash, -math.inf) >= self.rules.extend_seconds
            token = claim.token or (item.token if item else "")
            if item is not None and item.stage == "added" and token and due:
                self._extended[info_hash] = now
                if not await self.api.extend(info_hash, token):
                    log.info("claim was lost", item=info_hash, torrent=item.name)

    def not_needed(self, mine: Mine) -> list[str]:
        """The torrents that may be dropped."""
        old, listed = self.clock() - UNLISTED_SECONDS, mine.items
        return [
            info_hash
            for info_hash, item in self._items.items()
            if item.stage == "added"
            and (
                item.too_large
                or 0 < item.unlisted_since <= old
                or (info_hash in listed and not listed[info_hash].needed)
            )
        ]

    async def _drop(self, torrents: Mapping[str, Torrent], mine: Mine) -> None:
        delete = self.rules.delete_data
        for info_hash in self.not_needed(mine):
            if info_hash in torrents and await self._may_drop(info_hash):
                item = self._items[info_hash]
                await asyncio.to_thread(self.client.remove, info_hash, delete_data=delete)
                log.info("dropped", item=info_hash, torrent=item.name, data="deleted" if delete else "kept")
                await self._let_go(info_hash, claimed=info_hash in mine.claimed)
                if self.rules.auto_drop:
                    return  # the tracker decides again, now that this one is gone

    async def _may_drop(self, info_hash: str) -> bool:
        name = self._items[info_hash].name
        if self.rules.auto_drop:
            return self.random.random() < self.rules.drop_chance
        if info_hash in self._kept:
            return False
        self._kept.add(info_hash)
        if self.confirm is None:
            log.info("no longer needed; kept (--auto-drop removes such torrents)", item=info_hash, torrent=name)
            return False
        return await self.confirm(name)

    def _used(self) -> int:
        """Bytes of all torrents, each with its full size from its claim on."""
        return sum(item.size for item in self._items.values() if item.stage != "foreign")

    async def room(self, torrents: Mapping[str, Torrent]) -> int:
        """Bytes that may still be claimed."""
        rooms = [self.rules.space - self._used()] if self.rules.space else []
        free = await asyncio.to_thread(self.client.free_bytes)
        if free is not None:
            still_to_download = (
                torrents[each].missing_bytes if each in torrents and torrents[each].size else item.size
                for each, item in self._items.items()
                if item.stage != "foreign"
            )
            rooms.append(free - sum(still_to_download))
        return max(0, min(rooms, default=0))

    async def _ask(self, torrents: Mapping[str, Torrent], mine: Mine) -> None:
        listed = list(mine.items)
        while len(self._items) < self.rules.max_torrents:
            if any(item.stage in ("claimed", "adding") for item in self._items.values()):
                return  # a claimed torrent could not be added yet
            room = await self.room(torrents)
            if room <= 0 or not await self._claim(room, listed):
                return

    async def _claim(self, room: int, listed: list[str]) -> bool:
        """Claims a torrent and adds it. False: stop asking in this round. If the answer is lost, ``asking`` stays."""
        self.state.asking = [*listed, *self._items]
        self.state.save()
        grant = await self.api.request(room)
        fits = grant is not None and grant.size is not None and grant.size <= room
        if grant is not None and not fits:
            log.warning("given back: its size is unknown or above the space", item=grant.item_name)
            await self.api.release(grant.item_name, grant.token)
        elif grant is not None:
            new = Item(size=grant.size or 0, name=grant.name, announce_url=grant.announce_url)
            new.torrent_url = grant.torrent_url or ""
            # One that is claimed again stays as it is, but for its token.
            self._items.setdefault(grant.item_name, new).token = grant.token
        self.state.asking = None
        self.state.save()
        if grant is None or not fits:
            return False
        log.info("claimed", item=grant.item_name, torrent=grant.name, size=grant.size)
        return self._items[grant.item_name].stage == "added" or await self._add(grant.item_name)

    async def _add(self, info_hash: str) -> bool:
        """Adds a claimed torrent to the client. False: it was given back, or left alone."""
        item = self._items[info_hash]
        if item.stage == "foreign":
            return True
        if item.stage == "claimed" and await asyncio.to_thread(self.client.has, info_hash):
            log.info("already in the client without the label: left alone", item=info_hash, torrent=item.name)
            item.stage = "foreign"
            self.state.save()
            return True
        metainfo = b""
        if item.torrent_url:
            try:
                metainfo, size = await self.api.torrent_file(item.torrent_url, info_hash, item.announce_url)
            except Unavailable as error:
                log.warning("not added yet", item=info_hash, reason=str(error))
                return False
            except InvalidTorrent as error:
                return await self._give_back(info_hash, str(error))
            if size > item.size:
                return await self._give_back(info_hash, "it is larger than the tracker said")
        item.stage = "adding"
        self.state.save()
        new = NewTorrent(info_hash, item.name, item.announce_url, metainfo)
        try:
            await asyncio.to_thread(self.client.add, new)
        except NotAdded:
            return await self._give_back(info_hash, "the client refuses it")
        item.stage = "added"
        self.state.save()
        log.info("added", item=info_hash, torrent=item.name)
        return True

    async def _give_back(self, info_hash: str, reason: str) -> bool:
        log.warning("given back", item=info_hash, reason=reason)
        await self._let_go(info_hash, claimed=True)
        return False

    async def preview(self) -> list[str]:
        """What a round would do, in words; nothing is changed."""
        torrents, mine = await self._torrents(), await self.api.mine()
        self._adopt(torrents, mine)
        dropped = [each for each in self.not_needed(mine) if each in torrents]
        lines = [f"would drop {self._items[each].name or each}: no longer needed" for each in dropped]
        room, more = await self.room(torrents), self.rules.max_torrents - len(self._items)
        lines.append(f"would ask for up to {max(0, more) if room else 0} torrents, {room} bytes in total")
        return lines
