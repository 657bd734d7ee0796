"""What the doctor says of sentinels and replicas."""

import time

import pytest
from pydantic import SecretStr

from tests.sentinels import failover
from tracker.doctor import Finding, Patient, examine
from tracker.doctor_failover import stand_ins
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
        assert found["role"].level == "ok"
        assert found["replicas"] == Finding("ok", "replicas", "1 connected")

        found = await findings(group.url.replace("//", "//127.0.0.1:1,", 1))
        assert found["sentinels"].level == "warning"
        assert found["sentinels"].text.startswith(
            f"1 of 2 name 127.0.0.1:{master.port} the master (127.0.0.1:1: "
        )

        with stand_in.client() as client:
            client.replicaof("NO", "ONE")
        found = await findings(group.url)
        assert (found["replicas"].level, "start one" in found["replicas"].remedy) == ("wrong", True)


@pytest.mark.parametrize(
    ("replicas", "least", "level"), [(1, "0", "ok"), (2, "0", "warning"), (2, "1", "ok"), (0, "1", "wrong")]
)
def test_a_master_that_may_be_cut_off(replicas: int, least: str, level: str) -> None:
    """With one replica it has to go on alone; with two, none in reach means that it is the one cut off."""
    found = stand_ins(replicas, least)
    assert found.level == level
    assert bool(found.remedy) == (level != "ok")
