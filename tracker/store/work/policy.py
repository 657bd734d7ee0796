"""The policy of seeding projects: which torrents are wanted, and from which users.

A torrent's demand follows from how many seeders it had on average, so that one bad hour changes nothing. What the
policy enqueued it also takes out again. Items that were added by hand stay as they are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, inf
from typing import Annotated, NamedTuple

from tracker.bittorrent import InfoHash, info_hash_of
from tracker.store.client.pipe import Argument
from tracker.store.schema.lenient_numbers import whole
from tracker.store.schema.record import Field
from tracker.store.sharding.shards import Part, Shard
from tracker.store.work.demand import Demand, demand, is_settled
from tracker.store.work.records import known
from tracker.store.work.torrent_states import TorrentStates

MAX_MANAGED = 100_000
"""Items that the policy has in a project at most: the neediest."""
SLICE = 20
"""Torrents per call of the script. More would delay announces by more than a millisecond."""


@dataclass(frozen=True, slots=True)
class Change:
    """A torrent whose demand has changed."""

    info_hash: InfoHash
    reason: str
    """``weak`` (average below half of the target, or leechers wait), ``below target``, ``reseed request`` (no seeder;
    users who completed it are asked), ``no seeder`` (but leechers); no user is asked because of: ``enough``, ``no user
    to ask``, ``unregistered``, ``denied``, ``disabled``, ``pending``, ``private`` (claimants without accounts),
    ``hybrid`` (its v1 half counts), ``nowork`` (its label), ``size``, ``unknown size``, ``no room`` (others are shorter
    of seeders)."""
    copies_before: int
    copies: Annotated[int, Field("Copies to give out from now on; 0: no longer wanted.")]
    queue: Annotated[str, Field("Empty if only certain users are asked.")]
    asked: Annotated[tuple[str, ...], Field("IDs of the users who are asked.")]
    average: Annotated[float, Field("Seeders, on average over the last three days.")]
    seeders: Annotated[int, Field("Current seeders.")]


class Position(NamedTuple):
    """Where a run continues: in the ranking by seeders, fewest first, and in the items that the policy enqueued."""

    rank: int
    cursor: int


@dataclass(slots=True)
class Rehearsal:
    """What a dry run would have done so far."""

    added: int = 0  # items added, less those removed
    no_room: int = 0  # items replaced by torrents shorter of seeders

    def add(self, changes: Sequence[Change]) -> None:
        self.added += sum((change.copies > 0) - (change.copies_before > 0) for change in changes)
        self.no_room += sum(change.reason == "no room" for change in changes)


class Policy(Part):
    """``clock`` returns epoch seconds."""

    def __init__(self, shard: Shard, clock: Callable[[], float], states: TorrentStates) -> None:
        super().__init__(shard, clock)
        self.states = states

    async def fill(
        self,
        project: str,
        info_hashes: Sequence[InfoHash],
        chances: Sequence[float],
        *,
        position: Position | None = None,
        rehearsal: Rehearsal | None = None,
    ) -> list[Change]:
        """Brings the demand for these torrents in line, and returns what changed. With ``rehearsal``, which it adds to,
        nothing is written: it returns what would change.

        ``chances`` (0 to 1, one each) order torrents that are equally weak. ``position`` is stored for
        ``stored_position``. Raises UnknownProject, also for a project of another kind.
        """
        now = int(self._clock())
        definition, torrents, to_note = await self.states.read(project, info_hashes, now)
        if rehearsal is None:
            await self.states.note(to_note)
        found: dict[InfoHash, Demand] = {}
        rows: list[tuple[Argument, ...]] = []
        for info_hash, chance, torrent in zip(info_hashes, chances, torrents, strict=True):
            if torrent is None:
                continue
            wanted = demand(definition, torrent, now)
            if wanted is not None and not is_settled(torrent.entry, wanted):
                found[info_hash] = wanted
                since = "" if wanted.asked_since is None else wanted.asked_since
                to = " ".join(wanted.asked) or wanted.queue
                head = (info_hash.hex(), f"{chance:.6f}", " ".join(torrent.holders))
                rows.append((*head, wanted.copies, wanted.base, wanted.need, to, since))
        changes: list[Change] = []
        done = rehearsal or Rehearsal()
        for first in range(0, max(len(rows), position is not None), SLICE):
            is_last = first + SLICE >= len(rows)
            argv: list[Argument] = [project, MAX_MANAGED]
            argv += (f"{position.rank} {position.cursor}" if position and is_last else "", int(rehearsal is not None))
            argv += (done.added, done.no_room)
            argv += (value for row in rows[first : first + SLICE] for value in row)
            answer = known(await self._scripts.work_policy(argv))
            changed = [(InfoHash(bytes.fromhex(item.decode())), row) for item, *row in answer]
            if others := [each for each, _ in changed if each not in found]:
                await self._read_others(project, others, found, now)
            made = [_change(info_hash, found[info_hash], *row) for info_hash, row in changed]
            changes += made
            if rehearsal is not None:
                rehearsal.add(made)
        return changes

    async def _read_others(
        self, project: str, info_hashes: Sequence[InfoHash], found: dict[InfoHash, Demand], now: int
    ) -> None:
        """Adds those that torrents shorter of seeders replaced to ``found``."""
        _, torrents, _ = await self.states.read(project, info_hashes, now)
        for info_hash, torrent in zip(info_hashes, torrents, strict=True):
            average = torrent.past.average if torrent and torrent.past else 0.0
            found[info_hash] = Demand(0, "enough", torrent.seeders if torrent else 0, average)

    async def stored_position(self, project: str) -> Position:
        text = await self._connection.command("HGET", self._keys.work_project(project), "policy_at")
        rank, _, cursor = (text or b"").partition(b" ")
        return Position(whole(rank), whole(cursor))

    async def limit(self, project: str, rehearsal: Rehearsal | None = None) -> float:
        """The need that a torrent must be below to be enqueued: infinite while there is room."""
        needs = self._keys.work_needs(project)
        count, last = await self._connection.pipeline(("ZCARD", needs), ("ZRANGE", needs, 0, 0, "REV", "WITHSCORES"))
        count += rehearsal.added if rehearsal else 0
        return inf if count < MAX_MANAGED or not last else floor(float(last[1]))

    async def managed(self, project: str, cursor: int, count: int) -> tuple[int, list[InfoHash]]:
        """Returns (next cursor, about ``count`` torrents that the policy enqueued). Cursor 0 begins and ends."""
        after, flat = await self._connection.command("HSCAN", self._keys.work_policy(project), cursor, "COUNT", count)
        found = (info_hash_of(text) for text in flat[::2])
        return int(after), [info_hash for info_hash in found if info_hash is not None]


def _change(info_hash: InfoHash, wanted: Demand, before: int, copies: int, to: bytes, no_room: int) -> Change:
    queue = to.decode()
    is_queue = queue.startswith("todo")
    return Change(
        info_hash=info_hash,
        reason="no room" if no_room else wanted.reason,
        copies_before=before,
        copies=copies,
        queue=queue if is_queue else "",
        asked=() if is_queue else tuple(queue.split()),
        average=round(wanted.average, 3),
        seeders=wanted.seeders,
    )
