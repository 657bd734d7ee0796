"""The overload generator: every request has a result."""

import socket

import pytest

from loadtest.bench.rush import TIMEOUT_SECONDS, Rush
from loadtest.servers import free_port

pytestmark = pytest.mark.serial  # it measures rates

SECONDS, RATE = 0.3, 300.0
RUNS = [(True, b""), (False, b"Connection: close\r\n")]


@pytest.mark.parametrize(("keep_alive", "header"), RUNS, ids=["keep-alive", "close"])
def test_what_is_due_is_sent_and_answered(port: int, keep_alive: bool, header: bytes) -> None:
    request = b"GET /announce HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n"
    load = Rush(port, [request], keep_alive=keep_alive, connections=8)
    load.run(RATE, SECONDS)
    found = load.summary()
    load.close()
    assert found["sent"] > 10
    assert found["answered"] == found["sent"]
    assert found["steady_rate"] > 0
    assert {found[what] for what in ("refused", "closed", "gave_up")} == {0}
    assert 0 < found["answered_ms"]["p50"] <= found["answered_ms"]["worst"]


def _run(port: int, timeout_seconds: float = TIMEOUT_SECONDS) -> dict[str, float]:
    requests = [b"GET / HTTP/1.1\r\n\r\n"]
    load = Rush(port, requests, keep_alive=True, connections=4, timeout_seconds=timeout_seconds)
    load.run(RATE, SECONDS)
    load.close()
    return load.summary()


def test_clients_without_an_answer_give_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = _run(silent.getsockname()[1], timeout_seconds=10 * SECONDS)
    assert (found["sent"], found["answered"], found["gave_up"]) == (4, 0, 4)
    assert found["unsent"] > 0, "due, and all clients wait"


def test_refused_connections_count_as_closed() -> None:
    found = _run(free_port())
    assert found["sent"] > 10 and found["closed"] == found["sent"]
