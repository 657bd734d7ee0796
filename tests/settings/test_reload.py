"""SIGHUP: which settings change at once, which do not, and that an invalid file changes nothing."""

import contextlib
import http.client
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest

from loadtest import trackers
from loadtest.trackers import ANY_PORTS, PATIENCE, RunningTracker, environment
from tests import commands
from tests.waiting import until
from tracker.settings.background import GeoIPSettings
from tracker.settings.model import FIELDS, RELOADED, Settings, differences, values_of, with_values
from tracker.settings.public import AnnounceSettings, HttpSettings
from tracker.settings.site import LogSettings

TOML = """
[announce]
interval_seconds = {interval}
interval_jitter = 0
min_interval_seconds = 0
[torrents]
mode = "{mode}"
[log]
level = "{level}"
[http]
keepalive_seconds = {keepalive}
"""


def test_only_settings_are_named() -> None:
    assert RELOADED and FIELDS.keys() >= RELOADED
    assert ("http", "listen") not in RELOADED and ("log", "level") in RELOADED


def test_values_go_through_json_and_leave_the_others_alone() -> None:
    wanted = Settings(
        announce=AnnounceSettings(interval_seconds=77, untold_ports=(22, 6881)),
        geoip=GeoIPSettings(database=Path("/x.mmdb")),
        log=LogSettings(level="debug"),
        http=HttpSettings(workers=3),
    )
    taken = with_values(Settings(), json.loads(json.dumps(values_of(wanted))))
    assert sorted(differences(Settings(), taken)) == [
        ("announce", "interval_seconds"),
        ("announce", "untold_ports"),
        ("geoip", "database"),
        ("log", "level"),
    ]
    assert taken.geoip.database == Path("/x.mmdb")


def test_a_section_without_a_change_stays_the_same_object() -> None:
    """Parts compare sections by identity to see whether they have to derive something again."""
    before = Settings(announce=AnnounceSettings(interval_seconds=1000))
    after = with_values(before, values_of(Settings(announce=AnnounceSettings(interval_seconds=77))))
    assert after.announce is not before.announce and after.announce.interval_seconds == 77
    assert all(getattr(after, section) is getattr(before, section) for section, _ in RELOADED if section != "announce")


class Reloading:
    """A tracker with a TOML file that the test writes."""

    def __init__(self, directory: Path, redis_url: str, prefix: str, workers: str) -> None:
        self.file = directory / "tracker.toml"
        self.values: dict[str, Any] = {"interval": 1000, "mode": "open", "level": "info", "keepalive": 60}
        self.write()
        self._store = {"TRACKER_REDIS__URL": redis_url, "TRACKER_REDIS__PREFIX": prefix}
        self._token = ""
        self.tracker: RunningTracker = trackers.start(
            directory, "--config", str(self.file), "--workers", workers, **self._store
        )

    def write(self, **values: Any) -> None:
        self.values |= values
        self.file.write_text(TOML.format(**self.values))

    def lines(self, event: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.tracker.log.splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == event]

    def shown(self) -> dict[str, dict[str, Any]]:
        """Its settings by name, from the admin port."""
        if not self._token:
            made = commands.run(self.file.parent, "token", "create", "operator", "--json", **self._store)
            self._token = json.loads(made.stdout)["token"]
        connection = http.client.HTTPConnection(self.tracker.admin_url.removeprefix("http://"))
        connection.request("GET", "/api/v1/settings", headers={"Authorization": f"Bearer {self._token}"})
        items = json.loads(connection.getresponse().read())["items"]
        connection.close()
        return {row["name"]: row for row in items}

    def reload(self, event: str) -> dict[str, Any]:
        """Sends SIGHUP; returns the log line of its result."""
        before = len(self.lines(event))
        self.tracker.send(signal.SIGHUP)
        until(lambda: len(self.lines(event)) > before)
        return self.lines(event)[-1]


@pytest.fixture
def start(tmp_path: Path, redis_url: str, prefix: str) -> Iterator[Any]:
    started: list[Reloading] = []

    def one(workers: str) -> Reloading:
        started.append(Reloading(tmp_path, redis_url, prefix, workers))
        return started[-1]

    yield one
    for each in started:
        each.tracker.kill()


def unknown() -> str:
    """A new torrent: in open mode an announce registers it."""
    return quote_from_bytes(os.urandom(20), safe="")


