"""Debian's Transmission and aria2 download a file from a libtorrent seeder that they find through the tracker.

All other ways to find peers are off, and the torrent is private. Transmission connects to no loopback address, but
accepts connections: so the seeder gets the leecher's address from the tracker and connects.
"""

import json
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

from loadtest.servers import free_port
from tests.e2e.conftest import StartTracker
from tests.e2e.peers import SeederProcess, Share
from tests.e2e.processes import STOP_SECONDS, running
from tests.e2e.requests import announce_path, get, scrape
from tests.waiting import until

pytestmark = pytest.mark.slow
SIZE = 600_000


@dataclass(frozen=True)
class Commands:
    """Commands that run a client and stop its torrent (default: Ctrl-C)."""

    run: Sequence[str]
    stop: Sequence[str] = ()


def transmission(torrent: Path, target: Path) -> Commands:
    """The daemon. It announces ``stopped`` when its torrent is stopped, but not when the daemon ends."""
    (watched := target / "watched").mkdir(parents=True)
    (watched / "it.torrent").write_bytes(torrent.read_bytes())
    off = ("dht-enabled", "lpd-enabled", "pex-enabled", "port-forwarding-enabled", "utp-enabled")
    settings = {
        **dict.fromkeys(off, False),
        "bind-address-ipv4": "127.0.0.1",
        "bind-address-ipv6": "::1",
        "download-dir": str(target),
        "peer-port": free_port(),
        "rpc-bind-address": "127.0.0.1",
        "rpc-port": (rpc_port := free_port()),
        "watch-dir": str(watched),
        "watch-dir-enabled": True,
    }
    (target / "settings.json").write_text(json.dumps(settings))
    run = ["transmission-daemon", "--foreground", "--config-dir", str(target)]
    return Commands(run, ["transmission-remote", f"127.0.0.1:{rpc_port}", "--torrent", "all", "--stop"])


def aria2(torrent: Path, target: Path) -> Commands:
    off = ("enable-dht", "enable-dht6", "bt-enable-lpd", "enable-peer-exchange")
    words = ["--no-conf", *(f"--{name}=false" for name in off), f"--listen-port={free_port()}"]
    return Commands(["aria2c", *words, "--seed-time=10", f"--dir={target}", str(torrent)])


NEEDED = {"transmission-daemon": ("transmission-daemon", "transmission-remote"), "aria2c": ("aria2c",)}
CLIENTS = {"transmission-daemon": transmission, "aria2c": aria2}


# Transmission chooses the peers it serves every 10 s.
@pytest.mark.long
@pytest.mark.parametrize("program", ["transmission-daemon", "aria2c"])
def test_a_client_downloads_a_file_through_the_tracker_alone(
    start_tracker: StartTracker, tmp_path: Path, program: str
) -> None:
    """T1, T6, T7, T8 with the announces of this client: started, completed, stopped."""
    if not all(map(shutil.which, NEEDED[program])):
        pytest.skip(f"no {' and '.join(NEEDED[program])} on this system")
    tracker = start_tracker(TRACKER_ANNOUNCE__INTERVAL_SECONDS="1", TRACKER_REAPER__INTERVAL_SECONDS="600")
    exchange(CLIENTS[program], tmp_path, tracker.url, f"{tracker.url}/announce")


def exchange(client_of: Callable[[Path, Path], Commands], folder: Path, url: str, announce_url: str) -> None:
    """A client that announces to ``announce_url`` downloads a file from a seeder on HTTP, and stops."""
    share, target = Share.make(folder / "source", private=True, size=SIZE), folder / "target"
    seeds, leeches = share.torrent(f"{url}/announce"), share.torrent(announce_url)
    commands = client_of(leeches, target)
    with SeederProcess(seeds, share.folder), running(commands.run, folder / "output") as client:
        until(lambda: scrape(url, share.info_hash) == (2, 0, 1), 45)
        assert share.arrives_in(target)
        if commands.stop:
            subprocess.run(commands.stop, check=True, capture_output=True, timeout=STOP_SECONDS)
        else:
            client.send_signal(signal.SIGINT)
        until(lambda: scrape(url, share.info_hash) == (1, 0, 1), STOP_SECONDS)


def listed(url: str, info_hash: bytes) -> set[tuple[int, bytes]]:
    """Returns port and peer id of each peer in the swarm. A leecher joins, gets the list, and leaves at once."""
    asking: dict[str, Any] = {"info_hash": info_hash, "peer_id": b"-XX0001-an observer.", "port": 9, "left": 1}
    peers = get(url, announce_path(**asking, compact=0, numwant=50))[b"peers"]
    get(url, announce_path(**asking, event="stopped"))
    return {(peer[b"port"], peer[b"peer id"]) for peer in peers}


@pytest.mark.long
@pytest.mark.parametrize("program", ["transmission-daemon", "aria2c"])
def test_a_client_that_is_killed_and_restarted_is_one_peer(
    start_tracker: StartTracker, tmp_path: Path, program: str
) -> None:
    """It announces no ``stopped``, and returns with a new peer id on the same port."""
    if not all(map(shutil.which, NEEDED[program])):
        pytest.skip(f"no {' and '.join(NEEDED[program])} on this system")
    tracker = start_tracker(TRACKER_ANNOUNCE__INTERVAL_SECONDS="600", TRACKER_REAPER__INTERVAL_SECONDS="900")
    share, target = Share.make(tmp_path / "source", private=True, size=SIZE), tmp_path / "target"
    torrent = share.torrent(f"{tracker.url}/announce")
    commands = CLIENTS[program](torrent, target)
    known: set[tuple[int, bytes]] = set()

    def is_back() -> bool:
        return not listed(tracker.url, share.info_hash) <= known

    for start in range(4):
        with running(commands.run, tmp_path / f"output {start}") as client:
            until(is_back, 30)
            now = listed(tracker.url, share.info_hash)
            assert len(now) == 1, "no entry of an earlier start is left"
            known.update(now)
            client.kill()
    assert len(known) == 4 and len({port for port, _ in known}) == 1
