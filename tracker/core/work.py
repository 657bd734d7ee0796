"""What claimants may ask of the projects of work distribution: who they are, what they get, and why not.

In projects of kind ``seeding``, and where the project asks for passkeys, a claimant is the user of a passkey.
Elsewhere, and where addresses are verified, it is the name that the claimant gives.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tracker.bittorrent import Endpoint, InfoHash
from tracker.core.work_holdings import Held, holdings, judged, kept_torrents
from tracker.store.store import Store
from tracker.store.torrents.records import Torrent
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
