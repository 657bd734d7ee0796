"""``tracker cleanup``, ``tracker reindex`` and ``tracker wipe-stats`` (T24)."""

import json

import pytest
from redis import Redis

from tests.commands import Command

HASH, OTHER = "ab" * 20, "cd" * 20


def dump(keys: "Redis", prefix: str) -> dict[bytes, object]:
    return {key: keys.dump(key) for key in keys.scan_iter(f"{prefix}*", 1000)}


@pytest.fixture
def orphans(tracker: Command, keys: "Redis", prefix: str) -> list[str]:
    """Beside a torrent that belongs: endpoints of a swarm without a torrent."""
    tracker("torrent", "add", HASH)
    keys.set(f"{prefix}swarm:{OTHER}:s4", b"\x0b\x00\x00\x01\x1a\xe1")
    keys.set(f"{prefix}swarm:{OTHER}:s4i", b"x" * 20)
    return [f"{prefix}swarm:{OTHER}:s4", f"{prefix}swarm:{OTHER}:s4i"]


def test_cleanup_is_a_dry_run_unless_told_otherwise(
    tracker: Command, keys: "Redis", prefix: str, orphans: list[str]
) -> None:
    """T24."""
    before = dump(keys, prefix)
    result = tracker("cleanup")
    assert "this was a dry run" in result.stdout and OTHER in result.stdout
    found = [json.loads(line) for line in tracker("cleanup", "--json").stdout.splitlines()]
    assert sum(row["count"] for row in found) >= 2 and not any(row["changed"] for row in found)
    tracker("cleanup", "--yes")
    assert dump(keys, prefix) == before


def test_cleanup_asks_before_it_deletes(
    tracker: Command, keys: "Redis", prefix: str, orphans: list[str]
) -> None:
    """T24."""
    before = dump(keys, prefix)
    for typed in ("n\n", "\n", ""):
        assert "Delete everything" in tracker("cleanup", "--delete", typed=typed, code=1).output
    assert dump(keys, prefix) == before
    assert "deleted" in tracker("cleanup", "--delete", typed="y\n").stdout
    assert not keys.exists(*orphans) and keys.exists(f"{prefix}info_hash:{HASH}")
    keys.set(orphans[0], b"\x0b\x00\x00\x01\x1a\xe1")
    tracker("cleanup", "--delete", "--yes")
    assert not keys.exists(*orphans)
    assert tracker("cleanup").stdout == "nothing is there that does not belong\n"


def test_a_wipe_asks(tracker: Command, keys: "Redis", prefix: str) -> None:
    """T24."""
    tracker("torrent", "add", HASH)
    tracker("user", "add", "--id", "7")
    keys.set(f"{prefix}stats:announces", "5")
    keys.set(f"{prefix}countries.GB.users", "3")
    keys.zadd(f"{prefix}i:unique:countries:all", {"countries.GB": 3})
    before = dump(keys, prefix)
    for typed in ("n\n", ""):
        tracker("wipe-stats", typed=typed, code=1)
    assert dump(keys, prefix) == before
    assert "deleted" in tracker("wipe-stats", typed="y\n").stdout
    assert not keys.exists(f"{prefix}stats:announces")
    assert keys.exists(f"{prefix}countries.GB.users", f"{prefix}info_hash:{HASH}", f"{prefix}u:7") == 3
    tracker("wipe-stats", "--uniques", "--yes")
    assert not keys.exists(f"{prefix}countries.GB.users")
    assert "x" not in tracker("torrent", "list").stderr and HASH in tracker("torrent", "list").stdout


def test_maintenance_walks_by_scan_only(
    tracker: Command, keys: "Redis", prefix: str, orphans: list[str]
) -> None:
    """T24: KEYS would hold the store up."""

    def calls(name: str) -> int:
        found = keys.info("commandstats").get(f"cmdstat_{name}", {})
        return int(found.get("calls", 0))

    assert orphans
    before, scans = calls("keys"), calls("scan")
    tracker("cleanup", "--delete", "--yes")
    tracker("reindex")
    tracker("wipe-stats", "--uniques", "--yes")
    assert calls("keys") == before and calls("scan") >= scans + 3


def test_what_a_site_wrote_is_listed(tracker: Command, keys: "Redis", prefix: str) -> None:
    keys.set(f"{prefix}deny:{OTHER}", "by hand")
    assert "1 " in tracker("reindex").stdout
    assert OTHER in tracker("denied").stdout
    assert tracker("reindex").stdout == "everything is listed\n"
