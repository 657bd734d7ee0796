"""The table of what the drills found."""

from collections.abc import Sequence

from bench.processes import ROOT
from bench.tables import table
from drills.drill import Held
from drills.fleet import LEDGER_SECONDS, Pace
from drills.scene import REAP_SECONDS

PAGE = ROOT / "docs" / "trust.md"
BLOCK = "drills"

_HEAD = (
    *(
        "drill",
        "what is done",
        "refused with `retry in`",
        "closed or no connection",
        "nobody answered for, s",
        "slowest answer, s",
    ),
    *("answered, then lost", "healed after, s", "swarms right after, s", ""),
)


def as_markdown(held: Sequence[Held]) -> str:
    return table(_HEAD, (row(one) for one in held))


def row(one: Held) -> tuple[str, ...]:
    drill, found = one.drill, one.findings
    if one.skipped:
        return drill.name, drill.what, *["–"] * 7, f"not held: {one.skipped}"
    return (
        drill.name,
        drill.what,
        f"{found.refused:,}",
        f"{found.closed:,}",
        f"{found.outage_seconds:.1f}",
        f"{found.slowest_seconds:.1f}",
        f"{found.lost:,}" if drill.may_lose is not None else f"{found.lost:,} (by design)",
        f"{found.healed_seconds:.1f}",
        f"{found.settled_seconds:.1f}",
        "passed" if one.passed else "failed",
    )


def line(one: Held) -> str:
    """For people who wait."""
    if one.skipped:
        return f"{one.drill.name}: NOT HELD: {one.skipped}"
    cells = dict(zip(_HEAD[2:], row(one)[2:], strict=True))
    told = ", ".join(f"{name} {value}" for name, value in cells.items() if name)
    verdict = "passed" if one.passed else "FAILED"
    return "\n  ".join(
        [f"{one.drill.name}: {verdict} in {one.seconds:.0f} s; {told}", *one.findings.complaints]
    )


def setting(pace: Pace) -> str:
    """What all of them were held with."""
    return (
        f"{pace.peers} clients in {pace.torrents} torrents announce every {pace.interval:g} s to `tracker serve` over connections of "
        f"their own; {pace.churning:.0%} of them leave after a few announces, more than a third of those without a word, and come "
        f"back as somebody else. One more announces in a new torrent every {LEDGER_SECONDS:g} s, once in each. A peer may be silent for {REAP_SECONDS:g} s; everything else is as an operator gets it."
    )
