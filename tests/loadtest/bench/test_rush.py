"""A population that announces once each: every request is accounted for, whatever becomes of it."""

import socket

import pytest

from bench import processes, rush
from bench.rush import Rush

SECONDS, RATE = 0.3, 300.0
RUNS = [(True, b""), (False, b"Connection: close\r\n")]


@pytest.mark.parametrize(("keep_alive", "header"), RUNS, ids=["keep-alive", "close"])
def test_what_is_due_is_sent_and_answered(port: int, keep_alive: bool, header: bytes) -> None:
    request = b"GET /announce HTTP/1.1\r\nHost: x\r\n" + header + b"\r\n"
    load = Rush(port, [request], keep_alive=keep_alive, connections=8)
    load.run(RATE, SECONDS)
    found = load.figures()
    load.close()
    assert found["sent"] > 10
    assert found["answered"] == found["sent"]
    assert found["steady_rate"] > 0
    assert {found[what] for what in ("refused", "closed", "gave_up")} == {0}
    assert 0 < found["answered_ms"]["p50"] <= found["answered_ms"]["worst"]


def _run(port: int) -> dict[str, float]:
    load = Rush(port, [b"GET / HTTP/1.1\r\n\r\n"], keep_alive=True, connections=4)
    load.run(RATE, SECONDS)
    load.close()
    return load.figures()


def test_whoever_hears_nothing_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rush, "PATIENCE_SECONDS", 10.0 * SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        found = _run(silent.getsockname()[1])
    assert (found["sent"], found["answered"], found["gave_up"]) == (4, 0, 4)
    assert found["unsent"] > 0, "due, and all clients wait"


def test_whoever_is_not_accepted_is_turned_away() -> None:
    found = _run(processes.free_port())
    assert found["sent"] > 10 and found["closed"] == found["sent"]
