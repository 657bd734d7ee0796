"""The table of results."""

from collections.abc import Sequence

from loadtest.bench.processes import ROOT
from loadtest.bench.tables import table
from loadtest.chaos.environment import REAP_SECONDS
from loadtest.chaos.experiment import Outcome
from loadtest.clients.load import SINGLE_ANNOUNCE_SECONDS, Pace

PAGE = ROOT / "docs" / "trust.md"
BLOCK = "experiments"

_HEAD = (
    *(
        "experiment",
        "what is done",
        "refused with `retry in`",
        "closed or no connection",
        "without any answer, s",
        "slowest answer, s",
    ),
    *("acknowledged, then lost", "last failure after, s", "swarms correct after, s", ""),
)


def as_markdown(outcomes: Sequence[Outcome]) -> str:
    return table(_HEAD, (row(one) for one in outcomes))


def row(one: Outcome) -> tuple[str, ...]:
    experiment, found = one.experiment, one.findings
    if one.skipped:
        return experiment.name, experiment.description, *["–"] * 7, f"skipped: {one.skipped}"
    return (
        experiment.name,
        experiment.description,
        f"{found.refused:,}",
        f"{found.closed:,}",
        f"{found.outage_seconds:.1f}",
        f"{found.slowest_seconds:.1f}",
        f"{found.lost:,}" if experiment.may_lose is not None else f"{found.lost:,} (by design)",
        f"{found.healed_seconds:.1f}",
        f"{found.settled_seconds:.1f}",
        "passed" if one.passed else "failed",
    )


def line(one: Outcome) -> str:
    """A summary for the terminal."""
    if one.skipped:
        return f"{one.experiment.name}: SKIPPED: {one.skipped}"
    cells = dict(zip(_HEAD[2:], row(one)[2:], strict=True))
    values = ", ".join(f"{name} {value}" for name, value in cells.items() if name)
    result = "passed" if one.passed else "FAILED"
    return "\n  ".join([f"{one.experiment.name}: {result} in {one.seconds:.0f} s; {values}", *one.findings.complaints])


def setting(pace: Pace) -> str:
    """The load of all experiments."""
    return (
        f"{pace.peers} clients in {pace.torrents} torrents announce every {pace.interval:g} s to `tracker serve`, "
        f"each over its own connection. {pace.churning:.0%} of them leave after a few announces, more than a third "
        f"of those without `stopped`, and return as a new peer. One more client announces once in a new torrent "
        f"every {SINGLE_ANNOUNCE_SECONDS:g} s. Peers time out after {REAP_SECONDS:g} s; "
        "all other settings are defaults."
    )
