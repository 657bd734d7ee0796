"""``tracker reshard``: from one store to several shards on the same server, and back."""

import json
from pathlib import Path

import pytest
from redis import Redis

from tests.commands import Command
from tracker.store.schema.keys import shard_prefixes

HASHES = [f"{number:02x}" * 20 for number in range(8)]


def figures(text: str) -> dict[str, tuple[int, int]]:
    rows = [json.loads(line) for line in text.splitlines()]
    return {row["what"]: (row["before"], row["after"]) for row in rows}


@pytest.fixture
def filled(tracker: Command) -> Command:
    for info_hash in HASHES:
        tracker("torrent", "add", info_hash)
    tracker("user", "add", "--id", "7", "--name", "Alice")
    return tracker


def test_a_store_is_split_and_joined(
    filled: Command, keys: "Redis", prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = filled("user", "list", "--json").stdout
    plan = json.loads(filled("reshard", "--shards", "4", "--dry-run", "--json").stdout)
    assert (plan["torrents"], plan["users"]) == (8, 1)
    assert not keys.keys(f"{prefix}{{*")
    asked = filled("reshard", "--shards", "4", typed="n\n", code=1)
    assert "been stopped?" in asked.output and not keys.keys(f"{prefix}{{*")
    found = figures(filled("reshard", "--shards", "4", "--yes", "--json").stdout)
    assert found["torrents"] == (8, 8) and found["users"] == (1, 1)
    assert keys.get(f"{shard_prefixes(prefix, 4)[3]}info_hash:{HASHES[7]}")
    assert "made with 4 shards" in filled("user", "list", code=1).stderr

    monkeypatch.setenv("TRACKER_REDIS__SHARDS", "4")
    assert filled("user", "list", "--json").stdout == before
    assert all(info_hash in filled("torrent", "list").stdout for info_hash in HASHES)
    entry = json.loads(filled("audit", "--operation", "reshard", "--json").stdout)
    assert entry["details"] == {"shards": "4", "before": "1"}

    joined = filled("reshard", "--shards", "1", "--prefix", f"{prefix}back:", "--yes")
    assert "set TRACKER_REDIS__SHARDS=1" in joined.stdout and "8 before" in joined.stdout
    monkeypatch.setenv("TRACKER_REDIS__SHARDS", "1")
    monkeypatch.setenv("TRACKER_REDIS__PREFIX", f"{prefix}back:")
    assert filled("user", "list", "--json").stdout == before


def test_the_url_of_the_new_store_may_be_in_a_file(
    filled: Command, redis_url: str, tmp_path: Path, prefix: str, keys: "Redis"
) -> None:
    (tmp_path / "url").write_text(f"{redis_url}\n", encoding="utf-8")
    filled("reshard", "--url-file", "url", "--shards", "2", "--yes")
    assert keys.get(f"{prefix}{{main}}:shards") == b"2"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--shards", "1"), "this is the old store"),
        (("--shards", "3"), "power of two"),
        (("--shards", "4", "--prefix", "no colon"), "must match"),
        (("--shards", "4", "--private", "--url", "redis://127.0.0.1:1"), "choose --private or the URL"),
        (("--shards", "4", "--url", "x", "--url-file", "y"), "choose --url or --url-file"),
        (("--shards", "4", "--url-file", "missing"), "missing: No such file"),
        (("--shards", "4", "--url", "redis://127.0.0.1:1"), "no usable store"),
    ],
)
def test_mistakes_are_named(tracker: Command, words: tuple[str, ...], error: str) -> None:
    assert error in tracker("reshard", *words, "--yes", code=1).stderr


def test_it_refuses_while_a_tracker_runs(filled: Command, keys: "Redis", prefix: str) -> None:
    keys.set(f"{prefix}heartbeat", keys.time()[0])
    assert "stop it before" in filled("reshard", "--shards", "4", "--yes", code=1).stderr
    assert not keys.keys(f"{prefix}{{*")
