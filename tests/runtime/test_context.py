"""What a serving process has counted is in the store when it has stopped."""

import pytest

from loadtest.servers import Server
from tests.store.harness import info_hash
from tests.waiting import eventually
from tracker.runtime.context import open_context
from tracker.runtime.store import open_connection
from tracker.runtime.telemetry import Telemetry
from tracker.settings.model import RedisSettings, Settings
from tracker.store.swarms import announce_counts

HASHES = [info_hash(number) for number in range(250)]


async def test_a_stop_between_two_calls_writes_all_announces(
    valkey: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announce_counts, "MAX_WAITING", 10)
    monkeypatch.setattr(announce_counts, "CALL_PAUSE_SECONDS", 600)
    redis = RedisSettings(url=valkey.url, prefix=prefix)
    async with open_connection(valkey.url, redis, 5.0) as (connection, _):
        async with open_context(Settings(redis=redis), connection, Telemetry()) as context:
            store = context.store
            await store.torrents.add_many([(each, {}) for each in HASHES])
            store.announce_counts.of(store.shards[0]).update(HASHES)

            async def announces() -> int:
                rows = [await connection.command("HGET", store.keys.torrent(each), "announces") for each in HASHES]
                return sum(int(each or 0) for each in rows)

            async def is_first_call_over() -> bool:
                return await announces() == 100

            await eventually(is_first_call_over)
        assert await announces() == 250
