"""The bytes of all connections are bounded; the networks that hold the most are closed first."""

import random

from tracker.frontends.http.connection_table import Budget

LIMIT = 1000


class Connections:
    """Connections by number. Each hundred share a network; those below 100 have none."""

    def __init__(self) -> None:
        self.closed: list[int] = []
        self.budget = Budget[int](LIMIT, self.network, self.close)

    @staticmethod
    def network(number: int) -> bytes | None:
        return b"%d" % (number // 100) if number >= 100 else None

    def close(self, number: int) -> None:
        self.closed.append(number)
        self.budget.release(number)


def test_bytes_up_to_the_limit_close_no_connection() -> None:
    connections = Connections()
    for number in range(10):
        connections.budget.hold(number, 50)
        connections.budget.hold(number, 100)
    assert (connections.budget.total, connections.closed) == (LIMIT, [])


def test_the_oldest_connection_is_closed_first() -> None:
    connections = Connections()
    for number in range(12):
        connections.budget.hold(number, 100)
    assert connections.closed == [0, 1]
    connections.budget.hold(2, 200)
    assert connections.closed == [0, 1, 2]


def test_a_network_that_holds_the_most_bytes_is_closed_before_older_ones() -> None:
    connections = Connections()
    for number in (1, 200, 300):
        connections.budget.hold(number, 100)
    for number in range(400, 420):
        connections.budget.hold(number, 50)
    assert connections.closed == list(range(400, 406))


def test_a_connection_that_exceeds_the_limit_alone_is_closed() -> None:
    connections = Connections()
    connections.budget.hold(200, LIMIT + 1)
    assert connections.closed == [200] and connections.budget.total == 0


def test_only_the_peak_remains_after_all_connections_end() -> None:
    connections, source = Connections(), random.Random(1)
    for _ in range(5000):
        number = source.randrange(1000)
        if source.random() < 0.3:
            connections.budget.release(number)
        else:
            connections.budget.hold(number, source.choice([0, 1, 70, 400]))
        assert connections.budget.total == sum(connections.budget._held.values()) <= LIMIT
    for number in range(1000):
        connections.budget.release(number)
    assert connections.budget.total == 0 and not connections.budget._of_network
    assert LIMIT // 2 < connections.budget.peak <= LIMIT + 400
