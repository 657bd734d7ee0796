"""The sync in the tracker's own process, as it runs by default, and the rules that come with UNIT3D's preset."""

import json
import re
import subprocess
import sys
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from loadtest import trackers
from loadtest.databases import Site
from loadtest.trackers import RunningTracker
from tests.commands import Command
from tests.store.harness import info_hash
from tests.waiting import until
from tests.workers.site.harness import passkey
from tracker.core.warning_messages import NO_SLOT

DEADLINE = 5.0


def announce(tracker: RunningTracker, user: int, torrent: int = 1, **changes: str) -> dict[bytes, object]:
    escaped = "".join(f"%{byte:02x}" for byte in info_hash(torrent))
    named = {"info_hash": escaped, "peer_id": f"-TR4000-{user:012d}", "port": str(6000 + user), **changes}
    return tracker.announce(passkey(user), **named)


def metrics(tracker: RunningTracker, token: str) -> dict[str, float]:
    with closing(HTTPConnection(tracker.admin_url.removeprefix("http://"), timeout=trackers.SECONDS)) as connection:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
        lines = connection.getresponse().read().decode().splitlines()
    return {
        name: float(value) for name, value in (line.split(" ") for line in lines if line.startswith("tracker_site"))
    }


@pytest.fixture
def settings(
    tracker: Command, unit3d: Site, redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """Of a tracker; its users 7 and 8 and torrents 1 and 2 are imported."""
    settings = {
        "TRACKER_REDIS__URL": redis_url,
        "TRACKER_REDIS__PREFIX": prefix,
        "TRACKER_USERS__PRIVATE": "required",
        "TRACKER_TORRENTS__MODE": "registered",
        "TRACKER_CHANGES__MAX_ENTRIES": "100000",
        "TRACKER_CHANGES__UPDATES_SECONDS": "1",
        "TRACKER_SITE__DATABASE": unit3d.url,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    unit3d.sql(
        "INSERT INTO `groups` (id, slug, name, download_slots) VALUES (3, 'user', 'User', 1)",
        *(f"INSERT INTO users (id, username, passkey) VALUES ({user}, 'u', '{passkey(user)}')" for user in (7, 8)),
        *(
            f"INSERT INTO torrents (id, name, info_hash) VALUES ({number}, 't', 0x{info_hash(number).hex()})"
            for number in (1, 2)
        ),
    )
    tracker("sync", "import")
    return settings


def test_the_tracker_keeps_the_tables(tracker: Command, tmp_path: Path, unit3d: Site, settings: dict[str, str]) -> None:
    settings["TRACKER_SITE__SYNC_SECONDS"] = "0.5"
    running = trackers.start(tmp_path, **settings)
    try:
        for torrent in (1, 2):
            announce(running, 7, torrent, left="0", event="started")
        assert announce(running, 8, left="9", event="started")[b"peers"]
        beyond = announce(running, 8, 2, left="9", event="started")
        assert (beyond[b"peers"], beyond[b"warning message"]) == (b"", NO_SLOT.encode())
        until(lambda: unit3d.sql("SELECT seeders, leechers FROM torrents") == [["1", "1"], ["1", "0"]])
        announce(running, 7, left="0", uploaded="5000", event="")
        until(lambda: unit3d.number("SELECT COALESCE(SUM(uploaded), 0) FROM peers") == 5000)
        announce(running, 7, left="0", uploaded="9000", event="stopped")
        until(lambda: unit3d.number("SELECT COUNT(*) FROM peers WHERE active") == 2)
        shown = json.loads(tracker("user", "show", "7", "--json").stdout)
        until(lambda: unit3d.number("SELECT uploaded FROM users WHERE id = 7") == shown["uploaded"] > 0)
        assert tracker("sync", "check").stdout.count(" 0 differences") == 5
        found = metrics(running, re.findall(r"swk_\S+", tracker("token", "create", "t").stdout)[0])
        assert found["tracker_site_errors_total"] == 0 and found["tracker_site_lag_seconds"] < 300
        # The nightly pass, which follows the first round at some hours of the day, repairs what it finds first.
        assert sum(found[f'tracker_site_rows_total{{outcome="{outcome}"}}'] for outcome in ("written", "repaired")) > 0
    finally:
        running.kill()


@pytest.mark.serial
def test_the_tables_are_right_within_five_seconds(tmp_path: Path, unit3d: Site, settings: dict[str, str]) -> None:
    """From the answer of an announce on, at the default interval, wherever the announce falls between two rounds."""

    running = trackers.start(tmp_path, **settings)
    try:
        for up, event in ((0, "started"), (1000, ""), (2000, "stopped")):  # each comes just after a round
            announce(running, 7, left="0", uploaded=str(up), event=event)
            active = int(event != "stopped")
            until(lambda: unit3d.sql("SELECT uploaded, active FROM peers") == [[str(up), str(active)]], DEADLINE)  # noqa: B023
    finally:
        running.kill()


@pytest.mark.slow
def test_another_process_goes_on_when_the_one_that_syncs_is_killed(
    tmp_path: Path, unit3d: Site, settings: dict[str, str]
) -> None:
    """A process that does not have the lease does not even connect to the database."""

    def connections() -> int:
        others = f"FROM information_schema.processlist WHERE db = '{unit3d.name}' AND id <> CONNECTION_ID()"
        return unit3d.number(f"SELECT COUNT(*) {others}")

    def start(number: int) -> "subprocess.Popen[bytes]":
        log = tmp_path / f"sync{number}"
        command = [sys.executable, "-m", "tracker", "sync", "run"]
        with log.open("wb") as output:
            process = trackers.starter(command, cwd=tmp_path, env=trackers.environment(settings), stderr=output)
        until(lambda: b"syncing" in log.read_bytes())
        return process

    settings["TRACKER_SITE__SYNC_IN_TRACKER"] = "false"
    running = trackers.start(tmp_path, **settings)
    processes = [start(1)]
    try:
        announce(running, 7, left="0", event="started")
        until(lambda: unit3d.number("SELECT COUNT(*) FROM peers") == 1)
        processes.append(start(2))
        announce(running, 8, left="9", event="started")
        until(lambda: unit3d.number("SELECT COUNT(*) FROM peers") == 2)
        assert connections() == 1
        processes[0].kill()
        processes[0].wait()
        until(lambda: connections() == 0)
        announce(running, 8, left="9", uploaded="500", event="stopped")
        until(lambda: unit3d.sql("SELECT uploaded FROM peers WHERE user_id = 8 AND NOT active") == [["500"]])
        assert connections() == 1 and processes[1].poll() is None
    finally:
        running.kill()
        for process in processes:
            process.kill()
            process.wait()
