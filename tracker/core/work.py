"""What claimants may ask of the projects of work distribution: who they are, what they get and hold, and why not. In
projects of kind ``seeding``, and where the project asks for passkeys, a claimant is the user of a passkey. Elsewhere,
and where addresses are verified, it is the name that the claimant gives."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal

from tracker.bittorrent import Endpoint, InfoHash
from tracker.store.schema.lenient_numbers import whole
from tracker.store.store import Store
from tracker.store.torrents.records import Torrent
from tracker.store.work.demand import past_seeders
from tracker.store.work.records import Claim, DoneOutcome, Project, Refusal, check_item, is_claimant
from tracker.wire.endpoint import pack_address, pack_endpoint

Reason = Literal[
    "malformed",
    "no project",
    "no passkey",
    "blocked",
    "outdated",
    "rate",
    "budget",
    "empty",
    "lost",
    "unknown item",
    "unverified",
    "domains",
]
__all__ = ["Claim", "Claimant", "Held", "Project", "Reason", "Refused", "Sender", "Torrent", "WorkRequests"]
_MAX_PASSKEY = 64
_NEVER: Mapping[DoneOutcome, tuple[Reason, str]] = {
    "unknown": ("unknown item", "there is no such item"),
    "stranger": ("lost", "you do not have this item"),
    "domains": ("domains", "the project wants bytes of other domains"),
    "blocked": ("blocked", ""),
}
"""Why a report can never be counted."""
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
    known = [claim for claim in claims if claim.item in torrents and not project.by_name]
    seconds = {claim.item: claim.seen_seconds for claim in claims if project.by_name}
    if known:
        ids = [torrents[claim.item].torrent_id for claim in known]
        accounts = await store.users.on_torrents(known[0].claimant, ids)
        for claim, account in zip(known, accounts, strict=True):
            seconds[claim.item] = max(0, whole(account.get("seed_time", "").encode()) - claim.seed_time)
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
        replace(each, average=average, needed=is_needed(average, project.target, claimant, each.item, now))
        for each in held
        for average in (averages.get(each.item),)
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


class Refused(Exception):
    """A claimant does not get what it asks for. ``text`` is fixed, or empty; ``seconds`` says when to ask again, or how
    much seed time is missing (``unverified``)."""

    def __init__(self, reason: Reason, text: str = "", seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.reason: Reason = reason
        self.text = text
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sends a request. ``address`` is an IP address as text, ``name`` the field ``downloader``."""

    address: str
    name: str = ""
    passkey: str = ""
    user_agent: str = ""


@dataclass(frozen=True, slots=True)
class Claimant:
    """A claimant of a project. ``passkey`` is empty where the name alone counts."""

    project: Project
    id: str
    address: str
    user_agent: str
    passkey: str = ""
    may_download: bool = True


