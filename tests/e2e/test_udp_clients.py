"""U5: more clients over UDP beside HTTP: Debian's libtorrent, qBittorrent, npm's client, and a partial seed."""

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

import libtorrent as lt

from loadtest.bench.loader import BenchError
from loadtest.bench.targets import install_npm
from loadtest.servers import free_port
from tests.e2e.conftest import StartTracker
from tests.e2e.peers import PAYLOAD, Peer, SeederProcess, Share, settings
from tests.e2e.processes import STOP_SECONDS, running
from tests.e2e.requests import get, scrape
from tests.e2e.test_udp import SIZE, udp_url
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.long]
HERE = Path(__file__).parent
SYSTEM_PYTHON = "/usr/bin/python3"
OTHER = "other.bin"


def test_debians_libtorrent_downloads_a_file_over_udp(start_tracker: StartTracker, tmp_path: Path) -> None:
    """An older version than the wheel; Deluge uses it, too."""
    if subprocess.run([SYSTEM_PYTHON, "-c", "import libtorrent"], check=False, capture_output=True).returncode:
        pytest.skip("no python3-libtorrent on this system")
    tracker = start_tracker(TRACKER_UDP__LISTEN="127.0.0.5:0", TRACKER_ANNOUNCE__INTERVAL_SECONDS="1")
    share, target = Share.make(tmp_path / "source", private=True, size=SIZE), tmp_path / "target"
    seeds, leeches = share.torrent(f"{tracker.url}/announce"), share.torrent(udp_url(tracker))
    target.mkdir()
    script, words = str(HERE / "libtorrent_leecher.py"), json.dumps(settings(["127.0.0.1:0"]))
    with (
        SeederProcess(seeds, share.folder),
        subprocess.Popen(
            [SYSTEM_PYTHON, "-I", script, str(leeches), str(target), words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as leecher,
    ):
        assert leecher.stdin is not None and leecher.stdout is not None
        assert leecher.stdout.readline().startswith("finished")
        assert share.arrives_in(target)
        until(lambda: scrape(tracker.url, share.info_hash) == (2, 0, 1))
        leecher.stdin.close()
        until(lambda: scrape(tracker.url, share.info_hash) == (1, 0, 1), STOP_SECONDS)
        leecher.kill()


def test_qbittorrent_downloads_a_file_over_udp(start_tracker: StartTracker, tmp_path: Path) -> None:
    if not shutil.which("qbittorrent-nox"):
        pytest.skip("no qbittorrent-nox on this system")
    tracker = start_tracker(TRACKER_UDP__LISTEN="127.0.0.6:0")
    share, target = Share.make(tmp_path / "source", private=True, size=SIZE), tmp_path / "target"
    seeds, leeches = share.torrent(f"{tracker.url}/announce"), share.torrent(udp_url(tracker))
    configuration = target / "qBittorrent" / "config" / "qBittorrent.conf"
    configuration.parent.mkdir(parents=True)
    options = {"InterfaceAddress": "127.0.0.1", "Port": free_port(), "MultiConnectionsPerIp": "true"}
    options |= dict.fromkeys(("DHTEnabled", "LSDEnabled", "PeXEnabled"), "false")
    lines = [f"Session\\{name}={value}" for name, value in options.items()]
    configuration.write_text("\n".join(["[LegalNotice]", "Accepted=true", "[BitTorrent]", *lines, ""]))
    words = [f"--profile={target}", f"--webui-port={free_port()}", f"--save-path={target}"]
    command = ["qbittorrent-nox", *words, "--skip-dialog=true", str(leeches)]
    with SeederProcess(seeds, share.folder), running(command, tmp_path / "output") as client:
        until(lambda: sum(scrape(tracker.url, share.info_hash)[:2]) == 2, 45)
        assert share.arrives_in(target)
        client.send_signal(signal.SIGTERM)
        until(lambda: sum(scrape(tracker.url, share.info_hash)[:2]) == 1, STOP_SECONDS)


def test_npms_client_announces_and_scrapes_over_udp(start_tracker: StartTracker, tmp_path: Path) -> None:
    """It says that 2^64 - 1 bytes are left, sends no key, and connects for each request from a new socket."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("no node and npm on this system")
    try:
        packages = install_npm()
    except BenchError as error:
        pytest.skip(str(error))
    (tmp_path / "node_modules").symlink_to(packages / "node_modules")
    script = shutil.copy(HERE / "npm_client.mjs", tmp_path)
    tracker, info_hash = start_tracker(), bytes(range(1, 21))
    seed = tracker.announce(info_hash=quote_from_bytes(info_hash), port="6882", left="0")
    assert seed[b"complete"] == 1
    words = [udp_url(tracker), info_hash.hex(), b"-WW0001-abcdefghijkl".hex(), "6881"]
    done = subprocess.run(["node", script, *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    said: list[Any] = [json.loads(line) for line in done.stdout.splitlines()]
    assert ["peer", "127.0.0.1:6882"] in said
    kinds = dict(map(tuple, said))
    assert (kinds["started"], kinds["completed"], kinds["stopped"]) == ([1, 1], [2, 0], [1, 0])
    assert (kinds["scrape"]["complete"], kinds["scrape"]["downloaded"]) == (1, 1)


def test_a_partial_seed_over_udp_is_no_downloader(start_tracker: StartTracker, tmp_path: Path) -> None:
    """libtorrent announces a finished selection of files with event 4, ``paused`` (BEP 21)."""
    tracker = start_tracker(TRACKER_UDP__LISTEN="127.0.0.7:0", TRACKER_ANNOUNCE__INTERVAL_SECONDS="1")
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "two").mkdir(parents=True)
    for name in (PAYLOAD, OTHER):
        (source / "two" / name).write_bytes(name.encode() * 20_000)
    entries = [lt.create_file_entry(f"two/{name}", (source / "two" / name).stat().st_size) for name in (PAYLOAD, OTHER)]
    creator = lt.create_torrent(entries, piece_size=16 * 1024, flags=lt.create_torrent.v1_only)
    creator.set_priv(True)
    lt.set_piece_hashes(creator, str(source))
    share = Share(source, b"", creator.generate())
    seeds, leeches = share.torrent(f"{tracker.url}/announce"), share.torrent(udp_url(tracker))
    with SeederProcess(seeds, source), Peer(leeches, target, file_priorities=[4, 0]) as leecher:
        leecher.until("torrent_finished")
        leecher.announce_until(lambda: _counts(tracker.url, share.info_hash) == (1, 1, 0))


def _counts(url: str, info_hash: bytes) -> tuple[int, int, int]:
    """Seeders, leechers, and those of them that download."""
    (found,) = get(url, f"/scrape?info_hash={quote_from_bytes(info_hash)}")[b"files"].values()
    return found[b"complete"], found[b"incomplete"], found[b"downloaders"]
