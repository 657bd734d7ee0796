"""Work distribution as plain Python: which item each claim gets, and what becomes of it."""

from collections import Counter
from dataclasses import dataclass, field, replace

KEPT_OUT = 7 * 86_400
QUEUES = ("todo", "todo:secondary", "todo:redo")


@dataclass(frozen=True)
class Wanted:
    """An item in a queue."""

    copies: int
    queue: str
    place: float
    asked: tuple[str, ...]


@dataclass(frozen=True)
class Held:
    """A claim. ``ends`` and ``since`` are on the clock that stands still during outages."""

    token: str
    ends: float
    at: float
    shared: bool
    source: Wanted
    since: float = 0.0
    """When it was claimed."""
    broken: bool = False
    """A site has overwritten its record."""


BROKEN = Wanted(1, "todo", 0.0, ())
"""Where the item of a broken claim goes."""


@dataclass
class Model:
    seeding: bool
    redo: bool
    lease: int
    start_budget: int
    budget: int
    now: float
    outages: float = 0.0
    wanted: dict[str, Wanted] = field(default_factory=dict)
    counted: set[str] = field(default_factory=set)
    """Items whose copies are counted: more than one, or any in a seeding project."""
    held: dict[tuple[str, str], Held] = field(default_factory=dict)
    lapsed: dict[tuple[str, str], float] = field(default_factory=dict)
    late: set[tuple[str, str]] = field(default_factory=set)
    given_back: dict[str, float] = field(default_factory=dict)
    """Until when claims that the claimant gave back count."""
    done: set[str] = field(default_factory=set)
    done_by: set[tuple[str, str]] = field(default_factory=set)
    trust: dict[str, int] = field(default_factory=dict)
    finished: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)

    @property
    def lease_clock(self) -> float:
        return self.now - self.outages

    def holders(self, item: str) -> list[str]:
        return [claimant for held, claimant in self.held if held == item]

    def used(self, claimant: str) -> int:
        return sum(who == claimant for _, who in self.held)

    def trusted(self, claimant: str) -> int:
        return max(1, min(self.trust.get(claimant, self.start_budget), self.budget))

    def add(self, item: str, wanted: Wanted, *, again: bool) -> bool:
        if item in self.wanted or self.holders(item) or (item in self.done and not again):
            return False
        self.done.discard(item)
        self.want(item, wanted)
        if wanted.copies > 1 or self.seeding:
            self.counted.add(item)
        self.totals["added"] += wanted.copies
        return True

    def want(self, item: str, wanted: Wanted) -> None:
        self.wanted[item] = replace(wanted, queue="own") if wanted.asked else wanted

    def purge(self, item: str) -> bool:
        was_done = item in self.done
        self.done.discard(item)
        self.counted.discard(item)
        before = self.wanted.pop(item, None)
        self.totals["added"] -= before.copies if before else 0
        return before is not None or was_done

    def claim(self, claimant: str) -> str:
        """The item, or the refusal."""
        self.lapse()
        free = self.trusted(claimant) - self.used(claimant)
        if free <= 0:
            return "budget"
        if self.given_back.get(claimant, 0.0) - self.now > 60 * (free - 1):
            return "rate"
        for queue in ("own", *QUEUES):
            for item, wanted in sorted(self.wanted.items(), key=lambda each: (each[1].place, each[0])):
                mine = queue != "own" or claimant in wanted.asked
                if wanted.queue == queue and mine and self.may_have(item, claimant, queue):
                    return item
        return "empty"

    def may_have(self, item: str, claimant: str, queue: str) -> bool:
        key = (item, claimant)
        if item in self.counted and (key in self.held or key in self.done_by):
            return False
        lapsed_at = self.lapsed.get(key)
        if lapsed_at is None or not (self.seeding or queue == "todo:redo"):
            return True
        return self.seeding and lapsed_at <= self.now - KEPT_OUT

    def granted(self, item: str, claimant: str, token: str) -> None:
        source = self.wanted[item]
        shared = item in self.counted
        self.take_copy(item)
        ends = self.lease_clock + self.lease
        self.held[item, claimant] = Held(token, ends, self.now, shared, source, self.lease_clock)
        if self.seeding:
            self.lapsed.pop((item, claimant), None)
            self.late.discard((item, claimant))
        self.totals["claimed"] += 1

    def take_copy(self, item: str) -> None:
        source = self.wanted[item]
        if source.copies > 1:
            self.wanted[item] = replace(source, copies=source.copies - 1)
        else:
            del self.wanted[item]
            self.counted.discard(item)

    def give_back(self, item: str, claim: Held, *, redo: bool = False) -> None:
        if item in self.wanted:
            self.wanted[item] = replace(self.wanted[item], copies=self.wanted[item].copies + 1)
            return
        source = replace(claim.source, copies=1)
        self.wanted[item] = replace(source, queue="todo:redo", asked=()) if redo else source
        if claim.shared:
            self.counted.add(item)

    def release(self, item: str, claimant: str, *, admin: bool = False) -> bool:
        claim = self.held.pop((item, claimant), None)
        if claim:
            self.give_back(item, claim)
            self.totals["released"] += 1
            if not admin:
                self.given_back[claimant] = max(self.now, self.given_back.get(claimant, 0.0)) + 60
        return claim is not None

    def overwrite(self, item: str, claimant: str) -> None:
        """Something else writes the record of a claim."""
        key = (item, claimant)
        self.held[key] = replace(self.held[key], at=0.0, shared=True, source=BROKEN, broken=True)

    def lapse(self) -> int:
        due = sorted((c.ends, f"{i} {w}", i, w) for (i, w), c in self.held.items() if c.ends <= self.lease_clock)
        for _, _, item, claimant in due:
            claim = self.held.pop((item, claimant))
            self.give_back(item, claim, redo=self.redo and not claim.broken)
            if claim.broken:
                self.totals["repaired"] += 1
                continue
            self.trust[claimant] = max(1, self.trusted(claimant) // 2)
            self.lapsed[item, claimant] = self.now
            if self.seeding:
                self.late.add((item, claimant))
            self.totals["lapsed"] += 1
        return len(due)

    def report(self, item: str, claimant: str, token: str, *, verified: bool) -> str:
        """The outcome of a report that the item is done."""
        key = (item, claimant)
        claim = self.held.get(key)
        if claim and token not in ("", claim.token):
            return "stranger"
        if claim is None and not (verified and key in self.late):
            if key in self.done_by:
                return "duplicate"
            left = bool(item in self.wanted or self.holders(item))
            if self.seeding or not left or (token and key not in self.lapsed):
                return "stranger" if left or item in self.done else "unknown"
        if self.seeding and not verified:
            return "unverified"
        if claim:
            del self.held[key]
            self.trust[claimant] = min(self.budget, self.trusted(claimant) + 1)
        else:
            self.report_late(item, claimant)
        if item not in self.wanted and not self.holders(item):
            self.done.add(item)
        self.done_by.add(key)
        self.finished[claimant] += 1
        self.totals["done"] += 1
        return "done"

    def report_late(self, item: str, claimant: str) -> None:
        """The claimant finished an item that it does not have: it takes a copy that is wanted, or that of the last one
        who got it. The budget is at least what it was before a lapse."""
        key = (item, claimant)
        self.late.discard(key)
        if self.lapsed.pop(key, None) is not None:
            self.trust[claimant] = min(self.budget, 2 * self.trusted(claimant) + 1)
        if item in self.wanted:
            self.take_copy(item)
        elif self.seeding or not self.holders(item):
            self.totals["added"] += 1
        else:
            del self.held[item, self.holders(item)[-1]]
