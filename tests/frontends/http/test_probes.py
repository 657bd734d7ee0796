"""/health and /ready on the port of the peers, for supervisors and load balancers; and the counters of the port."""

import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from tests.frontends.http.harness import ANNOUNCE, RecordingTracker, on_loops
from tests.raw_http import Client, connect, request
from tracker.frontends.http.server import serve_http
from tracker.settings.model import LiveSettings, Settings
from tracker.settings.public import HttpSettings


@contextlib.asynccontextmanager
async def probing(tracker: RecordingTracker, problems: list[str]) -> AsyncIterator[Client]:
    settings = LiveSettings(Settings(http=HttpSettings(listen=("127.0.0.1:0",))))
    async with serve_http(tracker, settings, problems=lambda: problems) as addresses:
        async with connect(addresses[0]) as client:
            yield client


@on_loops()
async def test_a_tracker_is_alive_whatever_its_problems() -> None:
    async with probing(RecordingTracker(), ["the store does not answer"]) as client:
        response = await client.get("/health")
    assert (response.status_line, response.body) == ("HTTP/1.1 200 OK", b"alive\n")


@on_loops()
async def test_ready_lists_the_current_problems() -> None:
    """Each request shows the current state, also on one connection."""
    problems: list[str] = []
    async with probing(RecordingTracker(), problems) as client:
        response = await client.get("/ready")
        assert (response.status_line, response.body) == ("HTTP/1.1 200 OK", b"ready\n")
        problems += ["the store does not answer", "shutting down"]
        response = await client.get("/ready?verbose")
        assert response.status_line == "HTTP/1.1 503 Service Unavailable"
        assert response.body == b"the store does not answer\nshutting down\n"
        problems.clear()
        assert (await client.get("/ready")).body == b"ready\n"


@pytest.mark.parametrize(
    ("path", "problems", "status"),
    [
        ("/health", [], 200),
        ("/ready", [], 200),
        ("/ready?x", ["shutting down"], 503),
        ("/health", ["shutting down"], 200),
    ],
)
@on_loops("uvloop")
async def test_head_returns_only_the_status(path: str, problems: list[str], status: int) -> None:
    async with probing(RecordingTracker(), problems) as client:
        client.send(request(path, method="HEAD"))
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % status)
        assert b"Content-Length: 0\r\n" in head


@on_loops("uvloop")
async def test_probes_are_not_counted_and_announces_continue() -> None:
    """A tracker that is not ready still answers peers."""
    tracker = RecordingTracker()
    async with probing(tracker, ["the store does not answer"]) as client:
        for path in ("/health", "/ready", "/ready/", "/healthy"):
            await client.get(path)
        assert tracker.labels == [] and tracker.announces == []
        assert (await client.get(ANNOUNCE)).reply[b"interval"] == 1800


@on_loops("uvloop")
async def test_open_connections_are_counted() -> None:
    readers: list[Callable[[], float]] = []
    settings = LiveSettings(Settings(http=HttpSettings(listen=("127.0.0.1:0",))))
    async with serve_http(RecordingTracker(), settings, show_open=readers.append) as addresses:
        (read,) = readers
        assert read() == 0
        async with connect(addresses[0]) as one, connect(addresses[0]) as two:
            await one.get("/health")
            await two.get("/health")
            assert read() == 2


@on_loops("uvloop")
async def test_refusals_are_counted_by_kind() -> None:
    tracker = RecordingTracker()
    async with probing(tracker, []) as client:
        for path in ("/announce?port=x", "/scrape?info_hash=short", "/announce/x", "/announced"):
            assert (await client.get(path)).failure
    assert tracker.kinds == ["announces", "scrapes", "other", "other"]
