"""The items of projects: adding them, where they are, and pages of them."""

import math
import random
from collections.abc import Callable, Iterable, Sequence

from tracker.errors import ClientError
from tracker.store.client.connection import Connection
from tracker.store.client.pipe import Argument
from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Part, Shard, in_parts
from tracker.store.work.demand import SECONDARY
from tracker.store.work.projects import Projects
from tracker.store.work.records import (
    QUEUES,
    Added,
    ItemStatus,
    NewItem,
    Page,
    Place,
    Project,
    Queue,
    Status,
    check_claimant,
    check_item,
    is_claimant,
    known,
)

Entry = tuple[bytes, float]
"""A member and its score."""


async def page_of(connection: Connection, key: str, cursor: str, count: int) -> tuple[list[Entry], str]:
    """The ``count`` entries after ``cursor`` (empty: from the start) and the next cursor, empty at the end. An entry
    that moves meanwhile may be missing or come twice. Raises ClientError for an invalid cursor."""
    start = await _start_after(connection, key, cursor) if cursor else 0
    flat = await connection.command("ZRANGE", key, start, start + count - 1, "WITHSCORES")
    entries = [(member, float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)]
    if len(entries) < count:
        return entries, ""
    member, score = entries[-1]
    return entries, f"{score!r} {member.decode('utf-8', 'surrogateescape')}"


async def _start_after(connection: Connection, key: str, cursor: str) -> int:
    score, _, name = cursor.partition(" ")
    try:
        number, member = float(score), name.encode("utf-8", "surrogateescape")
    except ValueError as error:
        raise ClientError("not a cursor") from error
    if math.isnan(number):
        raise ClientError("not a cursor")
    found, rank, earlier = await connection.replies(
        ("ZSCORE", key, member), ("ZRANK", key, member), ("ZCOUNT", key, "-inf", f"({number!r}")
    )
    return int(rank) + 1 if found is not None and float(found) == number else int(earlier)


MAX_BATCH = 500
"""Max items in one script call."""
_MAX_COPIES = 1000
_MAX_ASKED = 10
_NEEDIEST_QUEUES: tuple[Queue, ...] = ("todo", "secondary")


