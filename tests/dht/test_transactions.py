"""D8: answers count only from the address that was asked, with the id that was sent, once and in time."""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tracker.bittorrent import Endpoint
from tracker.dht.node import MAX_PENDING, TIMEOUT_SECONDS, Pending, Transactions
from tracker.wire.krpc import Answer, NodeId, encode_answer

HERE, THERE = Endpoint(b"\1\2\3\4\1\1"), Endpoint(b"\1\2\3\4\1\2")


def ping(endpoint: Endpoint, at: float = 0) -> Pending:
    return Pending(endpoint, None, sent_at=at)


def test_only_the_asked_address_answers_and_only_once() -> None:
    transactions, pending = Transactions(), ping(HERE)
    transaction = transactions.begin(pending, random.Random(1))
    assert len(transaction) == 4
    assert transactions.finish(THERE, transaction) is None
    assert transactions.finish(HERE, transaction[:3]) is None
    assert transactions.finish(HERE, transaction) is pending
    assert transactions.finish(HERE, transaction) is None
    assert len(transactions) == 0


def test_answers_are_told_from_other_datagrams_before_they_are_decoded() -> None:
    transactions = Transactions()
    transaction = transactions.begin(ping(HERE), random.Random(1))
    data = encode_answer(Answer(transaction, NodeId(bytes(20)), token=b"1:t4:abcd", version=b"SK01"))
    assert transactions.awaited(HERE, data) == transaction
    assert transactions.awaited(THERE, data) is None
    for other in (b"", b"1:t4:", data.replace(transaction, b"abcd"), data.replace(b"1:t4:", b"1:t5:")):
        assert transactions.awaited(HERE, other) is None
    assert len(transactions) == 1


def test_guesses_from_elsewhere_change_nothing() -> None:
    transactions = Transactions()
    transaction = transactions.begin(ping(HERE), random.Random(1))
    for guess in range(2**16):
        assert transactions.finish(THERE, transaction[:2] + guess.to_bytes(2, "big")) is None
    assert len(transactions) == 1


def test_a_late_answer_is_ignored() -> None:
    transactions, rng = Transactions(), random.Random(1)
    early, late = ping(HERE, 0), ping(HERE, 1)
    first, second = transactions.begin(early, rng), transactions.begin(late, rng)
    assert transactions.expire(TIMEOUT_SECONDS - 0.1) == []
    assert transactions.expire(TIMEOUT_SECONDS) == [early]
    assert transactions.finish(HERE, first) is None
    assert transactions.finish(HERE, second) is late


def test_an_unreachable_address_fails_all_its_queries_at_once() -> None:
    transactions, rng = Transactions(), random.Random(1)
    here, there = [ping(HERE), ping(HERE)], ping(THERE)
    for each in (*here, there):
        transactions.begin(each, rng)
    assert transactions.fail(HERE) == here and transactions.fail(HERE) == []
    assert len(transactions) == 1


class TransactionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.transactions = Transactions()
        self.rng = random.Random(1)
        self.model: dict[tuple[Endpoint, bytes], Pending] = {}
        self.now = 0.0

    @rule(seconds=st.sampled_from((0.5, 3, 11)))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        expired = [key for key, each in self.model.items() if self.now - each.sent_at >= TIMEOUT_SECONDS]
        assert self.transactions.expire(self.now) == [self.model.pop(key) for key in expired]

    @precondition(lambda self: len(self.transactions) < MAX_PENDING)
    @rule(endpoint=st.sampled_from((HERE, THERE)), count=st.sampled_from((1, 100)))
    def begin(self, endpoint: Endpoint, count: int) -> None:
        for _ in range(count):
            if len(self.transactions) >= MAX_PENDING:
                break
            pending = ping(endpoint, self.now)
            self.model[endpoint, self.transactions.begin(pending, self.rng)] = pending

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.model:
            endpoint, transaction = data.draw(st.sampled_from(sorted(self.model)))
            assert self.transactions.finish(endpoint, transaction) is self.model.pop((endpoint, transaction))

    @rule(endpoint=st.sampled_from((HERE, THERE)))
    def fail(self, endpoint: Endpoint) -> None:
        keys = [key for key in self.model if key[0] == endpoint]
        assert self.transactions.fail(endpoint) == [self.model.pop(key) for key in keys]

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert len(self.transactions) == len(self.model) <= MAX_PENDING


def test_any_sequence_frees_its_state() -> None:
    run_state_machine_as_test(TransactionsMachine, settings=settings(max_examples=30, deadline=None))
