"""A tracker that is stopped while it starts, as soon as its port answers, loses nothing of what it has answered."""

import asyncio
import signal
import socket
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest
from bencodepy import decode as bdecode

from loadtest import trackers
from loadtest.servers import Server
from loadtest.trackers import RunningTracker
from tests.store.harness import info_hash, peer_id
from tests.waiting import until
from tracker.app.web import NO_EXPIRY_EVENTS, open_joins
from tracker.bittorrent import Address
from tracker.runtime.context import open_context
from tracker.runtime.store import open_connection
from tracker.runtime.telemetry import Telemetry
from tracker.settings.model import Settings

HASH = "01" * 20
ANNOUNCES = 5


def asked(port: int, path: str, address: str = "9.9.9.9") -> bytes | None:
    """The reply; None while no process answers at the port."""
    connection = HTTPConnection("127.0.0.1", port, timeout=trackers.SECONDS)
    try:
        connection.request("GET", path, headers={"X-Forwarded-For": address})
        return connection.getresponse().read()
    except (ConnectionError, HTTPException):
        return None
    finally:
        connection.close()


def announce(port: int, number: int, event: str) -> bytes | None:
    query = f"info_hash={'%01' * 20}&peer_id=-TR4000-{number:012}&port=6881&left=1&uploaded=0&downloaded=0{event}"
    return asked(port, f"/announce?{query}", f"9.9.9.{number + 1}")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.usefixtures("own_interpreter")
def test_what_was_answered_is_counted_after_a_signal_during_the_start(
    start_server: Callable[..., Server], tmp_path: Path, workers: int
) -> None:
    server = start_server("--appendonly", "no")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {
        "TRACKER_REDIS__URL": f"unix://{server.socket_path}",
        "TRACKER_HTTP__LISTEN": f"127.0.0.1:{port}",
        "TRACKER_HTTP__TRUSTED_PROXIES": "127.0.0.1",
        "TRACKER_HTTP__WORKERS": str(workers),
    }
    log_file = tmp_path / "log"
    with log_file.open("w") as log:
        process = trackers.spawn(tmp_path, log, **settings)
    tracker = RunningTracker(process, log_file, "")
    first: list[bytes | None] = []

    def is_answered() -> bool:
        assert process.poll() is None, tracker.log
        first.append(announce(port, 0, "&event=started"))
        return first[-1] is not None

    until(is_answered)
    replies = [first[-1], *(announce(port, number, "&event=started") for number in range(1, ANNOUNCES))]
    replies += [announce(port, number, "") for number in range(ANNOUNCES)]
    ready = asked(port, "/ready")
    assert tracker.end(signal.SIGTERM) == 0
    assert all(reply is not None and b"interval" in bdecode(reply) for reply in replies), replies
    # The reaper may still subscribe; announces do not need it.
    assert ready in (b"ready\n", f"{NO_EXPIRY_EVENTS}\n".encode())
    with server.client() as client:
        assert client.hget(f"t:t:{HASH}", "announces") == str(len(replies)).encode()
        assert client.get("t:stats:announces") == str(len(replies)).encode()
        assert client.get(f"t:torrents.{HASH}.users") == str(ANNOUNCES).encode()


@pytest.mark.parametrize("how", ["it fails", "it is cancelled"])
async def test_counts_are_written_however_the_block_ends(start_server: Callable[..., Server], how: str) -> None:
    """As when another part of the tracker fails."""
    server = start_server("--appendonly", "no")
    url, settings = f"unix://{server.socket_path}", Settings()
    counted = asyncio.Event()

    async def count() -> None:
        async with (
            open_connection(url, settings.redis, 5.0) as (connection, _),
            open_context(settings, connection, Telemetry()) as context,
            open_joins(context) as joins,
        ):
            await context.store.torrents.add(info_hash(1))
            context.store.counters.count("announces")
            joins.on_join(info_hash(1), peer_id(1), Address(b"\x09\x09\x09\x09"))
            counted.set()
            if how == "it fails":
                raise ValueError
            await asyncio.Event().wait()

    task = asyncio.Task(count())
    await counted.wait()
    if how == "it is cancelled":
        task.cancel()
    (error,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(error, ValueError if how == "it fails" else asyncio.CancelledError)
    with server.client() as client:
        assert client.get("t:stats:announces") == b"1"
        assert client.get("t:torrents." + info_hash(1).hex() + ".users") == b"1"
