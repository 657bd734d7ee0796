"""Sessions of libtorrent with many torrents: a seedbox that starts them all, and a leecher that gets peers for each
(row T33)."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

import libtorrent as lt

from loadtest.trackers import RunningTracker
from tests.e2e.conftest import StartTracker
from tests.e2e.peers import LOOPBACK, settings
from tests.e2e.test_libtorrent import LOOPBACK_RATE, add_user, command
from tests.waiting import until
from tracker.core.warning_messages import NO_PEERS_NOW

pytestmark = pytest.mark.slow
SIZE = 16384
SECONDS = 240
MANY: dict[str, Any] = {
    "active_downloads": -1,
    "active_seeds": -1,
    "active_limit": -1,
    "active_tracker_limit": -1,
    "max_concurrent_http_announces": 50,
    "alert_queue_size": 1_000_000,
    "min_reconnect_time": 1,  # a connection that failed while all torrents start at once is tried again soon
    "alert_mask": lt.alert.category_t.tracker_notification | lt.alert.category_t.error_notification,
}


class Session:
    """One client with many torrents of one small file each."""

    def __init__(self, files: Path, torrents: list[Any], url: str) -> None:
        with_many: Any = {**settings((LOOPBACK,)), **MANY}
        self.session = lt.session(with_many)
        self.errors: list[str] = []
        self.warnings: list[str] = []
        self.replies: dict[str, int] = {}
        """By name of the torrent: peers in the first reply."""
        files.mkdir(exist_ok=True)
        for info in torrents:
            parameters = lt.add_torrent_params()
            parameters.ti, parameters.save_path, parameters.trackers = info, str(files), [url]
            parameters.flags |= lt.torrent_flags.disable_pex
            parameters.flags &= ~(lt.torrent_flags.auto_managed | lt.torrent_flags.paused)
            self.session.async_add_torrent(parameters)

    def answered(self) -> int:
        """How many torrents have had a reply."""
        for alert in self.session.pop_alerts():
            if isinstance(alert, lt.tracker_reply_alert):
                self.replies.setdefault(alert.torrent_name, alert.num_peers)
            elif isinstance(alert, lt.tracker_error_alert):
                self.errors.append(alert.message())
            elif isinstance(alert, lt.tracker_warning_alert):
                self.warnings.append(alert.message())
        return len(self.replies)

    def complete(self) -> int:
        return sum(handle.status().is_seeding for handle in self.session.get_torrents())


def make_torrents(folder: Path, count: int) -> Iterator[Any]:
    folder.mkdir()
    for number in range(count):
        name = f"{number:05}.bin"
        (folder / name).write_bytes(number.to_bytes(4, "big") * (SIZE // 4))
        creator = lt.create_torrent(
            [lt.create_file_entry(name, SIZE)], piece_size=SIZE, flags=lt.create_torrent.v1_only
        )
        creator.set_priv(True)
        lt.set_piece_hashes(creator, str(folder))
        yield lt.torrent_info(lt.bencode(creator.generate()))


def started(start_tracker: StartTracker) -> tuple[RunningTracker, list[str]]:
    """A tracker that accepts any torrent, and the announce URLs of two users."""
    tracker = start_tracker(
        TRACKER_USERS__PRIVATE="required", TRACKER_USERS__MAX_CREDIT_BYTES_PER_SECOND=str(LOOPBACK_RATE)
    )
    return tracker, [f"{tracker.url}/{add_user(tracker)}/announce" for _ in range(2)]


def peers(tracker: RunningTracker) -> int:
    """In all swarms."""
    torrents = map(json.loads, command(tracker, "torrent", "list", "--json").splitlines())
    return sum(torrent["seeders"] + torrent["leechers"] for torrent in torrents)


@pytest.mark.parametrize("count", [150, pytest.param(5000, marks=pytest.mark.long)])
def test_a_seedbox_that_starts_all_its_torrents_is_in_all_swarms(
    start_tracker: StartTracker, tmp_path: Path, count: int
) -> None:
    """A leecher waits in each, so each reply would have a peer. At first 75 have; the client shows no error."""
    tracker, (seeds, leeches) = started(start_tracker)
    torrents = list(make_torrents(tmp_path / "files", count))
    leecher = Session(tmp_path / "target", torrents, leeches)
    until(lambda: leecher.answered() == count, SECONDS)
    seedbox = Session(tmp_path / "files", torrents, seeds)
    until(lambda: seedbox.answered() == count, SECONDS)
    assert peers(tracker) == 2 * count
    assert seedbox.errors == leecher.errors == []
    assert any(NO_PEERS_NOW in warning for warning in seedbox.warnings)
    with_peers = sum(number > 0 for number in seedbox.replies.values())
    assert 75 <= with_peers < count
    until(lambda: leecher.complete() >= with_peers, SECONDS)


def test_a_leecher_that_starts_a_hundred_torrents_gets_peers_for_all(
    start_tracker: StartTracker, tmp_path: Path
) -> None:
    _, (seeds, leeches) = started(start_tracker)
    torrents = list(make_torrents(tmp_path / "files", 100))
    seedbox = Session(tmp_path / "files", torrents, seeds)
    until(lambda: seedbox.answered() == 100)
    leecher = Session(tmp_path / "target", torrents, leeches)
    until(lambda: leecher.answered() == 100)
    assert set(leecher.replies.values()) == {1}
    until(lambda: leecher.complete() == 100)
    assert seedbox.errors == leecher.errors == []
    assert not any(NO_PEERS_NOW in warning for warning in seedbox.warnings + leecher.warnings)
