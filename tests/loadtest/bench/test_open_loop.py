"""The open-loop generator: every request has a result."""

import socket

import pytest

from loadtest.bench.baseline import ANSWER
from loadtest.bench.open_loop import Load, is_last, is_success, is_whole

pytestmark = pytest.mark.serial  # it measures rates

WHOLE = f"HTTP/1.1 200 OK\r\nContent-Length: {len(ANSWER)}\r\n\r\n{ANSWER}".encode()
SECONDS, RATE = 0.3, 300.0
RUNS = [(True, b""), (False, b"Connection: close\r\n")]


@pytest.mark.parametrize(("keep_alive", "header"), RUNS, ids=["keep-alive", "close"])
def test_what_is_due_is_sent_and_answered(port: int, keep_alive: bool, header: bytes) -> None:
    request = b"GET /announce HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n"
    load = Load(port, [request], keep_alive=keep_alive, connections=8)
    load.run(RATE, SECONDS)
    found = load.summary()
    load.close()
    assert found["sent"] > 10
    assert found["answered"] == found["sent"]
    assert found["steady_rate"] > 0
    assert {found[what] for what in ("refused", "reset", "unanswered", "unsent")} == {0}
    assert 0 < found["answered_ms"]["p50"] <= found["answered_ms"]["worst"]


def test_a_server_that_never_answers_leaves_requests_unanswered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port, requests = silent.getsockname()[1], [b"GET / HTTP/1.1\r\n\r\n"]
        load = Load(port, requests, keep_alive=True, connections=4, give_up_seconds=0.1)
        load.run(RATE, SECONDS)
        found = load.summary()
        load.close()
    assert (found["sent"], found["answered"], found["unanswered"]) == (4, 0, 4)
    assert found["unsent"] > 0, "due, but no connection was free"


@pytest.mark.parametrize("length", [0, 10, len(WHOLE) - len(ANSWER), len(WHOLE) - 1])
def test_a_partial_answer_is_not_whole(length: int) -> None:
    assert not is_whole(WHOLE[:length])


def test_answers_are_classified() -> None:
    assert is_whole(WHOLE)
    assert is_success(WHOLE)
    assert not is_success(WHOLE.replace(b"200 OK", b"503 Service Unavailable"))
    assert not is_success(WHOLE.replace(b"8:interval", b"14:failure reason2:no8:interval"))
    assert not is_last(WHOLE)
    assert is_last(WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert not is_last(WHOLE + b"connection: close"), "in the body it means nothing"
