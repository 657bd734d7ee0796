"""Claims: items that claimants have under a lease.

Every step is one script. Leases are compared with ``clock``, so the clocks of all trackers on one store must agree
within a few seconds.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tracker.bittorrent import Endpoint
from tracker.errors import StoreUnavailable
from tracker.store.client.clock import seconds_ahead
from tracker.store.client.pipe import Argument
from tracker.store.sharding.shards import Part, Shard
from tracker.store.work.blocks import sender_of
from tracker.store.work.items import page_of
from tracker.store.work.records import (
    MAX_EXACT,
    Claim,
    ClaimReply,
    DoneResult,
    Page,
    Refusal,
    Refused,
    check_bytes,
    check_claimant,
    claim_of,
    domains_text,
    kept_text,
    known,
)
from tracker.store.work.torrent_states import TorrentFacts
from tracker.system.logger import Logger

MAX_LOOKED_AT = 50
"""Items of a queue that a claim looks at for one that fits, besides those that are the claimant's already."""
MAX_LAPSED_BY_CLAIM = 20
_PAGE = 500
_MAX_QUESTIONS = 100
_UNKNOWN = Endpoint(b"")
log = Logger("tracker.work")


class Claims(Part):
    """The claims of all projects. ``clock`` returns epoch seconds."""

    def __init__(self, shard: Shard, clock: Callable[[], float], facts: TorrentFacts) -> None:
        super().__init__(shard, clock)
        self._facts = facts

    async def claim(
        self,
        project: str,
        claimant: str,
        *,
        address: str = "",
        version: str = "",
        free_bytes: int | None = None,
        may_download: bool = True,
        endpoint: Endpoint = _UNKNOWN,
    ) -> ClaimReply:
        """Gives ``claimant`` an item, or says why not. In ``seeding``, larger items than ``free_bytes`` are passed
        over, and those that the claimant seeds already. Who may not download gets only items of its own queue.
        ``endpoint`` is where the claimant seeds, in a project that verifies addresses.

        ``claimant`` is a user id in ``seeding``, else a name. First up to 20 claims end whose lease has ended. Raises
        UnknownProject, and ClientError for an impossible name.
        """
        who = (check_claimant(claimant), *sender_of(address))
        room = "" if free_bytes is None else str(max(0, free_bytes))
        argv: list[Argument] = [project, self._now_ms(), *who, kept_text(version), room]
        argv += (MAX_LOOKED_AT, MAX_LAPSED_BY_CLAIM, int(may_download), endpoint.hex())
        outcome, *rest = known(await self._scripts.work_claim(argv))
        if outcome == b"ask":
            outcome, *rest = await self._claim_with_facts(argv, endpoint, rest)
        if outcome != b"claimed":
            return _refusal(outcome.decode(), rest)
        name, record, token, ends = rest
        return claim_of(name, record, token, float(ends))

    async def _claim_with_facts(self, argv: list[Argument], endpoint: Endpoint, asked: list[bytes]) -> list[bytes]:
        """The answer of the script when it knows what it asks for. It has claimed nothing before."""
        who, outcome, rest = str(argv[2]).encode(), b"ask", asked
        for _ in range(_MAX_QUESTIONS):
            packed = await self._facts.read([(item, who, endpoint.hex().encode(), b"") for item in rest])
            argv += (part for pair in zip(rest, packed, strict=True) for part in pair)
            outcome, *rest = known(await self._scripts.work_claim([argv[0], self._now_ms(), *argv[2:]]))
            if outcome != b"ask":
                break
        else:
            return [b"empty"]
        if outcome == b"claimed" and b'"others":"0"' in rest[1]:
            with suppress(StoreUnavailable):  # then the uploaded bytes are as reported
                await self._facts.count_downloads(rest[0].rpartition(b" ")[0].decode())
        return [outcome, *rest]

    async def done(
        self,
        project: str,
        claimant: str,
        item: str,
        *,
        token: str = "",
        address: str = "",
        version: str = "",
        user_agent: str = "",
        reported: Mapping[str, Any] | None = None,
        id_text: str = "",
        verified: tuple[int, int] | None = None,
    ) -> DoneResult:
        """The claimant reports that an item is done. ``reported`` holds bytes by domain, ``id_text`` what the claimant
        wants to see in the log. Without a token the claim is found by its claimant. ``verified``: seconds and bytes,
        where the tracker itself reports.

        Raises UnknownProject, and ClientError for an impossible name or number of bytes.
        """
        by_domain = check_bytes(reported or {})
        seconds, total = verified or (0, sum(by_domain.values()))
        argv: list[Argument] = [project, self._now_ms(), check_claimant(claimant), *sender_of(address), item, token]
        argv += (*map(kept_text, (version, user_agent, id_text)), int(verified is not None), seconds, total)
        argv += (json.dumps(by_domain, separators=(",", ":"), sort_keys=True), domains_text(by_domain))
        return DoneResult(known(await self._scripts.work_done(argv)).decode())

    async def complete(self, project: str, claimant: str, item: str, *, seconds: int, uploaded: int = 0) -> DoneResult:
        """The tracker has verified a claim: ``seconds`` of seed time, and ``uploaded`` bytes as reported. A claim that
        lapsed counts too, once. Raises UnknownProject."""
        verified = max(0, seconds), min(max(0, uploaded), MAX_EXACT)
        return await self.done(project, claimant, item, verified=verified)

    async def release(self, project: str, claimant: str, item: str, *, token: str = "", address: str = "") -> bool:
        """The claimant gives an item back. False when it is not this claimant's, or the claimant is blocked. Raises
        UnknownProject, and ClientError for an impossible name."""
        argv: list[Argument] = [project, self._now_ms(), 0, *sender_of(address)]
        argv += (item, check_claimant(claimant), token)
        return int(known(await self._scripts.work_release(argv))) > 0

    async def release_all(
        self,
        project: str,
        *,
        claimant: str | None = None,
        item: str | None = None,
        prefix: str = "",
        older_than: float | None = None,
    ) -> int:
        """An admin takes claims back: those that match everything given, by the beginning of the item (``prefix``) and
        by the seconds since the claim (``older_than``). Without anything, all. Returns how many. Raises
        UnknownProject."""
        released, cursor = 0, ""
        while True:
            page = await self.page(
                project, cursor=cursor, count=_PAGE, claimant=claimant, item=item, prefix=prefix, older_than=older_than
            )
            argv: list[Argument] = [project, self._now_ms(), 1, "", ""]
            for claim in page.entries:
                argv += (claim.item, claim.claimant, claim.token)
            released += int(known(await self._scripts.work_release(argv)))
            if not (cursor := page.cursor):
                return released

    async def extend(self, project: str, claimant: str, item: str, token: str, *, address: str = "") -> float | None:
        """The claimant asks for more time: as much as for a new claim, and at most until ``claim_days`` after the
        claim. In a project that verifies, only the tracker extends: the lease stays. Returns its end (epoch s); None if
        the claim was lost, or the claimant is blocked. Raises UnknownProject, and ClientError for an impossible
        name."""
        if not token:
            return None
        argv: list[Argument] = [project, self._now_ms(), check_claimant(claimant), *sender_of(address), item, token]
        ends = known(await self._scripts.work_extend(argv))
        return int(ends) / 1000 if ends.isdigit() else None

    async def lapse(self, project: str, max_claims: int = 500) -> int:
        """Ends claims whose lease ended, at most ``max_claims``, and returns how many. Also writes the counters of the
        project. A claim whose record was overwritten ends like the others: its item goes to ``todo``, nothing is held
        against the claimant, and the log says so. Raises UnknownProject."""
        ended, repaired = known(await self._scripts.work_lapse([project, self._now_ms(), max_claims]))
        if repaired:
            log.warning("claims had no valid record; their items are wanted again", project=project, claims=repaired)
        return int(ended)

    # Read

    async def of_claimant(self, project: str, claimant: str) -> list[Claim]:
        """The claimant's claims, the oldest first."""
        items = await self._connection.command("ZRANGE", self._keys.work_claims_by(project, claimant), 0, -1)
        return await self._read(project, [item + b" " + claimant.encode() for item in items])

    async def finished(self, project: str, claimant: str, items: Sequence[str]) -> list[str]:
        """The items in ``items`` that the claimant has finished."""
        if not items:
            return []
        key = self._keys.work_done_by(project)
        at = await self._connection.command("ZMSCORE", key, *(f"{item} {claimant}" for item in items))
        return [item for item, when in zip(items, at, strict=True) if when is not None]

    async def page(
        self,
        project: str,
        *,
        cursor: str = "",
        count: int = 100,
        claimant: str | None = None,
        item: str | None = None,
        prefix: str = "",
        older_than: float | None = None,
    ) -> Page:
        """Claims by the end of their leases. At most ``count`` are looked at, so a page may have fewer that match.
        Raises ClientError for an invalid cursor."""
        entries, after = await page_of(self._connection, self._keys.work_out(project), cursor, count)
        latest = None if older_than is None else self._clock() - older_than
        claims = [
            claim
            for claim in await self._read(project, [name for name, _ in entries])
            if claimant in (None, claim.claimant)
            and item in (None, claim.item)
            and claim.item.startswith(prefix)
            and (latest is None or claim.claimed_at <= latest)
        ]
        return Page(claims, after)

    async def _read(self, project: str, names: Sequence[bytes]) -> list[Claim]:
        if not names:
            return []
        keys = self._keys
        records, tokens, ends, gap = await self._connection.pipeline(
            ("HMGET", keys.work_claims(project), *names),
            ("HMGET", keys.work_tokens(project), *names),
            ("ZMSCORE", keys.work_out(project), *names),
            ("GET", keys.gap()),
        )
        return [
            claim_of(name, record, token, float(end) + 1000 * seconds_ahead(gap))
            for name, record, token, end in zip(names, records, tokens, ends, strict=True)
            if end is not None
        ]


def _refusal(reason: Refused, rest: Sequence[Any]) -> Refusal:
    if reason == "rate":
        return Refusal(reason, retry_seconds=int(rest[0]) / 1000)
    if reason == "outdated":
        return Refusal(reason, min_version=rest[0].decode("utf-8", "replace"))
    return Refusal(reason)
