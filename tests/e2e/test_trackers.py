"""Tracker processes that are stopped, killed or without their store, and two trackers on one store."""

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import pytest

from loadtest.servers import Server
from loadtest.trackers import RunningTracker
from tests import commands
from tests.e2e.conftest import StartTracker, addresses
from tests.e2e.requests import announce_path, get, scrape
from tests.frontends.websocket.harness import Browser
from tests.waiting import until

HASH = b"\x01" * 20
SLACK_SECONDS = 0.5
"""Tolerance for a busy machine, added to the promised times."""

StartServer = Callable[..., Server]


def command(tracker: RunningTracker, *words: str, **settings: str) -> dict[str, Any]:
    """Runs a command beside the running tracker and returns the JSON object that it prints."""
    done = commands.run(tracker.log_file.parent, *words, "--json", **settings)
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def peer(number: int) -> bytes:
    return b"-TR4000-%012d" % number


# Stopped and killed


PRIVATE = {"TRACKER_USERS__PRIVATE": "required", "TRACKER_TORRENTS__MODE": "registered"}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.usefixtures("own_interpreter")
def test_torrents_users_totals_and_swarms_survive_stop_and_kill(start_tracker: StartTracker) -> None:
    """T3, T13 and T15 across restarts: credit continues from the stored totals."""
    tracker = start_tracker(**PRIVATE)
    commands.run(tracker.log_file.parent, "torrent", "add", HASH.hex(), "--name", "kept")
    passkey = command(tracker, "user", "add")["passkey"]
    counters: dict[str, object] = {"downloaded": 5, "left": 7, "key": "k"}
    get(tracker.url, announce_path(passkey, uploaded=100, **counters))
    for uploaded, how in ((1100, signal.SIGINT), (3100, signal.SIGKILL)):
        path = announce_path(passkey, uploaded=uploaded, event="", **counters)
        assert get(tracker.url, path)[b"incomplete"] == 1
        tracker.end(how)
        tracker = start_tracker(**PRIVATE)
        assert scrape(tracker.url, HASH, passkey) == (0, 1, 0)
    user = command(tracker, "user", "show", passkey)
    assert (user["user_id"], user["uploaded"], user["downloaded"], user["incomplete"]) == ("1", 3000, 0, 1)
    assert command(tracker, "torrent", "show", HASH.hex())["name"] == "kept"
    assert tracker.end() == 0
    assert passkey not in tracker.log


@pytest.mark.long
@pytest.mark.slow
def test_a_peer_that_times_out_while_no_tracker_runs_is_reaped(start_tracker: StartTracker) -> None:
    """T10: no subscriber received its expiry event."""
    short = {"TRACKER_ANNOUNCE__INTERVAL_SECONDS": "1", "TRACKER_REAPER__INTERVAL_SECONDS": "1.5"}
    tracker = start_tracker(**short)
    get(tracker.url, announce_path())
    announced_at = time.monotonic()
    tracker.end(signal.SIGKILL)
    until(lambda: time.monotonic() > announced_at + 1.6)
    tracker = start_tracker(**short)
    until(lambda: scrape(tracker.url, HASH) == (0, 0, 0), 5)


def test_browsers_of_a_killed_tracker_are_gone_within_three_minutes(
    start_tracker: StartTracker, start_server: StartServer
) -> None:
    server = start_server()
    killed, other = (start_tracker(home, TRACKER_REDIS__URL=server.url) for home in ("killed", "other"))

    async def announce_until_the_kill() -> None:
        async with aiohttp.ClientSession() as session:
            browser = Browser(await session.ws_connect(f"{killed.url}/announce"), "-WW0300-000000000001")
            await browser.announce(info_hash=HASH.decode(), left=0)
            killed.kill()
            await browser.closed()

    asyncio.run(announce_until_the_kill())
    assert scrape(other.url, HASH) == (1, 0, 0)
    with server.client() as client:
        [timeout] = client.scan_iter("t:ptimeout:*")
        assert 0 < client.pttl(timeout) <= 180_000
        client.pexpire(timeout, 1)  # three minutes later
    until(lambda: scrape(other.url, HASH) == (0, 0, 0))


def test_requests_answered_during_a_stop_are_counted(start_tracker: StartTracker, start_server: StartServer) -> None:
    """T20: clients continue to announce after SIGTERM. Every reply is complete, and counts."""
    server = start_server("--appendonly", "no")
    tracker = start_tracker(TRACKER_REDIS__URL=server.url)
    address = addresses(tracker)[0]

    def announce_until_refused(number: int) -> int:
        for answered in range(100_000):
            try:
                reply = get(address, announce_path(peer_id=peer(number), event=""))
            except OSError:  # refused, or closed without a reply; a partial reply fails to decode
                return answered
            assert reply[b"complete"] >= 1
        raise AssertionError("the tracker did not stop")

    with ThreadPoolExecutor(8) as pool:
        counts = [pool.submit(announce_until_refused, number) for number in range(8)]
        with server.client() as store:
            until(lambda: int(store.get("t:stats:announces") or 0) > 20)
        assert tracker.end() == 0
    with server.client() as store:
        assert int(store.get("t:stats:announces") or 0) == sum(count.result() for count in counts)


