"""Which answers count as answers with peers."""

import pytest
from bencodepy import encode

from loadtest.bench.loader import BenchError
from loadtest.bench.verify import Answers

WITH_PEERS = encode({"interval": 1800, "peers": b"abcdef" * 50})
EMPTY = encode({"interval": 1800, "peers": b""})


def test_answers_are_counted() -> None:
    answers = Answers()
    for body in (WITH_PEERS, EMPTY, encode({"files": {}})):
        answers.take(body)
    assert (answers.announces, answers.scrapes, answers.with_peers, answers.mean_peers) == (2, 1, 1, 25.0)
    answers.check("a tracker")


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"",
        encode({"failure reason": "no"}),
        encode({"interval": 1800}),
        encode({"interval": 1800, "peers": b"abcdefg"}),
        encode({"interval": 1800, "peers": [{"ip": "192.0.2.1", "port": 1}]}),
        encode({"interval": 1800, "peers": b"abcdef" * 51}),
    ],
)
def test_other_answers_are_refused(body: bytes) -> None:
    with pytest.raises(BenchError):
        Answers().take(body)


@pytest.mark.parametrize("bodies", [[], [EMPTY] * 3 + [WITH_PEERS]])
def test_a_tracker_that_returns_no_peers_is_refused(bodies: list[bytes]) -> None:
    answers = Answers()
    for body in bodies:
        answers.take(body)
    with pytest.raises(BenchError, match="got peers"):
        answers.check("a tracker")