class Items(Part):
    """``chance`` returns random numbers from 0 to 1, for the places of items."""

    def __init__(self, shard: Shard, projects: Projects, chance: Callable[[], float] = random.random) -> None:
        super().__init__(shard)
        self._projects = projects
        self._chance = chance

    async def add(self, project: str, items: Iterable[NewItem], *, again: bool = False) -> Added:
        """Adds items, MAX_BATCH per script call. Skips those that are wanted or out, and those that are done unless
        ``again``. Raises UnknownProject, and ClientError for an invalid item: then nothing was added."""
        definition = await self._projects.get(project)
        checked = [_checked(definition, item) for item in items]
        added = 0
        for some in in_parts(checked, MAX_BATCH):
            argv: list[Argument] = [project, int(again)]
            for item in some:
                place = self._chance() if definition.order == "random" or item.place is None else float(item.place)
                argv += (item.name, queue_key(item.queue), " ".join(item.claimants), item.copies, repr(place))
            added += known(await self._scripts.work_add(argv))
        return Added(len(checked), added)

    async def purge(
        self, project: str, names: Sequence[str], place: Place | None = None, before: float | None = None
    ) -> int:
        """Removes items from the queues, and from those that are done; with ``place`` only from there, and of those
        that are done only the ones done before ``before`` (epoch s). Claims stay. Returns how many were removed. Raises
        UnknownProject."""
        only = "" if place is None else place if place == "done" else queue_key(place)
        limit = "+inf" if before is None else repr(1000 * before)
        removed = 0
        for batch in in_parts(names, MAX_BATCH):
            removed += known(await self._scripts.work_purge([project, only, limit, *batch]))
        return removed

    async def status(self, project: str, name: str) -> ItemStatus:
        """Where an item is: ``out`` while a claimant has it, else ``todo``, ``done``, or None for no item."""
        keys = self._keys
        holders, asked, wanted, *places = await self._connection.pipeline(
            ("HGET", keys.work_holders(project), name),
            ("HEXISTS", keys.work_asked(project), name),
            ("HGET", keys.work_wanted(project), name),
            *(("ZSCORE", keys.work_queue(project, queue_key(queue)), name) for queue in QUEUES),
            ("ZSCORE", keys.work_done(project), name),
        )
        *queued, done = places
        is_wanted = bool(asked) or any(place is not None for place in queued)
        copies = whole(wanted) if wanted is not None else int(is_wanted)
        claimants = tuple(holders.decode().split()) if holders else ()
        status: Status | None = "out" if claimants else "todo" if is_wanted else "done" if done else None
        return ItemStatus(name, status, claimants, copies)

    async def page(self, project: str, place: Place, *, claimant: str = "", cursor: str = "", count: int = 100) -> Page:
        """Items of a shared queue, of the own queue of ``claimant``, or done: lists of (item, score). The score is the
        place in the queue, or when the item was done (epoch s). Raises ClientError for an invalid cursor."""
        if claimant:
            key = self._keys.work_own_queue(project, check_claimant(claimant))
        elif place == "done":
            key = self._keys.work_done(project)
        else:
            key = self._keys.work_queue(project, queue_key(place))
        entries, after = await page_of(self._connection, key, cursor, count)
        unit = 1000 if place == "done" and not claimant else 1
        return Page([(item.decode("utf-8", "replace"), score / unit) for item, score in entries], after)

    async def neediest(self, project: str, count: int) -> list[str]:
        """The items of the queues ``todo`` and ``secondary``, the neediest first, whatever their queue: those that the
        policy enqueued by average seeders and leechers, others by their places. At most ``count``."""
        needs, middle = self._keys.work_needs(project), SECONDARY // 2
        queues = [self._keys.work_queue(project, queue_key(queue)) for queue in _NEEDIEST_QUEUES]
        heads = await self._connection.replies(
            *(("ZRANGE", queue, 0, count - 1) for queue in queues),
            ("ZRANGE", needs, "-inf", f"({middle}", "BYSCORE", "LIMIT", 0, count),
            ("ZRANGE", needs, middle, "+inf", "BYSCORE", "LIMIT", 0, count),
        )
        names = list(dict.fromkeys(name for head in heads for name in head))
        found: list[tuple[float, bytes]] = []
        for batch in in_parts(names, MAX_BATCH):
            rows = await self._connection.replies(*(("ZMSCORE", key, *batch) for key in (needs, *queues)))
            for name, need, *places in zip(batch, *rows, strict=True):
                place = next((float(each) for each in places if each is not None), None)
                if place is not None:  # else only certain claimants are asked for it
                    if need is not None:
                        place = float(need) - (SECONDARY if float(need) >= middle else 0)
                    found.append((place, name))
        return [name.decode("utf-8", "replace") for _, name in sorted(found)[:count]]


def queue_key(queue: str) -> str:
    """The end of the key of a shared queue."""
    return "todo" if queue == "todo" else f"todo:{queue}"


def _checked(project: Project, item: NewItem) -> NewItem:
    check_item(project.kind, item.name)
    are_valid = len({*item.claimants}) == len(item.claimants) and all(is_claimant(project, c) for c in item.claimants)
    if item.queue not in QUEUES:
        raise ClientError(f"a queue is one of {', '.join(QUEUES)}")
    if not 1 <= item.copies <= _MAX_COPIES:
        raise ClientError(f"an item has 1 to {_MAX_COPIES} copies")
    if len(item.claimants) > _MAX_ASKED or not are_valid:
        raise ClientError(f"claimants are at most {_MAX_ASKED} names or user ids, each given once")
    if item.place is not None and not -1e15 <= item.place <= 1e15:  # NaN too
        raise ClientError("a place is a number")
    return item
