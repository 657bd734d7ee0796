"""A tracker whose store has four shards, as a process."""

import json
from pathlib import Path

import pytest

from loadtest import trackers
from tests import commands
from tests.app.conftest import StartTracker
from tests.store.sharding.harness import SHARDS, hash_in
from tracker.settings.model import RedisSettings

SETTINGS = {"TRACKER_REDIS__SHARDS": str(SHARDS)}


def quoted(shard: int) -> str:
    return "".join(f"%{byte:02x}" for byte in hash_in(shard))


@pytest.mark.slow
def test_announces_lists_and_a_restart_with_four_shards(start_tracker: StartTracker, tmp_path: Path) -> None:
    tracker = start_tracker(**SETTINGS)
    for shard in range(SHARDS):
        assert tracker.announce(info_hash=quoted(shard))[b"complete"] == 1
    listed = commands.run(tmp_path, "torrent", "list", "--json", **SETTINGS)
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert {row["info_hash"] for row in rows} == {hash_in(shard).hex() for shard in range(SHARDS)}
    assert tracker.end() == 0
    refused = trackers.run(tmp_path, "torrent", "list")
    assert refused.returncode != 0 and "TRACKER_REDIS__SHARDS=4" in refused.stderr
    again = start_tracker(**SETTINGS)
    reply = again.announce(info_hash=quoted(1), peer_id="-TR4000-mnopqrstuvwx", port="6882")
    assert reply[b"complete"] == 2
    assert again.end() == 0
    assert "Traceback" not in again.log and '"level": "error"' not in again.log


@pytest.mark.parametrize("number", [0, 3, 512])
def test_the_number_of_shards_is_a_power_of_two(number: int) -> None:
    with pytest.raises(ValueError, match="shards"):
        RedisSettings(shards=number)


def test_several_shards_need_a_prefix_without_braces() -> None:
    for prefix in ("t:{07}:", "t:{07buvm}:", "t:{main}:"):
        with pytest.raises(ValueError, match="hash tag"):
            RedisSettings(prefix=prefix)
    with pytest.raises(ValueError, match="braces"):
        RedisSettings(prefix="t{1}:", shards=4)
