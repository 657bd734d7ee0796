"""What a claimant has: its claims, what it keeps seeding, and what of that is no longer needed."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from tracker.bittorrent import InfoHash
from tracker.store.schema.lenient_numbers import whole
from tracker.store.store import Store
from tracker.store.torrents.records import Torrent
from tracker.store.work.demand import past_seeders
from tracker.store.work.records import Claim, Project

MIN_POINTS = 6
"""Points that an average needs."""
SPARE_SEEDERS = 2
"""A torrent can spare a seeder that it has beyond this many more than its target."""
MAX_KEPT = 1000
"""Torrents that a claimant seeds and that are looked at."""
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Held:
    """A claim, or (``state`` is ``kept``, without a claim) a torrent that the claimant still seeds."""

    item: str
    state: str
    claim: Claim | None = None
    torrent: Torrent | None = None
    seconds: int = 0
    """Seed time that counts, as the tracker saw it."""
    average: float | None = None
    """Seeders, on average of three days."""
    needed: bool = True


async def holdings(store: Store, project: Project, claims: Sequence[Claim]) -> list[Held]:
    """The claims of one claimant, with their torrents and the seconds seen since each claim."""
    if project.kind != "seeding":
        return [Held(claim.item, claim.state, claim) for claim in claims]
    found = await store.torrents.get_all([InfoHash(bytes.fromhex(claim.item)) for claim in claims])
    torrents = {torrent.info_hash.hex(): torrent for torrent in found}
    known = [claim for claim in claims if claim.item in torrents]
    if project.by_name:
        return [Held(c.item, c.state, c, torrents.get(c.item), c.seen_seconds) for c in claims]
    accounts = (
        await store.users.on_torrents(claims[0].claimant, [torrents[claim.item].torrent_id for claim in known])
        if known
        else []
    )
    seconds = {
        claim.item: max(0, whole(account.get("seed_time", "").encode()) - claim.seed_time)
        for claim, account in zip(known, accounts, strict=True)
    }
    return [
        Held(claim.item, claim.state, claim, torrents.get(claim.item), seconds.get(claim.item, 0)) for claim in claims
    ]


async def kept_torrents(store: Store, project: Project, claimant: str, claimed: Collection[str]) -> list[Held]:
    """Torrents that the claimant finished in this project, seeds now, and has no claim of."""
    cursor, ids = 0, list[str]()
    while len(ids) < MAX_KEPT:
        cursor, page = await store.users.torrents_page(claimant, "complete", cursor, MAX_KEPT)
        ids += page
        if not cursor:
            break
    torrents = {each.info_hash.hex(): each for each in await store.torrents.by_ids(ids[:MAX_KEPT])}
    others = [item for item in torrents if item not in claimed]
    finished = await store.work.claims.finished(project.name, claimant, others)
    return [Held(item, "kept", torrent=torrents[item]) for item in finished]


async def judged(store: Store, project: Project, claimant: str, held: Sequence[Held], now: float) -> list[Held]:
    """The same with the average of seeders, and whether each torrent needs the claimant."""
    torrents = [each.torrent for each in held if each.torrent is not None]
    found = await average_seeders(store, torrents, now)
    averages = {torrent.info_hash.hex(): average for torrent, average in zip(torrents, found, strict=True)}
    return [
        replace(
            each,
            average=averages.get(each.item),
            needed=is_needed(averages.get(each.item), project.target, claimant, each.item, now),
        )
        for each in held
    ]


async def average_seeders(store: Store, torrents: Sequence[Torrent], now: float) -> list[float | None]:
    """The seeders of each torrent on average of the last three days; None with fewer than MIN_POINTS points."""
    if not torrents:
        return []
    histories = await store.torrents.history_entries(torrents)
    past = [past_seeders(entries, int(now)) for entries in histories]
    return [each.average if each is not None and each.points >= MIN_POINTS else None for each in past]


def is_needed(average: float | None, target: int, claimant: str, item: str, now: float) -> bool:
    """Whether a claimant who seeds should go on. A torrent can spare a seeder when it has SPARE_SEEDERS more than its
    target without this one. Then each seeder is told so with the chance of one among all of them, drawn again each day:
    so they do not all leave on one day."""
    if average is None or average - 1 < target + SPARE_SEEDERS:
        return True
    drawn = sha256(f"{item} {claimant} {int(now // _DAY)}".encode()).digest()
    return int.from_bytes(drawn[:8], "big") % max(2, round(average)) != 0
