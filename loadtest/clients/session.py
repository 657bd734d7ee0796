"""A session of libtorrent that starts with many torrents at once, each with several tracker URLs.

``python -m loadtest.clients.session TORRENTS SECONDS URL...`` announces each torrent to each URL, and prints how many
of these announces got a good reply within so many seconds.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

import libtorrent as lt

BUFFER_BYTES = 4 * 2**20
"""Replies over UDP wait in the client's own buffer. With the system's size, a busy client loses its own."""


def session() -> Any:
    off = dict.fromkeys(("enable_dht", "enable_lsd", "enable_upnp", "enable_natpmp", "ssrf_mitigation"), False)
    unlimited = dict.fromkeys(("active_limit", "active_downloads", "active_seeds", "active_tracker_limit"), -1)
    settings: Any = {
        **off,
        **unlimited,
        "listen_interfaces": "127.0.0.1:0",
        "announce_to_all_trackers": True,
        "announce_to_all_tiers": True,
        "recv_socket_buffer_size": BUFFER_BYTES,
        "alert_queue_size": 1_000_000,
        "alert_mask": lt.alert.category_t.tracker_notification,
    }
    return lt.session(settings)


def add_torrents(to: Any, count: int, urls: Sequence[str], folder: str) -> None:
    for number in range(count):
        torrent = lt.add_torrent_params()
        torrent.info_hashes = lt.info_hash_t(lt.sha1_hash((1 << 80 | number).to_bytes(20, "big")))
        torrent.trackers, torrent.tracker_tiers = list(urls), list(range(len(urls)))
        torrent.save_path = folder
        torrent.flags &= ~(lt.torrent_flags.paused | lt.torrent_flags.auto_managed)
        to.async_add_torrent(torrent)


def good_replies(to: Any, expected: int, seconds: float) -> int:
    found, ends = 0, time.monotonic() + seconds
    while found < expected and time.monotonic() < ends:
        to.wait_for_alert(500)
        found += sum(isinstance(alert, lt.tracker_reply_alert) for alert in to.pop_alerts())
    return found


def main(torrents: int, seconds: float, urls: Sequence[str]) -> None:
    opened = session()
    with tempfile.TemporaryDirectory() as folder:
        add_torrents(opened, torrents, urls, folder)
        print(good_replies(opened, torrents * len(urls), seconds))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
