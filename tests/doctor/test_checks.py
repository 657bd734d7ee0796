"""What the doctor says of good servers, of bad ones, and of settings."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.geoip_databases import make_city, make_country
from tests.servers import Server
from tracker.doctor import Finding, Patient, _written, examine, examine_geoip, examine_settings, is_public
from tracker.settings import AdminSettings, AnnounceSettings, HttpSettings, RedisSettings, Settings
from tracker.stores import open_stores

StartServer = Callable[..., Server]
LOCAL = HttpSettings(listen=("127.0.0.1:0",))


@asynccontextmanager
async def patient_at(url: str, prefix: str = "t:") -> AsyncIterator[Patient]:
    settings = Settings(redis=RedisSettings(url=SecretStr(url), prefix=prefix), http=LOCAL)
    async with open_stores(settings) as stores:
        yield Patient(stores.connection, stores.keys, stores.counters, settings, time.time)


async def findings(patient: Patient) -> dict[str, Finding]:
    return {finding.subject: finding async for finding in examine(patient)}


@pytest.mark.parametrize("binary", ["valkey", "system"])
async def test_a_server_with_our_redis_conf_is_well(start_server: StartServer, binary: str) -> None:
    async with patient_at(start_server(binary=binary).url) as patient:
        found = await findings(patient)
    assert {finding.level for finding in found.values()} == {"ok"}, [str(each) for each in found.values()]
    assert found["server"].text.startswith("valkey 9" if binary == "valkey" else "redis 7")


@pytest.mark.parametrize("binary", ["valkey", "system"])
async def test_bad_settings_are_told_apart_and_each_says_how_to_mend_it(
    start_server: StartServer, binary: str
) -> None:
    bad = {
        "maxmemory-policy": "allkeys-lru",
        "notify-keyspace-events": "",
        "appendonly": "no",
        "client-output-buffer-limit": "pubsub 32mb 8mb 60",
        "active-expire-effort": "1",
    }
    server = start_server(
        *(word for name, value in bad.items() for word in (f"--{name}", value)), binary=binary
    )
    async with patient_at(server.url) as patient:
        found = await findings(patient)
    levels = {name: found[name].level for name in ("eviction", "events", "persistence", "event buffer")}
    expected = {"eviction": "wrong", "events": "warning", "persistence": "wrong", "event buffer": "warning"}
    assert levels == expected
    assert all(finding.remedy for finding in found.values() if finding.level != "ok")
    assert "noeviction" in found["eviction"].remedy
    assert "Kx" in found["events"].remedy
    assert "active-expire-effort 5" in found["expire effort"].remedy


async def test_events_off_are_wrong_while_a_tracker_runs(start_server: StartServer) -> None:
    server = start_server("--appendonly", "no", "--save", "60 1", "--notify-keyspace-events", "Kg")
    async with patient_at(server.url) as patient:
        await patient.connection.command("SET", patient.keys.heartbeat(), int(time.time()))
        found = await findings(patient)
    assert (found["events"].level, found["tracker"].text) == ("wrong", "one is running")
    assert "lacks x" in found["events"].text
    assert (found["persistence"].level, "snapshots only" in found["persistence"].text) == ("warning", True)


async def test_a_forbidden_config_is_a_warning_and_the_rest_goes_on(start_server: StartServer) -> None:
    server = start_server("--appendonly", "no", binary="system")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "tracker", "on", ">pw", "~t:*", "&*", "+@all", "-config")
    async with patient_at(f"redis://tracker:pw@127.0.0.1:{server.port}/0") as patient:
        found = await findings(patient)
    assert found["config"].level == "warning" and "+config|get" in found["config"].remedy
    assert found["eviction"].level == "ok" and found["counts"].level == "ok"
    assert "events" not in found


async def test_channels_that_are_forbidden_are_a_warning(start_server: StartServer) -> None:
    """Users of an ACL have none unless they are given some."""
    server = start_server("--appendonly", "no", binary="system")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "tracker", "on", ">pw", "~t:*", "resetchannels", "+@all")
    async with patient_at(f"redis://tracker:pw@127.0.0.1:{server.port}/0") as patient:
        assert (await findings(patient))["channels"].level == "warning"
    async with patient_at(server.tcp_url) as patient:
        assert (await findings(patient))["channels"].level == "ok"


async def test_forbidden_scripts_times_and_keys_are_said(start_server: StartServer) -> None:
    server = start_server("--appendonly", "no", binary="system")
    with server.client() as client:
        rules = ("on", ">pw", "~other:*", "~t:heartbeat", "&*", "+@all", "-time", "-eval")
        client.execute_command("ACL", "SETUSER", "tracker", *rules)
    async with patient_at(f"redis://tracker:pw@127.0.0.1:{server.port}/0") as patient:
        found = await findings(patient)
    assert (found["scripts"].level, found["clock"].level, found["counts"].level) == (
        "wrong",
        "warning",
        "wrong",
    )
    assert "allow keys t:*" in found["counts"].remedy


async def test_a_replica_is_wrong(start_server: StartServer) -> None:
    server = start_server("--appendonly", "no")
    with server.client() as client:
        client.replicaof("127.0.0.1", "1")
    async with patient_at(server.url) as patient:
        found = await findings(patient)
    assert found["role"].level == "wrong" and "127.0.0.1:1" in found["role"].text


async def test_clocks_that_differ_are_wrong(redis_url: str, prefix: str) -> None:
    async with patient_at(redis_url, prefix) as patient:
        slow = replace(patient, clock=lambda: time.time() - 3)
        fast = replace(patient, clock=lambda: time.time() + 3)
        near = replace(patient, clock=lambda: time.time() + 1)
        clocks = [(await findings(each))["clock"] for each in (slow, fast, near)]
    assert [clock.level for clock in clocks] == ["wrong", "wrong", "ok"]
    assert "ahead of" in clocks[0].text and "behind" in clocks[1].text


async def test_memory_that_is_nearly_full_is_a_warning(start_server: StartServer) -> None:
    server = start_server("--appendonly", "no")
    async with patient_at(server.url) as patient:
        used = int((await patient.connection.command("INFO"))["used_memory"])
        for limit, level in ((used * 20 // 19, "warning"), (used * 10, "ok")):
            await patient.connection.command("CONFIG", "SET", "maxmemory", limit)
            memory = (await findings(patient))["memory"]
            assert (memory.level, "used of" in memory.text) == (level, True)


async def test_a_repair_is_wrong_until_it_was_looked_into(redis_url: str, prefix: str) -> None:
    async with patient_at(redis_url, prefix) as patient:
        await patient.connection.command("SET", patient.keys.stat("repairs"), 2)
        found = (await findings(patient))["counts"]
    assert found.level == "wrong" and found.remedy.endswith(f"DEL {prefix}stats:repairs")


async def test_a_tracker_that_went_silent_is_a_warning(redis_url: str, prefix: str) -> None:
    async with patient_at(redis_url, prefix) as patient:
        assert (await findings(patient))["tracker"].text == "none has used this store yet"
        await patient.connection.command("SET", patient.keys.heartbeat(), int(time.time()) - 7200)
        found = (await findings(patient))["tracker"]
    assert found.level == "warning" and "2 hours ago" in found.text


@pytest.mark.parametrize(
    "name", ["aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"]
)
def test_a_failed_write_is_wrong(name: str) -> None:
    info: dict[str, Any] = {name: "err"}
    assert [finding.level for finding in _written(info)] == ["wrong"]


@pytest.mark.parametrize(
    ("listen", "public"),
    [
        ("0.0.0.0:6969", True),
        ("[::]:6969", True),
        ("8.8.8.8:80", True),
        ("tracker.example:6969", True),
        ("127.0.0.1:6969", False),
        ("localhost:6969", False),
        ("[::1]:6969", False),
        ("192.168.1.2:6969", False),
        ("unix:/run/tracker", False),
    ],
)
def test_which_addresses_are_open_to_the_world(listen: str, public: bool) -> None:
    assert is_public(listen) is public


@pytest.mark.parametrize(
    ("announce", "listen", "subjects"),
    [
        (AnnounceSettings(), "0.0.0.0:1", {"addresses"}),
        (AnnounceSettings(private_addresses="refuse"), "0.0.0.0:1", set()),
        (AnnounceSettings(), "127.0.0.1:1", set()),
        (AnnounceSettings(interval_seconds=299, min_interval_seconds=0), "127.0.0.1:1", {"interval"}),
        (AnnounceSettings(interval_seconds=300, min_interval_seconds=0), "127.0.0.1:1", set()),
        (AnnounceSettings(interval_seconds=10801, interval_jitter=0), "127.0.0.1:1", {"interval"}),
        (AnnounceSettings(interval_seconds=10800, interval_jitter=0), "127.0.0.1:1", set()),
        (AnnounceSettings(interval_seconds=10000), "127.0.0.1:1", {"interval"}),  # 11000 with its jitter
        (AnnounceSettings(interval_seconds=7200, interval_jitter=0.5), "127.0.0.1:1", set()),
        (AnnounceSettings(interval_seconds=7201, interval_jitter=0.5), "127.0.0.1:1", {"interval"}),
        (AnnounceSettings(interval_seconds=600, min_interval_seconds=900), "127.0.0.1:1", {"interval"}),
    ],
)
def test_settings_unwise_for_a_public_tracker(
    announce: AnnounceSettings, listen: str, subjects: set[str]
) -> None:
    settings = Settings(announce=announce, http=HttpSettings(listen=(listen,)))
    assert {finding.subject for finding in examine_settings(settings) if finding.level != "ok"} == subjects


@pytest.mark.parametrize(
    ("admin", "subjects"),
    [
        (AdminSettings(), set()),
        (AdminSettings(listen=("unix:/run/a", "[::1]:1")), set()),
        (AdminSettings(listen=("127.0.0.1:6970", "0.0.0.0:6970")), {"admin port"}),
        (AdminSettings(listen=("0.0.0.0:6970",), enabled=False), set()),
    ],
)
def test_an_admin_port_that_others_reach_is_told_of(admin: AdminSettings, subjects: set[str]) -> None:
    settings = Settings(admin=admin, http=LOCAL)
    assert {finding.subject for finding in examine_settings(settings) if finding.level != "ok"} == subjects


@pytest.mark.parametrize(
    ("days", "make", "level", "says"),
    [
        (59, make_city, "ok", "GeoLite2-City of 2026-01-01: countries, cities, postcodes"),
        (61, make_city, "warning", "that was 61 days ago: fetch a new one"),
        (1, make_country, "ok", "GeoLite2-Country of 2026-01-01: countries: with one of cities"),
    ],
)
def test_the_geoip_database_is_looked_at(
    tmp_path: Path, days: int, make: Callable[..., Path], level: str, says: str
) -> None:
    built = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    found = examine_geoip(make(tmp_path / "g.mmdb", built=built), built + days * 86400)
    assert (found.level, found.subject) == (level, "geoip")
    assert says in str(found)


def test_a_geoip_database_that_is_of_no_use_is_wrong_and_none_is_well(tmp_path: Path) -> None:
    missing = examine_geoip(tmp_path / "g.mmdb", 0)
    assert missing.level == "wrong" and "(No such file or directory)" in missing.text
    (tmp_path / "g.mmdb").write_bytes(b"not a database")
    assert examine_geoip(tmp_path / "g.mmdb", 0).level == "wrong"
    none = examine_geoip(None, 0)
    assert none.level == "ok" and "TRACKER_GEOIP__DATABASE" in none.remedy


async def test_the_private_store_is_well(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data": {"directory": tmp_path / "data"}, "http": LOCAL})
    async with open_stores(settings) as stores:
        patient = Patient(stores.connection, stores.keys, stores.counters, settings, time.time)
        assert {finding.level for finding in (await findings(patient)).values()} == {"ok"}
