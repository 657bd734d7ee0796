"""A leecher for interpreters without the project's packages: ``python3 libtorrent_leecher.py TORRENT FOLDER SETTINGS``.

SETTINGS is JSON. Prints a line when the file is complete, then announces every second. Announces ``stopped`` when
its input ends.
"""

import json
import select
import sys
import time
from typing import Any

import libtorrent as lt


def main(torrent: str, folder: str, settings: str) -> None:
    session = lt.session(json.loads(settings))
    parameters = lt.load_torrent_file(torrent)
    parameters.save_path = folder
    handle = session.add_torrent(parameters)
    while not handle.status().is_seeding:
        time.sleep(0.05)
    print(f"finished with libtorrent {lt.__version__}", flush=True)  # noqa: T201  # what the test waits for
    # If the download finished during an announce, libtorrent reports it in the next one.
    while not select.select([sys.stdin], [], [], 1)[0]:
        handle.force_reannounce(0, -1, lt.reannounce_flags_t.ignore_min_interval)
    while is_announcing(handle):  # libtorrent sends no `stopped` before the reply to the last announce
        time.sleep(0.05)
    session.remove_torrent(handle)
    time.sleep(60)  # a thread of libtorrent does it; the test ends this process


def is_announcing(handle: Any) -> bool:
    endpoints = [each for tracker in handle.trackers() for each in tracker["endpoints"]]
    return any(announce["updating"] for each in endpoints for announce in each["info_hashes"])


if __name__ == "__main__":
    main(*sys.argv[1:])
