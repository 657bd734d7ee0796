"""How many more seeders a torrent needs, and who is asked for them. It follows from what the store holds of the
torrent. Each point of a torrent's history counts until the next one, so a point that is missing or late does no
harm."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tracker.store.work.records import Project

WINDOW_SECONDS = 259_200
"""Of the history that is averaged."""
MAX_POINTS = 72
RENEWED_SECONDS = 259_200
"""A history is deleted a week after its last point."""
_MAX_COUNT = 10**9


@dataclass(frozen=True, slots=True)
class PastSeeders:
    """What the points of a history say."""

    points: int
    first: int  # the time of the first point (epoch s)
    average: float


def past_seeders(entries: Sequence[bytes], now: int) -> PastSeeders | None:
    """``entries`` are those of ``t:history:<tid>``, oldest first. Invalid ones, which a site may have written, are left
    out. None without a valid one."""
    points = [point for entry in entries if (point := _point(entry, now)) is not None]
    if not points:
        return None
    since, total = max(points[0][0], now - WINDOW_SECONDS), 0
    till = now
    for at, seeders in reversed(points):
        begin = at if at > since else since
        if till > begin:
            total += seeders * (till - begin)
        till = at
    average = total / (now - since) if now > since else float(points[-1][1])
    return PastSeeders(len(points), points[0][0], average)


def needs_point(entries: Sequence[bytes], seeders: int, now: int) -> bool:
    """Whether a point is to be added for a torrent that scorings add none for: its seeders have changed, or the last
    point is old."""
    last = _point(entries[-1], now) if entries else None
    return last is None or last[1] != min(seeders, _MAX_COUNT) or last[0] <= now - RENEWED_SECONDS


def _point(entry: bytes, now: int) -> tuple[int, int] | None:
    at, *rest = entry.split(b" ", 2)
    if not (rest and at.isdigit() and rest[0].isdigit() and len(at) <= 12 and len(rest[0]) <= 12):
        return None
    return (int(at), min(int(rest[0]), _MAX_COUNT)) if int(at) <= now else None


ASKED_AT_ONCE, REQUEST_SECONDS, MAX_REQUESTS, MAX_ASKED = 3, 604_800, 12, 20
KNOWN_SINCE_SECONDS, MIN_POINTS = 86_400, 6
_MAX_LEECHERS, _MAX_SIZE_DIGITS = 999, 19
EXCLUDING = ("enabled", "private", "hybrid_of", "size", "labels")
SECONDARY = 10**9
"""Added to the need of torrents in ``todo:secondary``: that queue is given out after ``todo``."""


@dataclass(frozen=True, slots=True)
class TorrentState:
    """What the policy reads of a torrent."""

    registered: bool
    denied: bool
    excluding: Sequence[bytes | None]  # its fields EXCLUDING, as stored
    seeders: int
    leechers: int
    past: PastSeeders | None  # None: its history is empty
    ranked: bool  # whether scorings add to its history
    was_completed: bool  # whether any user completed it, also a deleted one
    completers: Sequence[str]  # users who completed it, the last one first
    holders: Collection[str]  # users who have claimed it
    entry: "Entry"


@dataclass(frozen=True, slots=True)
class Entry:
    """What the project has of a torrent."""

    managed: bool  # whether the policy enqueued it
    asked_since: int | None  # when the first users were asked to seed it again (epoch s)
    copies: int  # copies to give out; 0: it is in no queue
    queue: str  # a shared queue; empty if users are asked
    asked: tuple[str, ...]
    need: int | None  # as in Demand; None if the policy wants none


@dataclass(frozen=True, slots=True)
class Demand:
    """What the policy wants of a torrent; for ``reason`` see Change."""

    copies: int
    reason: str
    seeders: int
    average: float = 0.0
    base: int = 0  # the place in the queue: 1000 times the average, less the leechers
    queue: str = ""
    asked: tuple[str, ...] = ()
    asked_since: int | None = None

    @property
    def need(self) -> int:
        """The lowest is the neediest."""
        return self.base + (SECONDARY if self.queue == "todo:secondary" else 0)


def demand(project: Project, torrent: TorrentState, now: int) -> Demand | None:
    """None: leave the torrent as it is. ``now`` is in epoch seconds."""
    seeders, leechers = torrent.seeders, torrent.leechers
    if not torrent.registered:
        return Demand(0, "unregistered", seeders)
    if torrent.denied:
        return Demand(0, "denied", seeders)
    if reason := exclusion(project, torrent.excluding):
        return Demand(0, reason, seeders)
    if seeders + leechers == 0 and not torrent.was_completed:
        return Demand(0, "no user to ask", seeders)
    past = torrent.past
    if past is None or not is_known(past, now, ranked=torrent.ranked):
        return None
    copies = missing(project, past.average, seeders, len(torrent.holders))
    if copies <= 0:
        return Demand(0, "enough", seeders, past.average)
    found = replace(placed(project, past.average, seeders, leechers), copies=copies)
    return _reseed(project, found, torrent, now) if seeders == 0 else found


def is_settled(entry: Entry, wanted: Demand) -> bool:
    """Whether the project has what is wanted, or an item that was added by hand."""
    if not entry.managed:
        return entry.copies > 0 or (wanted.copies == 0 and wanted.asked_since is None)
    if (entry.copies, entry.asked_since) != (wanted.copies, wanted.asked_since):
        return False
    if wanted.copies == 0:
        return entry.need is None and entry.asked_since is not None
    is_there = not wanted.asked and entry.queue in {wanted.queue, "todo:redo"}
    return entry.need == wanted.need and (is_there or (bool(entry.asked) and entry.asked == wanted.asked))


def exclusion(project: Project, fields: Sequence[bytes | None]) -> str:
    """Why no user is asked to seed a torrent with these values of EXCLUDING; empty if users may be asked."""
    enabled, private, hybrid_of, size, labels = fields
    if enabled in (b"0", b"pending"):
        return "disabled" if enabled == b"0" else "pending"
    if private == b"1" and project.verify == "address":
        return "private"
    if hybrid_of:
        return "hybrid"
    words = (labels or b"")[:1000].lower().replace(b",", b" ")
    if b" nowork " in b" " + words + b" ":
        return "nowork"
    if not (project.min_size or project.max_size):
        return ""
    if size is None or not size.isdigit() or len(size) > _MAX_SIZE_DIGITS:
        return "unknown size"
    return "size" if int(size) < project.min_size or 0 < project.max_size < int(size) else ""


def is_known(past: PastSeeders, now: int, *, ranked: bool) -> bool:
    """Whether the past of a torrent says enough to judge it. A ranked one soon has more points."""
    return past.first <= now - KNOWN_SINCE_SECONDS and (past.points >= MIN_POINTS or not ranked)


def missing(project: Project, average: float, seeders: int, held: int) -> int:
    """The seeders that a torrent misses, besides ``held`` users who have claimed it. None if it is not positive.
    Seeders of now who are no claimants count where they are more: who has finished a claim may go on seeding."""
    return project.target - max(int(round(average, 9) + 0.5), seeders - held) - held


def placed(project: Project, average: float, seeders: int, leechers: int) -> Demand:
    """Queue and rank of a torrent short of seeders; one copy."""
    base = int(1000 * round(average, 9)) - min(_MAX_LEECHERS, leechers)
    if average < project.target / 2 or leechers > 0:
        return Demand(0, "weak", seeders, average, base, "todo")
    return Demand(0, "below target", seeders, average, base, "todo" if seeders == 0 else "todo:secondary")


def _reseed(project: Project, found: Demand, torrent: TorrentState, now: int) -> Demand:
    """For a torrent without a seeder, three users who completed it are asked, after a week without success the next
    three, then all users if peers have parts of it."""
    asked_since = torrent.entry.asked_since
    since = now if asked_since is None else asked_since
    turn = max(0, now - since) // REQUEST_SECONDS
    if turn >= MAX_REQUESTS:
        since, turn = now, 0
    completers = [] if project.verify == "address" else torrent.completers  # claimants are no users
    in_turn = completers[turn * ASKED_AT_ONCE : (turn + 1) * ASKED_AT_ONCE]
    asked = tuple(user for user in in_turn if user not in torrent.holders)
    found = replace(found, asked_since=since if completers else None)
    if asked:
        return replace(found, reason="reseed request", asked=asked, copies=min(found.copies, len(asked)))
    if torrent.leechers:
        return replace(found, reason="no seeder")
    return replace(found, reason="no user to ask", copies=0)