def signals(pid: int, mask: str) -> bool:
    """Whether SIGHUP is in that mask of a process (``SigBlk``, ``SigCgt`` or ``SigIgn``)."""
    with contextlib.suppress(OSError):
        found = re.search(rf"^{mask}:\s*([0-9a-f]+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        return found is not None and bool(int(found[1], 16) & 1)
    return False


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.usefixtures("own_interpreter")
def test_sighup_may_come_while_the_tracker_starts(tmp_path: Path) -> None:
    """In each process, from its first line on; the settings are reloaded in the end."""
    signals_sent: Counter[str] = Counter()
    children: set[int] = set()

    def done() -> bool:
        reloaded = '"settings reloaded"' in (tmp_path / "log").read_text()
        if signals(starting.pid, "SigBlk") or signals(starting.pid, "SigCgt"):
            starting.send_signal(signal.SIGHUP)
            signals_sent["before the handler" if signals(starting.pid, "SigBlk") else "later"] += 1
        for pid in filter(lambda child: signals(child, "SigIgn"), children_of(starting.pid)):
            os.kill(pid, signal.SIGHUP)
            children.add(pid)
        assert starting.poll() is None, (tmp_path / "log").read_text()
        return reloaded

    with (tmp_path / "log").open("w") as log:
        starting = trackers.spawn(tmp_path, log, "--workers", "2", TRACKER_LOG__FORMAT="json")
    try:
        until(done, poll_seconds=0.1)  # each poll sends signals, and each of them costs a reload
        assert signals_sent["before the handler"] and signals_sent["later"]
        assert len(children) == 3 and children == set(children_of(starting.pid))
        starting.terminate()
        assert starting.wait(trackers.SECONDS) == 0, (tmp_path / "log").read_text()
    finally:
        starting.kill()
        starting.communicate()


@pytest.mark.slow
def test_sighup_ends_any_other_command(tmp_path: Path) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "tracker", "user", "add", "--passkey", "-"],
        cwd=tmp_path,
        env=environment({}),
        stdin=subprocess.PIPE,
        preexec_fn=trackers.restore_signal_handlers,  # noqa: PLW1509  # no threads here
    )
    try:
        until(lambda: signals(command.pid, "SigBlk"))
        command.send_signal(signal.SIGHUP)
        assert command.wait(trackers.SECONDS) == -signal.SIGHUP
    finally:
        command.kill()
        command.communicate()


@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.long), "2"])
@pytest.mark.slow
def test_a_reload_changes_what_peers_are_told(start: Any, workers: str) -> None:
    """In every web process. Settings that need a restart are named, and an invalid file changes nothing."""
    one = start(workers)

    def intervals() -> set[int]:
        replies = [one.tracker.announce() for _ in range(6)]
        return {reply[b"interval"] for reply in replies}

    assert intervals() == {1000}
    one.write(interval=500, keepalive=30)
    said = one.reload("settings reloaded")
    assert said["changed"] == ["TRACKER_ANNOUNCE__INTERVAL_SECONDS"]
    until(lambda: intervals() == {500})
    assert one.lines("some settings need a restart")[-1]["settings"] == ["TRACKER_HTTP__KEEPALIVE_SECONDS"]
    shown = one.shown()
    assert shown["TRACKER_ANNOUNCE__INTERVAL_SECONDS"]["value"] == "500"
    assert shown["TRACKER_HTTP__KEEPALIVE_SECONDS"]["value"] == "60.0"
    assert [name for name, row in shown.items() if row["waiting"]] == ["TRACKER_HTTP__KEEPALIVE_SECONDS"]

    one.write(mode="registered", level="warning")
    one.tracker.send(signal.SIGHUP)
    until(lambda: all(b"failure reason" in one.tracker.announce(info_hash=unknown()) for _ in range(6)))

    one.write(interval='"soon"', level="info")
    said = one.reload("settings are invalid; nothing changed")
    assert "announce.interval_seconds" in str(said["problems"]) and "soon" not in str(said["problems"])
    assert intervals() == {500}
    assert one.tracker.end() == 0


def test_a_reload_drops_no_connection_and_names_ignored_settings(start: Any) -> None:
    one = start("1")
    connection = http.client.HTTPConnection(one.tracker.url.removeprefix("http://"), timeout=trackers.SECONDS)
    socks = set()
    for mode in ("open", "registered", "open"):
        one.write(mode=mode, interval=one.values["interval"] + 1)
        one.reload("settings reloaded")
        path = f"/announce?info_hash={unknown()}&peer_id=-TR4000-abcdefghijkl&port=1&left=0"
        connection.request("GET", path)
        answer = connection.getresponse()
        assert (answer.status, b"failure reason" in answer.read()) == (200, mode == "registered")
        socks.add(connection.sock)
    connection.close()
    assert len(socks) == 1 and None not in socks


def test_closing_the_terminal_ends_the_tracker(tmp_path: Path, redis_url: str, prefix: str) -> None:
    """SIGHUP of a closed terminal ends the tracker. Otherwise Ctrl-C could no longer stop it."""
    ours, theirs = pty.openpty()
    code = (
        "import os, fcntl, sys, termios; os.setsid(); fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
        "os.execv(sys.executable, [sys.executable, '-m', 'tracker', 'serve'])"
    )
    with (tmp_path / "log").open("w") as log:
        settings = {"TRACKER_REDIS__URL": redis_url, "TRACKER_REDIS__PREFIX": prefix, "TRACKER_LOG__FORMAT": "json"}
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env=environment({**ANY_PORTS, **PATIENCE, **settings}),
            stdin=theirs,
            stdout=log,
            stderr=log,
        )
    os.close(theirs)
    try:
        until(lambda: '"serving"' in (tmp_path / "log").read_text())
        os.close(ours)
        assert process.wait(trackers.SECONDS) == 0
    finally:
        process.kill()
        process.wait()
    assert '"stopped"' in (tmp_path / "log").read_text()