# The store


@pytest.mark.slow
def test_two_trackers_on_one_store_share_their_peers(start_tracker: StartTracker, start_server: StartServer) -> None:
    """T10: each returns the other's peers, and each peer is reaped once."""
    server = start_server("--appendonly", "no")
    settings = {
        "TRACKER_REDIS__URL": server.url,
        "TRACKER_ANNOUNCE__INTERVAL_SECONDS": "1",
        "TRACKER_REAPER__INTERVAL_SECONDS": "2",
    }
    one, other = start_tracker("one", **settings), start_tracker("other", **settings)
    for number in range(20):
        get((one, other)[number % 2].url, announce_path(peer_id=peer(number), port=7000 + number))
    reply = get(other.url, announce_path(peer_id=peer(99), port=7099, left=1))
    assert (reply[b"complete"], reply[b"incomplete"], len(reply[b"peers"])) == (20, 1, 20 * 6)
    assert scrape(one.url, HASH) == (20, 1, 0)
    until(lambda: scrape(one.url, HASH) == (0, 0, 0), 2 + 5)
    with server.client() as store:
        until(lambda: store.get("t:stats:reaped") == b"21")
        assert (one.end(), other.end()) == (0, 0)  # a graceful stop has written all counts
        assert store.get("t:stats:reaped") == b"21"
        assert store.get("t:stats:repairs") == b"0"
        assert [store.get(f"t:stats:{name}") for name in ("seeders", "leechers")] == [b"0", b"0"]


def fails(reply: dict[bytes, Any]) -> bool:
    return b"failure reason" in reply and reply[b"retry in"] == 1 and reply[b"interval"] > 0


def timed_announce(address: str, number: int) -> tuple[dict[bytes, Any], float]:
    """Announces, and returns the reply and its duration in seconds."""
    began = time.monotonic()
    reply = get(address, announce_path(peer_id=peer(number)))
    return reply, time.monotonic() - began


@pytest.mark.serial
@pytest.mark.parametrize("way", ["stopped", "killed"])
def test_announces_fail_quickly_without_the_store_and_resume_when_it_is_back(
    start_tracker: StartTracker, start_server: StartServer, way: str
) -> None:
    """Announces fail within 1 s, even many at a time, and service resumes within 2 s (BEP 31)."""
    server = start_server()
    tracker = start_tracker(TRACKER_REDIS__URL=server.url, TRACKER_REDIS__TIMEOUT_SECONDS="0.8")
    until(lambda: b"complete" in get(tracker.url, announce_path()), SLACK_SECONDS)
    if way == "killed":
        server.kill()
    else:
        os.kill(server.pid, signal.SIGSTOP)
    for clients in (200, 1):  # the first 200 announce before the outage is detected
        with ThreadPoolExecutor(clients) as pool:
            answers = list(pool.map(lambda number: timed_announce(tracker.url, number), range(clients)))
        assert all(fails(reply) for reply, _ in answers)
        assert max(seconds for _, seconds in answers) < 1 + SLACK_SECONDS
    if way == "killed":
        server.start()
    else:
        os.kill(server.pid, signal.SIGCONT)
    until(lambda: b"complete" in get(tracker.url, announce_path()), 2 + SLACK_SECONDS)
    assert tracker.end() == 0


# Listeners and clients


def test_a_client_that_half_closes_gets_its_reply(start_tracker: StartTracker) -> None:
    tracker = start_tracker()
    assert get(tracker.url, announce_path(), half_close=True)[b"complete"] == 1


def test_one_peer_on_both_families_counts_once(start_tracker: StartTracker) -> None:
    """T1, T19: other peers get both endpoints, each in its own list (BEP 7). The peer itself gets neither."""
    tracker = start_tracker(TRACKER_HTTP__LISTEN="127.0.0.1:0,[::1]:0")
    if len(addresses(tracker)) < 2:
        pytest.skip("this machine has no IPv6 loopback")
    four, six = addresses(tracker)
    get(four, announce_path(key="1F3A9C07"))
    reply = get(six, announce_path(key="1F3A9C07", port=6882))
    assert (reply[b"complete"], reply[b"peers"], reply.get(b"peers6", b"")) == (1, b"", b"")
    assert reply[b"external ip"] == socket.inet_pton(socket.AF_INET6, "::1")
    for address in (four, six):
        reply = get(address, announce_path(peer_id=peer(2), key="other", port=6883, left=1))
        assert reply[b"peers"] == socket.inet_aton("127.0.0.1") + (6881).to_bytes(2, "big")
        assert reply[b"peers6"] == socket.inet_pton(socket.AF_INET6, "::1") + (6882).to_bytes(2, "big")
    assert scrape(six, HASH) == (1, 1, 0)
