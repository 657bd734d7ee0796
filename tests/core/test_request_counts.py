"""Request counts in tables of bounded size."""

from tests.core.harness import at
from tracker.core.request_counts import CELLS, MAX_REGULAR_NETWORKS, RegularAnnounces, Sketch, network

MANY = "11.7.7.7"


def test_a_sketch_reports_all_hits_beyond_an_eighth_of_the_limit() -> None:
    sketch = Sketch(800)
    assert sum(sketch.add(b"x") for _ in range(100)) == 0
    assert sketch.add(b"x") == 101
    assert sum(sketch.add(b"x") for _ in range(99)) == 99
    # each process has its own hash: a key may share the cell of x
    others = [key for key in (bytes([n]) for n in range(120)) if (hash(key) - hash(b"x")) % CELLS]
    assert len(others) > 100 and sum(map(sketch.add, others)) == 0
    sketch.clear()
    assert sketch.add(b"x") == 0


def test_networks_with_few_regular_announces_are_forgotten_first() -> None:
    """With an IPv6 /32 an attacker fills no memory, and hides no other network's count."""
    regular = RegularAnnounces()
    for number in range(60):
        regular.add([at(MANY)] * 100)
        regular.add(at(f"2a00:1:{number:x}:{n:x}::1") for n in range(1000))
        assert len(regular._counts) <= MAX_REGULAR_NETWORKS
    assert regular.take(1000) == [(network(at(MANY)), 6000)] and regular.take(1000) == []
    regular.add([at(MANY)])
    assert regular.take(1000) == [(network(at(MANY)), 1)]
    regular.clear()
    assert regular.take(0) == []
