"""Verification of claims: what a claimant has seeded, by the accounts of users."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tracker.bittorrent import Endpoint
from tracker.errors import StoreUnavailable
from tracker.store.client.pipe import Argument
from tracker.store.sharding.shards import Part, Shard
from tracker.store.swarms.rules import LiveRules
from tracker.store.work.claims import Claims
from tracker.store.work.records import DoneResult, Project, known
from tracker.store.work.torrent_states import FactRow, TorrentFacts

MAX_BATCH = 40
"""Claims in one script call. More would delay announces by more than a millisecond."""
_LEASE_OF_MAX_GAP = 3 / 4
"""A lease lasts three announce intervals after the last sign of life; the rules hold four of them."""


def asks_for_probes(project: Project) -> bool:
    """Whether the tracker should connect to the claimants' seeders, which TRACKER_PROBE__ENABLED allows."""
    return project.verify in ("handshake", "piece")


@dataclass(frozen=True, slots=True)
class Checked:
    """What a claim has come to."""

    item: str
    claimant: str
    verified: bool
    seconds: int  # seed time since the claim
    missing_seconds: int
    uploaded: int  # bytes since the claim, as reported
    endpoint: Endpoint | None = None
    """Set where a connection to the claimant's seeder is due; empty where no seeder was found."""


ProbeResult = Literal["confirmed", "failed", "unknown"]


class Verification(Part):
    """``clock`` returns epoch seconds. Every coroutine raises UnknownProject."""

    def __init__(
        self, shard: Shard, claims: Claims, rules: LiveRules, clock: Callable[[], float], facts: TorrentFacts
    ) -> None:
        super().__init__(shard, clock)
        self._claims = claims
        self._rules = rules
        self._facts = facts

    async def count(self, project: str) -> int:
        """The number of claims that are looked at: those out, and those that lapsed and may be verified late."""
        return int(await self._connection.command("ZCARD", self._keys.work_checks(project)))

    async def check(
        self, project: str, before: float, count: int = MAX_BATCH, probes: int | None = None, alone: str = ""
    ) -> list[Checked]:
        """Looks at claims that were last checked before then (epoch s), the longest unchecked first: notes their
        state and extends or shortens their leases. At most ``probes`` are named for a connection; None: the tracker
        makes none, and claims of all projects are verified by announces alone. ``alone``: only this one, as
        `<item> <claimant>`."""
        rules = self._rules.current
        argv: list[Argument] = [project, self._now_ms(), int(_LEASE_OF_MAX_GAP * rules.max_gap)]
        argv += (int(rules.accounts == "required"), count, int(before * 1000), alone)
        argv.append("" if probes is None else probes)
        rows = await self._scripts.work_verify(argv)
        if rows and rows[0] == b"ask":
            asked: list[FactRow] = list(zip(*(iter(rows[1:]),) * 4, strict=True))
            packed = await self._facts.read(asked)
            if alone and not packed[0]:
                raise StoreUnavailable("the shard of the torrent does not reply")
            for (item, claimant, *_), facts in zip(asked, packed, strict=True):
                argv += (b"%b %b" % (item, claimant), facts)
            rows = await self._scripts.work_verify(argv)
        return [_checked(row) for row in known(rows)]

    async def note_probe(self, project: str, checked: Checked, result: ProbeResult) -> bool:
        """Notes what a connection to the claimant's seeder has shown. True if that ended the claim: it failed twice in
        a row."""
        argv: list[Argument] = [project, self._now_ms(), checked.item, checked.claimant, result]
        return bool(known(await self._scripts.work_probe(argv)))

    async def complete(self, project: str, checked: Checked) -> DoneResult:
        """Counts a verified claim as done, once."""
        return await self._claims.complete(
            project, checked.claimant, checked.item, seconds=checked.seconds, uploaded=checked.uploaded
        )

    async def ask(self, project: str, claimant: str, item: str) -> DoneResult:
        """A claimant says that an item is done: counts it if it is verified by now. Otherwise the result is what
        Claims.done answers, with the seconds missing if it is ``unverified``: 0 while the job has to connect to the
        claimant's peer first."""
        result = await self._claims.done(project, claimant, item)
        if result.outcome != "unverified":
            return result
        found = await self.check(project, 0.0, 1, 0, alone=f"{item} {claimant}")
        if not found:
            return DoneResult("stranger")  # it ended meanwhile
        if found[0].verified:
            return await self.complete(project, found[0])
        return DoneResult("unverified", found[0].missing_seconds)


def _checked(row: list[bytes]) -> Checked:
    name, verified, seconds, missing, uploaded = (value.decode() for value in row[:5])
    item, _, claimant = name.rpartition(" ")
    endpoint = Endpoint(row[5]) if len(row) > 5 else None
    return Checked(item, claimant, verified == "1", int(seconds), int(missing), int(uploaded), endpoint)
