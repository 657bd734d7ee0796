"""Clients announce with a passkey in each form of announce URL, as sites that move here have them in their files."""

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

from tests.e2e.conftest import StartTracker
from tests.e2e.peers import Peer, Share
from tests.e2e.processes import STOP_SECONDS, running
from tests.e2e.requests import scrape
from tests.e2e.test_libtorrent import PRIVATE, add_user, command, user_totals
from tests.e2e.test_other_clients import CLIENTS, NEEDED
from tests.e2e.test_udp import udp_url
from tests.waiting import until

FORMS = ("/{}/announce", "/announce/{}", "/announce?passkey={}")
SIZE = 100_000


def test_libtorrent_announces_and_scrapes_with_each_form(start_tracker: StartTracker, tmp_path: Path) -> None:
    tracker = start_tracker(**PRIVATE)
    share, passkey = Share.make(tmp_path / "source", private=True, size=SIZE), add_user(tracker)
    for number, form in enumerate(FORMS):
        torrent = share.torrent(tracker.url + form.format(passkey))
        if number == 0:
            command(tracker, "torrent", "add", str(torrent))
        with Peer(torrent, tmp_path / str(number)) as leecher:
            leecher.until("tracker_reply")
            assert scrape(tracker.url, share.info_hash, passkey) == (0, 1, 0)
            leecher.handle.scrape_tracker()
            assert leecher.until("scrape_reply")["incomplete"] == 1
        until(lambda: scrape(tracker.url, share.info_hash, passkey) == (0, 0, 0))
    until(lambda: user_totals(tracker, passkey)["announces"] == 2 * len(FORMS))
    assert tracker.end() == 0
    assert passkey not in tracker.log + tracker.banner


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("program", CLIENTS)
def test_other_clients_announce_with_each_form(
    start_tracker: StartTracker, tmp_path: Path, program: str, form: str
) -> None:
    if not all(map(shutil.which, NEEDED[program])):
        pytest.skip(f"no {' and '.join(NEEDED[program])} on this system")
    tracker = start_tracker(**PRIVATE)
    share, passkey = Share.make(tmp_path / "source", private=True, size=SIZE), add_user(tracker)
    torrent = share.torrent(tracker.url + form.format(passkey))
    command(tracker, "torrent", "add", str(torrent))
    commands = CLIENTS[program](torrent, tmp_path / "target")
    with running(commands.run, tmp_path / "output") as client:
        until(lambda: scrape(tracker.url, share.info_hash, passkey) == (0, 1, 0), 30)
        assert user_totals(tracker, passkey)["active"] == 1
        if commands.stop:
            subprocess.run(commands.stop, check=True, capture_output=True, timeout=STOP_SECONDS)
        else:
            client.send_signal(signal.SIGINT)
        until(lambda: scrape(tracker.url, share.info_hash, passkey) == (0, 0, 0), STOP_SECONDS)
    assert tracker.end() == 0
    assert passkey not in tracker.log + tracker.banner


@pytest.mark.long
def test_libtorrent_announces_with_each_form_over_udp(start_tracker: StartTracker, tmp_path: Path) -> None:
    """It sends the path and query of its URL (BEP 41)."""
    tracker = start_tracker(TRACKER_UDP__LISTEN="127.0.0.8:0", **PRIVATE)
    share, passkeys = (Share.make(tmp_path / "source", private=True, size=SIZE), [add_user(tracker) for _ in FORMS])
    torrents = [
        share.torrent(udp_url(tracker, form.format(passkey))) for form, passkey in zip(FORMS, passkeys, strict=True)
    ]
    command(tracker, "torrent", "add", str(torrents[0]))
    for passkey, torrent in zip(passkeys, torrents, strict=True):
        with Peer(torrent, tmp_path / passkey) as leecher:
            leecher.until("tracker_reply")
            assert user_totals(tracker, passkey)["active"] == 1
    assert tracker.end() == 0
    assert not [passkey for passkey in passkeys if passkey in tracker.log + tracker.banner]
