"""``tracker cleanup``, ``tracker reindex`` and ``tracker wipe-stats`` (T24)."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from loadtest.servers import Server
from tests.commands import Command, command, set_store

HASH, OTHER = "ab" * 20, "cd" * 20


def dump(keys: "Redis", prefix: str) -> dict[bytes, object]:
    return {key: keys.dump(key) for key in keys.scan_iter(f"{prefix}*", 1000)}


@pytest.fixture
def orphans(tracker: Command, keys: "Redis", prefix: str) -> list[str]:
    """A registered torrent, and endpoints of a swarm without a torrent."""
    tracker("torrent", "add", HASH)
    keys.set(f"{prefix}swarm:{OTHER}:s4", b"\x0b\x00\x00\x01\x1a\xe1")
    keys.set(f"{prefix}swarm:{OTHER}:s4i", b"x" * 20)
    return [f"{prefix}swarm:{OTHER}:s4", f"{prefix}swarm:{OTHER}:s4i"]


def test_cleanup_is_a_dry_run_by_default(tracker: Command, keys: "Redis", prefix: str, orphans: list[str]) -> None:
    """T24."""
    before = dump(keys, prefix)
    result = tracker("cleanup")
    assert "dry run: use" in result.stdout and OTHER in result.stdout
    found = [json.loads(line) for line in tracker("cleanup", "--json").stdout.splitlines()]
    assert sum(row["count"] for row in found) >= 2 and not any(row["changed"] for row in found)
    tracker("cleanup", "--yes")
    assert dump(keys, prefix) == before


def test_cleanup_asks_before_it_deletes(tracker: Command, keys: "Redis", prefix: str, orphans: list[str]) -> None:
    """T24."""
    before = dump(keys, prefix)
    for typed in ("n\n", "\n", ""):
        assert "Delete all stale keys" in tracker("cleanup", "--delete", typed=typed, code=1).output
    assert dump(keys, prefix) == before
    assert "deleted" in tracker("cleanup", "--delete", typed="y\n").stdout
    assert not keys.exists(*orphans) and keys.exists(f"{prefix}info_hash:{HASH}")
    keys.set(orphans[0], b"\x0b\x00\x00\x01\x1a\xe1")
    tracker("cleanup", "--delete", "--yes")
    assert not keys.exists(*orphans)
    assert tracker("cleanup").stdout == "no stale keys\n"


def test_wiping_statistics_asks_first(tracker: Command, keys: "Redis", prefix: str) -> None:
    """T24."""
    tracker("torrent", "add", HASH)
    tracker("user", "add", "--id", "7")
    keys.set(f"{prefix}stats:announces", "5")
    keys.set(f"{prefix}countries.France.users", "3")
    keys.zadd(f"{prefix}i:unique:countries:all", {"countries.France": 3})
    before = dump(keys, prefix)
    for typed in ("n\n", ""):
        tracker("wipe-stats", typed=typed, code=1)
    assert dump(keys, prefix) == before
    assert "deleted" in tracker("wipe-stats", typed="y\n").stdout
    assert not keys.exists(f"{prefix}stats:announces")
    assert keys.exists(f"{prefix}countries.France.users", f"{prefix}info_hash:{HASH}", f"{prefix}u:7") == 3
    keys.mset({f"{prefix}stats:repairs": "3", f"{prefix}stats:joins": "4"})
    tracker("wipe-stats", "--repairs")
    assert not keys.exists(f"{prefix}stats:repairs") and keys.get(f"{prefix}stats:joins") == b"4"
    tracker("wipe-stats", "--repairs", "--uniques", code=2)
    tracker("wipe-stats", "--uniques", "--yes")
    assert not keys.exists(f"{prefix}countries.France.users")
    assert "x" not in tracker("torrent", "list").stderr and HASH in tracker("torrent", "list").stdout


def test_maintenance_reads_keys_with_scan_only(
    tracker: Command, keys: "Redis", prefix: str, orphans: list[str]
) -> None:
    """T24: KEYS would block the store."""

    def calls(name: str) -> int:
        found = keys.info("commandstats").get(f"cmdstat_{name}", {})
        return int(found.get("calls", 0))

    assert orphans
    before, scans = calls("keys"), calls("scan")
    tracker("cleanup", "--delete", "--yes")
    tracker("reindex")
    tracker("wipe-stats", "--uniques", "--yes")
    assert calls("keys") == before and calls("scan") >= scans + 3


def test_reindex_of_a_full_store_fails(
    start_server: Callable[..., Server], prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_server("--appendonly", "no")
    set_store(monkeypatch, server.url, prefix)
    monkeypatch.chdir(tmp_path)
    with command() as tracker, server.client() as client:
        tracker("torrent", "add", HASH)
        client.config_set("maxmemory", 1)
        result = tracker("reindex", code=1)
        assert result.stderr.startswith("error: ") and "memory" in result.stderr and not result.stdout
        client.config_set("maxmemory", 0)
        assert tracker("reindex").stdout == "all lists are complete\n"


def test_reindex_lists_data_written_by_a_site(tracker: Command, keys: "Redis", prefix: str) -> None:
    keys.set(f"{prefix}deny:{OTHER}", "by hand")
    assert "1 " in tracker("reindex").stdout
    assert OTHER in tracker("denied").stdout
    assert tracker("reindex").stdout == "all lists are complete\n"
