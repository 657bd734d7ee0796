"""Clients that announce over UDP find clients that announce over HTTP, and exchange a file with them.

All other ways to find peers are off, and the torrent is private, so the tracker alone connects them.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

from loadtest.servers import free_port
from loadtest.trackers import RunningTracker
from tests.e2e.conftest import StartTracker, addresses
from tests.e2e.peers import LOOPBACK, LOOPBACK6, Peer, SeederProcess, Share
from tests.e2e.processes import running
from tests.e2e.requests import scrape
from tests.e2e.test_libtorrent import LOOPBACK_RATE, PRIVATE, add_user, command, needs_ipv6, user_totals
from tests.e2e.test_other_clients import Commands, exchange, transmission
from tests.waiting import until

pytestmark = pytest.mark.slow
SIZE = 600_000


def udp_url(tracker: RunningTracker, path: str = "/announce") -> str:
    found = re.search(r"udp://[^/\s]+", tracker.banner)
    assert found, tracker.banner
    return found[0] + path


# A process with libtorrent keeps one connection id per address of trackers, whatever their port, for a minute. So each
# test of this process has an address of its own.
@pytest.mark.parametrize(
    ("listen", "udp"),
    [(LOOPBACK, "127.0.0.2:0"), pytest.param(LOOPBACK6, "[::1]:0", marks=[needs_ipv6, pytest.mark.long])],
)
def test_a_leecher_over_udp_finds_a_seeder_over_http(
    start_tracker: StartTracker, tmp_path: Path, listen: str, udp: str
) -> None:
    tracker = start_tracker(
        TRACKER_HTTP__LISTEN=listen,
        TRACKER_UDP__LISTEN=udp,
        TRACKER_HTTP__WORKERS="2",
        TRACKER_ANNOUNCE__INTERVAL_SECONDS="1",
    )
    [address] = addresses(tracker)
    share, target = Share.make(tmp_path / "source", private=True), tmp_path / "target"
    seeds, leeches = share.torrent(f"{address}/announce"), share.torrent(udp_url(tracker))
    with SeederProcess(seeds, share.folder, listen), Peer(leeches, target, listen) as leecher:
        leecher.until("torrent_finished")
        assert share.arrives_in(target)
        leecher.announce_until(lambda: scrape(address, share.info_hash) == (2, 0, 1))
        leecher.handle.scrape_tracker()
        reply = leecher.until("scrape_reply")
        assert (reply["complete"], reply["incomplete"]) == (2, 0)
        leecher.leave()
        until(lambda: scrape(address, share.info_hash) == (1, 0, 1))
    assert tracker.end() == 0


def test_a_client_with_both_urls_is_one_peer(start_tracker: StartTracker, tmp_path: Path) -> None:
    tracker = start_tracker(TRACKER_UDP__LISTEN="127.0.0.3:0")
    share = Share.make(tmp_path / "source", private=True)
    urls = f"{tracker.url}/announce", udp_url(tracker)
    with Peer(share.torrent(*urls), share.folder) as seeder:
        for url in urls:
            seeder.until("tracker_reply", tracker_url=url)
        assert scrape(tracker.url, share.info_hash) == (1, 0, 0)


@pytest.mark.long
def test_users_are_credited_over_udp(start_tracker: StartTracker, tmp_path: Path) -> None:
    """libtorrent sends the path of its URL, with the passkey (BEP 41)."""
    tracker = start_tracker(
        TRACKER_USERS__MAX_CREDIT_BYTES_PER_SECOND=str(LOOPBACK_RATE), TRACKER_UDP__LISTEN="127.0.0.4:0", **PRIVATE
    )
    share = Share.make(tmp_path / "source", private=True)
    seeds, leeches = add_user(tracker), add_user(tracker)
    torrents = [share.torrent(udp_url(tracker, f"/{passkey}/announce")) for passkey in (seeds, leeches)]
    command(tracker, "torrent", "add", str(torrents[0]))
    with Peer(torrents[0], share.folder) as seeder:
        seeder.until("tracker_reply")
        with Peer(torrents[1], tmp_path / "target") as leecher:
            leecher.until("torrent_finished")
            leecher.announce_until(lambda: user_totals(tracker, leeches)["downloaded"] > 0)
    assert seeds not in tracker.log and leeches not in tracker.log


def aria2(torrent: Path, target: Path) -> Commands:
    """It uses UDP trackers only with its DHT, which finds no node without an entry point."""
    words = ["--no-conf", "--enable-dht=true", f"--dht-listen-port={free_port()}", "--enable-dht6=false"]
    words += ["--bt-enable-lpd=false", "--enable-peer-exchange=false", f"--dht-file-path={target}.dht"]
    words += [f"--listen-port={free_port()}", "--seed-time=10", f"--dir={target}"]
    return Commands(["aria2c", *words, str(torrent)])


def rtorrent(torrent: Path, target: Path) -> Commands:
    """It needs a terminal."""
    target.mkdir(parents=True)
    port = free_port()
    options = {
        "trackers.use_udp.set": "yes",
        "network.bind_address.set": "127.0.0.1",
        "network.local_address.set": "127.0.0.1",
        "network.port_range.set": f"{port}-{port}",
        "directory.default.set": str(target),
        "dht.mode.set": "disable",
        "protocol.pex.set": "no",
    }
    words = " ".join(f"-o {name}={value}" for name, value in options.items())
    return Commands(["script", "-qec", f"rtorrent -n {words} {torrent}", "/dev/null"])


CLIENTS: dict[str, Callable[[Path, Path], Commands]] = {"transmission-daemon": transmission, "aria2c": aria2}


# Transmission chooses the peers it serves every 10 s.
@pytest.mark.long
@pytest.mark.parametrize("program", CLIENTS)
def test_other_clients_download_a_file_over_udp(start_tracker: StartTracker, tmp_path: Path, program: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"no {program} on this system")
    tracker = start_tracker(TRACKER_ANNOUNCE__INTERVAL_SECONDS="1", TRACKER_REAPER__INTERVAL_SECONDS="600")
    exchange(CLIENTS[program], tmp_path, tracker.url, udp_url(tracker))


@pytest.mark.long
def test_rtorrent_downloads_a_file_over_udp(start_tracker: StartTracker, tmp_path: Path) -> None:
    """It tells the tracker of the end after its own minimum interval, minutes later."""
    if not shutil.which("rtorrent") or not shutil.which("script"):
        pytest.skip("no rtorrent on this system")
    tracker = start_tracker()
    share, target = Share.make(tmp_path / "source", private=True, size=SIZE), tmp_path / "target"
    commands = rtorrent(share.torrent(udp_url(tracker)), target)
    seeds = share.torrent(f"{tracker.url}/announce")
    with SeederProcess(seeds, share.folder), running(commands.run, tmp_path / "output"):
        until(lambda: sum(scrape(tracker.url, share.info_hash)[:2]) == 2, 45)
        assert share.arrives_in(target)