class WorkRequests:
    """Answers claimants. Every coroutine raises Refused for what it does not grant, NotFound for an unknown project,
    ClientError for an impossible value, and StoreUnavailable."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._uploads: Counter[str] = Counter()

    async def project(self, name: str) -> Project:
        return await self._store.work.projects.get(name)

    async def claimant(self, project_name: str, sender: Sender) -> Claimant:
        project = await self.project(project_name)
        address, agent = sender.address, sender.user_agent
        if project.by_name:
            if not is_claimant(project, sender.name):
                raise Refused("malformed", "downloader has 3 to 30 letters, digits, - and _")
            return Claimant(project, sender.name, address, agent)
        known = 0 < len(sender.passkey) <= _MAX_PASSKEY and sender.passkey.isascii()
        user = await self._store.users.get(sender.passkey) if known else None
        if user is None:
            raise Refused("no passkey", "send a valid passkey")
        if not user.enabled:
            raise Refused("blocked")
        return Claimant(project, user.user_id, address, agent, sender.passkey, user.can_leech)

    async def request(
        self, claimant: Claimant, version: str, free_bytes: int | None, port: int | None
    ) -> tuple[Claim, Torrent | None]:
        """Claims an item. ``port``: where the claimant's client seeds. There is no torrent in kind ``items``, nor one
        that was deleted meanwhile."""
        if claimant.project.verify == "address" and port is None:
            raise Refused("malformed", "port is missing: where your client accepts connections")
        seeding = claimant.project.kind == "seeding"
        packed = pack_address(claimant.address)
        reply = await self._store.work.claims.claim(
            claimant.project.name,
            claimant.id,
            address=claimant.address,
            version=version,
            free_bytes=free_bytes,
            endpoint=pack_endpoint(packed, port) if packed and port else Endpoint(b""),
            may_download=claimant.may_download or not seeding,
        )
        if isinstance(reply, Refusal):
            raise Refused(reply.reason, seconds=reply.retry_seconds)
        return reply, await self._store.torrents.get(InfoHash(bytes.fromhex(reply.item))) if seeding else None

    async def done(
        self, claimant: Claimant, item: str, *, token: str, version: str, reported: Mapping[str, Any], id_text: str
    ) -> None:
        """Takes the report that an item is done; a repeated report too. A client without tokens (of 2012 to 2020)
        repeats a report until it is accepted. So one that can never be counted is accepted without a token, and only
        counted as refused."""
        project = claimant.project
        check_item(project.kind, item)
        result = await self._store.work.claims.done(
            project.name,
            claimant.id,
            item,
            token=token,
            address=claimant.address,
            version=version,
            user_agent=claimant.user_agent,
            reported=reported,
            id_text=id_text,
        )
        if result.outcome == "unverified":  # the tracker looks at the claim now
            result = await self._store.work.verification.ask(project.name, claimant.id, item)
        if result.outcome in ("done", "duplicate"):
            return
        if result.outcome == "unverified":
            raise Refused("unverified", seconds=result.missing_seconds)
        self._store.counters.count("work.refused", f"work.{project.name}.refused")
        if token:
            raise Refused(*_NEVER[result.outcome])

    def upload_target(self, claimant: Claimant) -> str | None:
        """Where the claimant's program uploads next. The targets of the project have turns."""
        project = claimant.project
        if not project.upload_targets:
            return None
        self._uploads[project.name] += 1
        url = project.upload_targets[self._uploads[project.name] % len(project.upload_targets)]
        return url.replace(":downloader", claimant.id)

    async def mine(self, claimant: Claimant) -> list[Held]:
        """The claims of the claimant, and what it keeps seeding of what it has finished."""
        await self.check_blocked(claimant)
        store, project = self._store, claimant.project
        claims = await store.work.claims.of_claimant(project.name, claimant.id)
        held = await holdings(store, project, claims)
        if project.kind != "seeding":
            return held
        if not project.by_name:
            held += await kept_torrents(store, project, claimant.id, {claim.item for claim in claims})
        return await judged(store, project, claimant.id, held, self._clock())

    async def check_blocked(self, claimant: Claimant) -> None:
        """Raises Refused for a claimant who is blocked."""
        if await self._store.work.blocks.is_blocked(claimant.project.name, claimant.id, claimant.address):
            raise Refused("blocked")

    async def extend(self, claimant: Claimant, item: str, token: str) -> float:
        """Asks for more time. Returns the end of the lease (epoch s)."""
        name = claimant.project.name
        check_item(claimant.project.kind, item)
        await self.check_blocked(claimant)
        ends = await self._store.work.claims.extend(name, claimant.id, item, token, address=claimant.address)
        if ends is None:
            raise Refused("lost", "you do not have this item")
        return ends

    async def release(self, claimant: Claimant, item: str, token: str) -> bool:
        """Gives an item back. False when the claimant does not have it."""
        if claimant.project.verify == "address" and not token:
            raise Refused("malformed", "token is missing")  # any client can give the name, and the items are known
        name = claimant.project.name
        check_item(claimant.project.kind, item)
        await self.check_blocked(claimant)
        return await self._store.work.claims.release(name, claimant.id, item, token=token, address=claimant.address)
