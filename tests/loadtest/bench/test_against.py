"""Prices are computed from three runs."""

import pytest

from loadtest.bench.against import FEW, MANY, TRICKLE_SECONDS, Run, find_url, solve
from loadtest.bench.loader import BenchError

ANNOUNCE, SECOND, START = 250_000, 3_000_000, 10**9
PARTS = ("tracker", "store")


def made(announces: int, seconds: float, *, disturbed: int = 0) -> Run:
    """A run with the given costs."""
    return Run({part: START + int(announces * ANNOUNCE + seconds * SECOND) + disturbed for part in PARTS}, seconds)


def trickle(*, disturbed: int = 0) -> Run:
    counted = made(FEW + TRICKLE_SECONDS, 10 + TRICKLE_SECONDS, disturbed=disturbed).counted
    return Run(counted, 10.0)


def test_prices_are_found_again() -> None:
    found = solve(made(FEW, 10), made(MANY, 50), trickle())
    for part in PARTS:
        assert found.announce[part] == pytest.approx(ANNOUNCE)
        assert found.second[part] == pytest.approx(SECOND)
    assert found.at(1000) == pytest.approx(2 * (ANNOUNCE + SECOND / 1000))


def test_the_port_of_a_private_tracker_is_found_too() -> None:
    for path in ("/announce", "/<passkey>/announce"):
        found = find_url(f"swarmkeeper 1.1.0 is running\n  announce  http://127.0.0.1:6969{path}\n")
        assert found is not None and found[1] == "6969"


@pytest.mark.parametrize(
    ("many", "last"),
    [
        (made(MANY, 50, disturbed=-(10**10)), trickle()),
        (made(MANY, 50), trickle(disturbed=-(10**8))),
        (made(MANY, 3000), trickle()),
    ],
    ids=["an announce below nothing", "a second below nothing", "longer than it can be solved for"],
)
def test_implausible_results_are_refused(many: Run, last: Run) -> None:
    with pytest.raises(BenchError, match="no prices"):
        solve(made(FEW, 10), many, last)
