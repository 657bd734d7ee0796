"""The policy of seeding projects: which torrents are wanted, and by whom.

A torrent's demand follows from how many seeders it had on average, so that one bad hour changes nothing. What the
policy enqueued it also takes out again. Items that were added by hand stay as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tracker.bittorrent import InfoHash
from tracker.store.client.connection import Connection
from tracker.store.client.pipe import Argument
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys
from tracker.store.schema.lenient_numbers import whole
from tracker.store.torrents.records import info_hash_of
from tracker.store.work.history import MAX_POINTS, PastSeeders, past_seeders
from tracker.store.work.records import Project, UnknownProject

MAX_MANAGED = 100_000
"""Items that the policy has in a project at most. The first that it finds stay."""


_NOTHING = PastSeeders(0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Change:
    """A torrent whose demand has changed."""

    info_hash: InfoHash
    reason: str
    """``weak`` (average below half of the target, or leechers wait), ``below target``, ``reseed request`` (no seeder;
    users who completed it are asked), ``no seeder`` (but leechers); nobody is asked because of: ``enough``, ``nobody to
    ask``, ``unregistered``, ``denied``, ``disabled``, ``nowork`` (its label), ``size``, ``unknown size``."""
    copies_before: int
    copies: int
    """Copies to give out from now on; 0: taken out of its queue."""
    queue: str
    """``todo``, ``todo:secondary`` or ``todo:redo``; empty if users are asked, or without copies."""
    asked: tuple[str, ...]
    """The user ids of a reseed request."""
    average: float
    """Seeders in the last three days."""
    seeders: int
    """Seeders now."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run goes on."""

    rank: int = 0
    """In the ranking by seeders, fewest first."""
    cursor: int = 0
    """In what the policy enqueued."""

    def __str__(self) -> str:
        return f"{self.rank} {self.cursor}"


class Policy:
    """``clock`` returns epoch seconds."""

    def __init__(
        self,
        connection: Connection,
        scripts: Scripts,
        keys: Keys,
        clock: Callable[[], float],
        *,
        max_managed: int = MAX_MANAGED,
    ) -> None:
        self._connection = connection
        self._scripts = scripts
        self._keys = keys
        self._clock = clock
        self._max_managed = max_managed

    async def fill(
        self,
        project: str,
        info_hashes: Sequence[InfoHash],
        chances: Sequence[float],
        *,
        position: Position | None = None,
        dry_run: bool = False,
    ) -> list[Change]:
        """Brings the demand for these torrents in line, and returns what changed, or would change in a dry run.

        ``chances`` (0 to 1, one each) order torrents that are equally weak. ``position`` is stored for
        ``stored_position``. Raises UnknownProject, also for a project of another kind.
        """
        now, dry = int(self._clock()), int(dry_run)
        argv: list[Argument] = [
            project,
            now,
            dry,
            self._max_managed,
            "" if position is None else str(position),
        ]
        past = await self._past(info_hashes, now)
        for info_hash, chance, seen in zip(info_hashes, chances, past, strict=True):
            argv += (info_hash.hex(), f"{chance:.6f}", seen.points, seen.first, f"{seen.average:.9f}")
        answer = await self._scripts.work_policy(argv)
        if answer is None:
            raise UnknownProject
        return [_change(*row) for row in answer]

    async def _past(self, info_hashes: Sequence[InfoHash], now: int) -> list[PastSeeders]:
        """Read and added up here: in a script it would take five times as long as all else."""
        ids = await self._connection.pipeline(
            *(("HGET", self._keys.torrent(info_hash), "tid") for info_hash in info_hashes)
        )
        histories = await self._connection.pipeline(
            *(
                ("LRANGE", self._keys.history(id.decode("utf-8", "replace")), -MAX_POINTS, -1)
                for id in (b"" if id is None or isinstance(id, Exception) else id for id in ids)
            )
        )
        return [
            _NOTHING if isinstance(entries, Exception) else past_seeders(entries, now) or _NOTHING
            for entries in histories
        ]

    async def stored_position(self, project: str) -> Position:
        """Where the next run goes on."""
        text = await self._connection.command("HGET", self._keys.work_project(project), "policy_at")
        rank, _, cursor = (text or b"").partition(b" ")
        return Position(whole(rank), whole(cursor))

    async def weak_count(self, project: Project) -> int:
        """The number of torrents that have fewer seeders now than the target."""
        index = self._keys.index("seeders")
        return int(await self._connection.command("ZCOUNT", index, "-inf", f"({project.target}"))

    async def weak(self, first: int, count: int) -> list[InfoHash]:
        """``count`` torrents from rank ``first`` on, fewest seeders first; ids without a torrent are left out."""
        ids = await self._connection.command("ZRANGE", self._keys.index("seeders"), first, first + count - 1)
        if not ids:
            return []
        hexed = await self._connection.command("MGET", *(self._keys.torrent_id(i.decode()) for i in ids))
        return [found for text in hexed if (found := info_hash_of(text)) is not None]

    async def managed(self, project: str, cursor: int, count: int) -> tuple[int, list[InfoHash]]:
        """Returns (next cursor, about ``count`` torrents that the policy enqueued). Cursor 0 begins and ends."""
        after, flat = await self._connection.command(
            "HSCAN", self._keys.work_policy(project), cursor, "COUNT", count
        )
        found = (info_hash_of(text) for text in flat[::2])
        return int(after), [info_hash for info_hash in found if info_hash is not None]


def _change(
    info_hash: bytes, reason: bytes, before: int, copies: int, to: bytes, average: bytes, seeders: int
) -> Change:
    queue = to.decode()
    is_queue = queue.startswith("todo")
    return Change(
        info_hash=InfoHash(bytes.fromhex(info_hash.decode())),
        reason=reason.decode(),
        copies_before=before,
        copies=copies,
        queue=queue if is_queue else "",
        asked=() if is_queue else tuple(queue.split()),
        average=float(average),
        seeders=seeders,
    )
