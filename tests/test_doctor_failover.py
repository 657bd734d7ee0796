"""What the doctor says of sentinels and replicas."""

import time

from pydantic import SecretStr

from tests.sentinels import failover
from tracker.doctor import Finding, Patient, examine
from tracker.settings import HttpSettings, RedisSettings, Settings
from tracker.stores import open_stores


async def findings(url: str) -> dict[str, Finding]:
    redis = RedisSettings(url=SecretStr(url), connect_timeout_seconds=5)
    settings = Settings(redis=redis, http=HttpSettings(listen=("127.0.0.1:0",)))
    async with open_stores(settings) as stores:
        patient = Patient(stores.connection, stores.keys, stores.counters, settings, time.time)
        return {finding.subject: finding async for finding in examine(patient)}


async def test_sentinels_that_do_not_agree_are_named_and_so_is_what_a_failover_loses() -> None:
    with failover() as group:
        master, stand_in = group.servers
        found = await findings(group.url)
        assert f"1 name 127.0.0.1:{master.port} the master" in found["sentinels"].text
        assert (found["replicas"].level, found["role"].level) == ("warning", "ok")
        assert "min-replicas-to-write to 1" in found["replicas"].remedy

        with master.client() as client:
            client.config_set("min-replicas-to-write", 1)
        found = await findings(group.url.replace("//", "//127.0.0.1:1,", 1))
        assert found["sentinels"].level == "warning"
        assert found["sentinels"].text.startswith(
            f"1 of 2 name 127.0.0.1:{master.port} the master (127.0.0.1:1: "
        )
        assert found["replicas"] == Finding("ok", "replicas", "1 connected")

        with master.client() as client:
            client.config_set("min-replicas-to-write", 0)
        with stand_in.client() as client:
            client.replicaof("NO", "ONE")
        found = await findings(group.url)
        assert (found["replicas"].level, "start one" in found["replicas"].remedy) == ("wrong", True)
