"""``tracker dht``: a command asks a running tracker's node, and finds who has a torrent."""

import json
import re
from pathlib import Path

import pytest

from loadtest import trackers
from tests.commands import Command

ON = {
    "TRACKER_DHT__ENABLED": "true",
    "TRACKER_DHT__LISTEN": "127.0.0.1:0",
    "TRACKER_DHT__NAME": "host",
    "TRACKER_DHT__PRIVATE_ADDRESSES": "true",
}
HASH = "01" * 20


@pytest.mark.slow
def test_a_torrent_is_found_in_the_dht(
    tracker: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_url: str, prefix: str
) -> None:
    assert "no node of the DHT" in tracker("dht", "status").stderr
    tracker("torrent", "add", HASH)
    tracker("torrent", "edit", HASH, "--public")
    running = trackers.start(tmp_path, **ON, TRACKER_REDIS__URL=redis_url, TRACKER_REDIS__PREFIX=prefix)
    found = re.search(r"^ +dht +127\.0\.0\.1:(\d+)$", running.banner, re.MULTILINE)
    assert found, running.banner
    running.announce()
    assert "answered after" in tracker("dht", "ping", f"127.0.0.1:{found[1]}").stdout
    for name, value in ON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TRACKER_DHT__LISTEN", f"127.0.0.1:{found[1]}")
    shown = json.loads(tracker("dht", "find", HASH, "--json").stdout)
    assert (shown["seeders"], shown["endpoints"]) == (1, ["127.0.0.1:6881"])
    assert "127.0.0.1:6881" in tracker("dht", "find", HASH).stdout
    running.end()
    assert "host" in tracker("dht", "status").stdout
    status = json.loads(tracker("dht", "status", "--json").stdout)
    assert len(status["id4"]) == 40


def test_a_torrent_without_part_is_not_asked_for(tracker: Command) -> None:
    tracker("torrent", "add", HASH, "--private")
    for info_hash in (HASH, "02" * 20):
        assert "takes no part" in tracker("dht", "find", info_hash, code=1).stderr


def test_a_silent_node_is_named(tracker: Command) -> None:
    tracker("dht", "ping", "nothing", code=2)
    assert "no answer" in tracker("dht", "ping", "nothing.invalid:1", code=1).stderr
