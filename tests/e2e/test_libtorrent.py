"""A seeder and a leecher of libtorrent, which many clients use, find each other through the tracker and exchange a
file."""

import json
import socket
from pathlib import Path

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

from loadtest.trackers import RunningTracker
from tests import commands
from tests.e2e.conftest import StartTracker, addresses
from tests.e2e.peers import LOOPBACK, LOOPBACK6, Peer, SeederProcess, Share
from tests.e2e.requests import scrape
from tests.waiting import until

pytestmark = pytest.mark.slow
TIMEOUT_SECONDS = 4
SHORT = {
    "TRACKER_ANNOUNCE__INTERVAL_SECONDS": "1",
    "TRACKER_ANNOUNCE__INTERVAL_JITTER": "0",
    "TRACKER_REAPER__INTERVAL_SECONDS": str(TIMEOUT_SECONDS),
}


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")


@pytest.mark.parametrize("listen", [LOOPBACK, pytest.param(LOOPBACK6, marks=[needs_ipv6, pytest.mark.long])])
def test_a_file_is_exchanged_and_peers_stop_or_time_out(
    start_tracker: StartTracker, tmp_path: Path, listen: str
) -> None:
    """T1, T6, T7, T8, T9, T18 with a real client: exchange, scrape, stop, timeout."""
    tracker = start_tracker(TRACKER_HTTP__LISTEN=listen, **SHORT)
    [address] = addresses(tracker)
    share = Share.make(tmp_path / "source")
    torrent, target = share.torrent(f"{address}/announce"), tmp_path / "target"
    with SeederProcess(torrent, share.folder, listen) as seeder:
        assert scrape(address, share.info_hash) == (1, 0, 0)
        with Peer(torrent, target, listen) as leecher:
            leecher.until("torrent_finished")
            assert share.arrives_in(target)
            leecher.announce_until(lambda: scrape(address, share.info_hash) == (2, 0, 1))
            leecher.handle.scrape_tracker()
            reply = leecher.until("scrape_reply")
            assert (reply["complete"], reply["incomplete"]) == (2, 0)
            leecher.leave()
            until(lambda: scrape(address, share.info_hash) == (1, 0, 1))
        seeder.kill()
        assert scrape(address, share.info_hash) == (1, 0, 1)  # the peer has not timed out yet
        until(lambda: scrape(address, share.info_hash) == (0, 0, 1), TIMEOUT_SECONDS + 5)
    assert tracker.end() == 0


@needs_ipv6
def test_a_seeder_on_both_families_is_one_peer_and_serves_both(start_tracker: StartTracker, tmp_path: Path) -> None:
    """T19: two endpoints with one peer id and key count once (BEP 7)."""
    tracker = start_tracker(TRACKER_HTTP__LISTEN=f"{LOOPBACK},{LOOPBACK6}")
    urls = [f"{address}/announce" for address in addresses(tracker)]
    share = Share.make(tmp_path / "source", size=500_000)
    with Peer(share.torrent(*urls), share.folder, LOOPBACK, LOOPBACK6) as seeder:
        for url in urls:
            seeder.until("tracker_reply", tracker_url=url)
        assert scrape(tracker.url, share.info_hash) == (1, 0, 0)
        for url, listen in zip(urls, (LOOPBACK, LOOPBACK6), strict=True):
            target = tmp_path / listen[:4]
            with Peer(share.torrent(url), target, listen) as leecher:
                leecher.until("torrent_finished")
                assert share.arrives_in(target)
                leecher.announce_until(lambda: scrape(tracker.url, share.info_hash)[:2] == (2, 0))
        assert scrape(tracker.url, share.info_hash) == (1, 0, 2)


# Private


PRIVATE = {
    "TRACKER_USERS__PRIVATE": "required",
    "TRACKER_TORRENTS__MODE": "registered",
    "TRACKER_HTTP__ACCESS_LOG": "true",
    "TRACKER_LOG__LEVEL": "debug",
}
LOOPBACK_RATE = 10**12
"""Bytes per second, more than any loopback interface transfers."""


def command(tracker: RunningTracker, *words: str) -> str:
    """Runs a command beside the running tracker and returns its output."""
    done = commands.run(tracker.log_file.parent, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def add_user(tracker: RunningTracker) -> str:
    """Adds a user and returns the passkey."""
    return str(json.loads(command(tracker, "user", "add", "--json"))["passkey"])


def user_totals(tracker: RunningTracker, passkey: str) -> dict[str, int]:
    shown: dict[str, int] = json.loads(command(tracker, "user", "show", passkey, "--json"))
    return shown


def test_users_of_a_private_tracker_are_credited(start_tracker: StartTracker, tmp_path: Path) -> None:
    """T2, T5, T7, T13: passkeys in the URL, a registered torrent, totals by user.

    The loopback interface transfers the file in 20 ms, above the default credit rate of 10 Gbit/s.
    """
    tracker = start_tracker(TRACKER_USERS__MAX_CREDIT_BYTES_PER_SECOND=str(LOOPBACK_RATE), **PRIVATE)
    share = Share.make(tmp_path / "source", private=True)
    passkeys = seeds, leeches = [add_user(tracker), add_user(tracker)]
    torrents = [share.torrent(f"{tracker.url}/{passkey}/announce") for passkey in passkeys]
    assert share.info_hash.hex() in command(tracker, "torrent", "add", str(torrents[0]))
    with Peer(torrents[0], share.folder) as seeder:
        seeder.until("tracker_reply")
        with Peer(torrents[1], tmp_path / "target") as leecher:
            leecher.until("torrent_finished")
            assert share.arrives_in(tmp_path / "target")
            leecher.announce_until(lambda: scrape(tracker.url, share.info_hash, leeches) == (2, 0, 1))
    assert scrape(tracker.url, share.info_hash, leeches) == (0, 0, 1)
    fetched, given = user_totals(tracker, leeches), user_totals(tracker, seeds)
    assert fetched["downloaded"] >= len(share.content)
    assert (fetched["snatches"], fetched["complete"], fetched["incomplete"]) == (1, 1, 0)
    assert given["uploaded"] >= len(share.content)
    assert (given["downloaded"], given["snatches"], given["active"]) == (0, 0, 0)
    assert tracker.end() == 0
    assert "request" in tracker.log
    assert not any(passkey in tracker.log for passkey in passkeys)


@pytest.mark.long
def test_users_and_others_share_a_swarm_where_accounts_are_optional(
    start_tracker: StartTracker, tmp_path: Path
) -> None:
    """A seeder with a passkey, a leecher without, and one whose torrent has both announce URLs: it is one peer."""
    tracker = start_tracker(
        TRACKER_USERS__PRIVATE="optional", TRACKER_USERS__MAX_CREDIT_BYTES_PER_SECOND=str(LOOPBACK_RATE)
    )
    share = Share.make(tmp_path / "source")
    seeds, leeches = add_user(tracker), add_user(tracker)
    anonymous = f"{tracker.url}/announce"
    with Peer(share.torrent(f"{tracker.url}/{seeds}/announce"), share.folder) as seeder:
        seeder.until("tracker_reply")
        with Peer(share.torrent(anonymous), tmp_path / "without") as leecher:
            leecher.until("torrent_finished")
            assert share.arrives_in(tmp_path / "without")
            leecher.announce_until(lambda: scrape(tracker.url, share.info_hash) == (2, 0, 1))
        assert scrape(tracker.url, share.info_hash) == (1, 0, 1)
        with Peer(share.torrent(f"{tracker.url}/{'x' * 32}/announce"), tmp_path / "without") as stranger:
            assert "unknown passkey" in stranger.until("tracker_warning")["text"]
            assert scrape(tracker.url, share.info_hash)[0] == 2
        both = share.torrent(f"{tracker.url}/{leeches}/announce", anonymous)
        with Peer(both, tmp_path / "both") as leecher:
            leecher.until("torrent_finished")
            assert share.arrives_in(tmp_path / "both")
            leecher.announce_until(lambda: scrape(tracker.url, share.info_hash) == (2, 0, 2))
    assert scrape(tracker.url, share.info_hash) == (0, 0, 2)
    fetched, given = user_totals(tracker, leeches), user_totals(tracker, seeds)
    assert fetched["downloaded"] >= len(share.content)
    assert (fetched["snatches"], fetched["complete"], fetched["active"]) == (1, 1, 0)
    assert given["uploaded"] >= 2 * len(share.content)
    assert (given["downloaded"], given["snatches"], given["active"]) == (0, 0, 0)


@pytest.mark.long
def test_a_client_without_a_valid_passkey_gets_the_reason_and_no_peers(
    start_tracker: StartTracker, tmp_path: Path
) -> None:
    """T2: the client shows its user the reason."""
    tracker = start_tracker(**PRIVATE)
    share = Share.make(tmp_path / "source", private=True, size=100_000)
    urls = [f"{tracker.url}/announce", f"{tracker.url}/{'x' * 32}/announce"]
    with Peer(share.torrent(*urls), share.folder) as peer:
        for url in urls:
            assert "passkey" in peer.until("tracker_error", tracker_url=url)["text"]
    assert command(tracker, "torrent", "list", "--json") == ""


@pytest.mark.long
def test_a_hybrid_torrent_is_served_by_its_truncated_v2_hash(start_tracker: StartTracker, tmp_path: Path) -> None:
    """BEP 52: only the v2 hash is registered, so all peers are found by its first 20 bytes."""
    tracker = start_tracker(TRACKER_TORRENTS__MODE="registered")
    share = Share.make(tmp_path / "source", hybrid=True)
    v2 = share.info_hash_v2
    assert v2[:20].hex() in command(tracker, "torrent", "add", v2.hex())
    torrent = share.torrent(f"{tracker.url}/announce")
    with Peer(torrent, share.folder) as seeder:
        seeder.until("tracker_reply")
        assert "not registered" in seeder.until("tracker_error")["text"]
        with Peer(torrent, tmp_path / "target") as leecher:
            leecher.until("torrent_finished")
            assert share.arrives_in(tmp_path / "target")
            leecher.announce_until(lambda: scrape(tracker.url, v2[:20]) == (2, 0, 1))
    assert scrape(tracker.url, v2[:20]) == (0, 0, 1)
    assert scrape(tracker.url, share.info_hash) == (0, 0, 0)


def test_a_hybrid_torrent_counts_once_for_users(start_tracker: StartTracker, tmp_path: Path) -> None:
    """libtorrent announces both info hashes, each with the totals of the whole torrent. Users may download one torrent
    at once, and have to seed for an hour."""
    tracker = start_tracker(
        TRACKER_USERS__MAX_CREDIT_BYTES_PER_SECOND=str(LOOPBACK_RATE),
        TRACKER_USERS__MAX_DOWNLOADS="1",
        TRACKER_USERS__HNR_MIN_BYTES="1000",
        TRACKER_USERS__HNR_THRESHOLD_SECONDS="3600",
        TRACKER_USERS__HNR_RATIO="0",
        TRACKER_USERS__HNR_GRACE_SECONDS="3600",
        **PRIVATE,
    )
    share = Share.make(tmp_path / "source", private=True, hybrid=True, size=6_000_000)
    v1, v2 = share.info_hash, share.info_hash_v2[:20]
    seeds, leeches = add_user(tracker), add_user(tracker)
    torrents = [share.torrent(f"{tracker.url}/{passkey}/announce") for passkey in (seeds, leeches)]
    assert len(command(tracker, "torrent", "add", str(torrents[0])).splitlines()) == 2
    with Peer(torrents[0], share.folder):
        until(lambda: [scrape(tracker.url, each, seeds)[0] for each in (v1, v2)] == [1, 1])
        with Peer(torrents[1], tmp_path / "target") as leecher:
            leecher.until("torrent_finished")
            assert share.arrives_in(tmp_path / "target")
            leecher.announce_until(lambda: scrape(tracker.url, v1, leeches) == (2, 0, 1))
            leecher.announce_until(lambda: scrape(tracker.url, v2, leeches) == (2, 0, 0))
            assert "too many" not in str(leecher.alerts) and "one first" not in str(leecher.alerts)
            assert user_totals(tracker, leeches)["active"] == 1
    assert (scrape(tracker.url, v1, leeches), scrape(tracker.url, v2, leeches)) == ((0, 0, 1), (0, 0, 0))
    fetched, given = user_totals(tracker, leeches), user_totals(tracker, seeds)
    assert (fetched["downloaded"], fetched["uploaded"]) == (6_000_000, 0)
    assert (given["downloaded"], given["uploaded"]) == (0, 6_000_000)
    assert [fetched[name] for name in ("snatches", "active", "complete", "incomplete")] == [1, 0, 1, 0]
    (pending,) = command(tracker, "user", "pending", "--json").splitlines()
    assert json.loads(pending)["info_hash"] == v1.hex()
