"""The doctor's checks of servers and of settings."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import SecretStr

from loadtest.geoip_databases import make_city, make_country
from loadtest.servers import Server
from tests.store.harness import update
from tests.waiting import in_background
from tracker.doctor import Finding
from tracker.doctor.checks import run_checks
from tracker.doctor.server_checks import check_disk, check_info
from tracker.doctor.settings_checks import check_geoip, check_settings, is_public
from tracker.refusals import ADDRESS_HIDDEN, PROXY_HEADER_MISSING, PROXY_HEADER_UNEXPECTED, UPGRADE_MISSING
from tracker.runtime.store import open_store
from tracker.settings.background import ProbeSettings, UniqueSettings
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.public import AnnounceSettings, HttpSettings
from tracker.settings.site import AdminSettings
from tracker.store.client.server_info import bytes_in, read_info
from tracker.store.store import Store
from tracker.store.work.projects import KEPT_LOG
from tracker.store.work.records import Project
from tracker.wire.endpoint import pack_address, pack_endpoint

StartServer = Callable[..., Server]
LOCAL = HttpSettings(listen=("127.0.0.1:0",))


class Context(NamedTuple):
    store: Store
    settings: Settings


@asynccontextmanager
async def context_at(url: str, prefix: str = "t:") -> AsyncIterator[Context]:
    settings = Settings(redis=RedisSettings(url=SecretStr(url), prefix=prefix), http=LOCAL)
    async with open_store(settings) as store:
        yield Context(store, settings)


async def findings(context: Context) -> dict[str, Finding]:
    return {finding.subject: finding async for finding in run_checks(*context)}


@pytest.mark.parametrize("binary", ["valkey", "system"])
async def test_a_server_with_our_redis_conf_passes_every_check(start_server: StartServer, binary: str) -> None:
    async with context_at(start_server(binary=binary).url) as context:
        found = await findings(context)
    assert {finding.level for finding in found.values()} == {"ok"}, [str(each) for each in found.values()]
    assert found["server"].text.startswith("valkey 9" if binary == "valkey" else "redis 7")


@pytest.mark.parametrize("binary", ["valkey", "system"])
async def test_each_bad_server_setting_has_its_finding_and_remedy(start_server: StartServer, binary: str) -> None:
    bad = {
        "maxmemory-policy": "allkeys-lru",
        "notify-keyspace-events": "",
        "appendonly": "no",
        "client-output-buffer-limit": "pubsub 32mb 8mb 60",
        "active-expire-effort": "1",
    }
    server = start_server(*(word for name, value in bad.items() for word in (f"--{name}", value)), binary=binary)
    async with context_at(server.url) as context:
        found = await findings(context)
    levels = {name: found[name].level for name in ("eviction", "events", "persistence", "event buffer")}
    expected = {"eviction": "wrong", "events": "warning", "persistence": "wrong", "event buffer": "warning"}
    assert levels == expected
    assert all(finding.remedy for finding in found.values() if finding.level != "ok")
    assert "noeviction" in found["eviction"].remedy
    assert "Kx" in found["events"].remedy
    assert "active-expire-effort 5" in found["expire effort"].remedy


async def test_disabled_events_are_wrong_while_a_tracker_is_running(start_server: StartServer) -> None:
    server = start_server("--appendonly", "no", "--save", "60 1", "--notify-keyspace-events", "Kg")
    async with context_at(server.url) as context:
        await context.store.connection.command("SET", context.store.keys.heartbeat(), int(time.time()))
        found = await findings(context)
    assert (found["events"].level, found["tracker"].text) == ("wrong", "a tracker is running")
    assert "does not have x" in found["events"].text
    assert (found["persistence"].level, "snapshots only" in found["persistence"].text) == ("warning", True)


async def test_a_forbidden_config_is_a_warning_and_other_checks_continue(start_server: StartServer) -> None:
    server = start_server("--appendonly", "no", binary="system")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "tracker", "on", ">pw", "~t:*", "&*", "+@all", "-config")
    async with context_at(f"redis://tracker:pw@127.0.0.1:{server.port}/0") as context:
        found = await findings(context)
    assert found["config"].level == "warning" and "+config|get" in found["config"].remedy
    assert found["eviction"].level == "ok" and found["counts"].level == "ok"
    assert "events" not in found


async def test_forbidden_channels_are_a_warning(start_server: StartServer) -> None:
    """A user of an ACL has no channels by default."""
    server = start_server("--appendonly", "no", binary="system")
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "tracker", "on", ">pw", "~t:*", "resetchannels", "+@all")
    async with context_at(f"redis://tracker:pw@127.0.0.1:{server.port}/0") as context:
        assert (await findings(context))["channels"].level == "warning"
    async with context_at(server.tcp_url) as context:
        assert (await findings(context))["channels"].level == "ok"


async def test_forbidden_scripts_time_and_keys_are_reported(start_server: StartServer) -> None:
    server = start_server("--appendonly", "no", binary="system")
    with server.client() as client:
        rules = ("on", ">pw", "~other:*", "~t:heartbeat", "&*", "+@all", "-time", "-eval")
        client.execute_command("ACL", "SETUSER", "tracker", *rules)
    async with context_at(f"redis://tracker:pw@127.0.0.1:{server.port}/0") as context:
        found = await findings(context)
    assert (found["scripts"].level, found["clock"].level, found["counts"].level) == ("wrong", "warning", "wrong")
    assert "allow keys t:*" in found["counts"].remedy


async def test_a_replica_is_wrong(start_server: StartServer) -> None:
    server = start_server("--appendonly", "no")
    with server.client() as client:
        client.replicaof("127.0.0.1", "1")
    async with context_at(server.url) as context:
        found = await findings(context)
    assert found["role"].level == "wrong" and "127.0.0.1:1" in found["role"].text
    assert found["writes"] == Finding(
        "wrong", "writes", "the store refuses writes: read-only", "point TRACKER_REDIS__URL at the primary"
    )


@pytest.mark.parametrize("fault", [ADDRESS_HIDDEN, PROXY_HEADER_MISSING, PROXY_HEADER_UNEXPECTED, UPGRADE_MISSING])
async def test_what_a_proxy_does_wrong_has_a_line_for_an_hour(redis_url: str, prefix: str, fault: str) -> None:
    async with context_at(redis_url, prefix) as context:
        context.store.counters.count(f"failures.{fault}", by=3)
        await context.store.counters.flush()
        found = (await findings(context))["proxy"]
        assert found.level == "warning" and found.text == f"3 requests in an hour: {fault}"
        context.store.clock = lambda: time.time() + 4000
        assert "proxy" not in await findings(context)


async def test_a_proxy_that_is_not_trusted_is_guessed_by_the_ports_of_its_address(redis_url: str, prefix: str) -> None:
    async with context_at(redis_url, prefix) as context:

        async def join(address: str, first: int, last: int) -> None:
            packed = pack_address(address)
            assert packed is not None
            for number in range(first, last):
                where = pack_endpoint(packed, 2000 + number)
                await context.store.swarms.announce(update(number, "s", number % 9, endpoint=where))

        async with in_background(context.store.swarms.run()):
            await join("10.0.0.5", 0, 99)
            await join("9.9.9.9", 100, 250)
            assert "proxy address" not in await findings(context)
            await join("10.0.0.5", 250, 260)
            found = (await findings(context))["proxy address"]
    assert found.level == "warning" and found.text.endswith("10.0.0.5: it may be a proxy")


async def test_a_clock_difference_is_wrong(redis_url: str, prefix: str) -> None:
    async with context_at(redis_url, prefix) as context:
        clocks = []
        for difference in (-3, 3, 1):
            context.store.clock = partial(lambda seconds: time.time() + seconds, difference)
            clocks.append((await findings(context))["clock"])
    assert [clock.level for clock in clocks] == ["wrong", "wrong", "ok"]
    assert "ahead of" in clocks[0].text and "behind" in clocks[1].text


async def test_nearly_full_memory_is_a_warning(start_server: StartServer) -> None:
    server = start_server("--appendonly", "no")
    async with context_at(server.url) as context:
        used = bytes_in(await read_info(context.store.connection), "used_memory")
        for limit, level in ((used * 20 // 19, "warning"), (used * 10, "ok")):
            await context.store.connection.command("CONFIG", "SET", "maxmemory", limit)
            memory = (await findings(context))["memory"]
            assert (memory.level, "used of" in memory.text) == (level, True)


async def test_nearly_full_memory_warns_of_skipped_unique_users(start_server: StartServer) -> None:
    """HyperLogLog is the remedy; with it there is no warning."""
    server = start_server("--appendonly", "no")
    async with context_at(server.url) as context:
        used = bytes_in(await read_info(context.store.connection), "used_memory")
        await context.store.connection.command("CONFIG", "SET", "maxmemory", used * 20 // 17)
        found = (await findings(context))["unique users"]
        assert found.level == "warning" and "% of maxmemory is used" in found.text
        assert "TRACKER_UNIQUES__MODE=hyperloglog" in found.remedy
        for uniques in (UniqueSettings(mode="hyperloglog"), UniqueSettings(enabled=False)):
            other = context._replace(settings=context.settings.model_copy(update={"uniques": uniques}))
            assert "unique users" not in await findings(other)
        await context.store.connection.command("CONFIG", "SET", "maxmemory", used * 10)
        assert "unique users" not in await findings(context)


async def test_repairs_are_wrong_until_the_counter_is_reset(redis_url: str, prefix: str) -> None:
    async with context_at(redis_url, prefix) as context:
        await context.store.connection.command("SET", context.store.keys.stat("repairs"), 2)
        found = (await findings(context))["counts"]
    assert found.level == "wrong" and found.remedy.endswith("tracker wipe-stats --repairs")


async def test_a_stopped_tracker_is_a_warning(redis_url: str, prefix: str) -> None:
    async with context_at(redis_url, prefix) as context:
        assert (await findings(context))["tracker"].text == "no tracker has used this store yet"
        await context.store.connection.command("SET", context.store.keys.heartbeat(), int(time.time()) - 7200)
        found = (await findings(context))["tracker"]
    assert found.level == "warning" and "2 hours ago" in found.text


async def test_projects_that_need_probes_are_a_warning_while_there_are_none(redis_url: str, prefix: str) -> None:
    async with context_at(redis_url, prefix) as context:
        for name, verify in (("a", "announce"), ("b", "handshake"), ("c", "piece")):
            fields: dict[str, Any] = {"kind": "seeding", "keep_done_days": 1, "verify": verify}
            await context.store.work.projects.create(Project(name, **fields))
        found = (await findings(context))["work probes"]
        assert found.level == "warning" and found.text.endswith("project b, c")
        assert "TRACKER_PROBE__ENABLED=true" in found.remedy
        enabled = context.settings.model_copy(update={"probe": ProbeSettings(enabled=True)})
        assert "work probes" not in await findings(context._replace(settings=enabled))


async def test_logs_that_are_not_drained_are_a_warning(redis_url: str, prefix: str) -> None:
    """Only beyond what a log without a drain keeps, and at most five projects by name."""
    names = [f"p{number}" for number in range(7)]
    async with context_at(redis_url, prefix) as context:
        for name in ["quiet", *names]:
            await context.store.work.projects.create(Project(name))
        assert "work logs" not in await findings(context)
        await fill_log(context, "quiet", KEPT_LOG + 1)  # without a drain
        for number, name in enumerate(names):
            await fill_log(context, name, KEPT_LOG - number if name == "p6" else KEPT_LOG + number + 1)
            await context.store.work.log.open_drain(name)
        found = (await findings(context))["work logs"]
        assert found.level == "warning" and "quiet" not in found.text and "p6" not in found.text
        assert found.text.endswith("p5 (100006), p4 (100005), p3 (100004), p2 (100003), p1 (100002) and 1 more")
        assert "tracker work drain p5 DIR" in found.remedy
        assert found.remedy.endswith(f"XGROUP DESTROY {prefix}w:p5:log drain")


async def fill_log(context: Context, project: str, count: int) -> None:
    fill = "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '1-' .. i, 'item', i) end"
    await context.store.connection.command("EVAL", fill, 1, context.store.keys.work_log(project), count)


@pytest.mark.parametrize("name", ["aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"])
def test_a_failed_write_is_wrong(name: str) -> None:
    info: dict[str, Any] = {name: "err"}
    assert [finding.level for finding in check_disk(info)] == ["wrong"]


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
def test_which_listen_addresses_are_public(listen: str, public: bool) -> None:
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
def test_settings_that_do_not_fit_a_public_tracker(announce: AnnounceSettings, listen: str, subjects: set[str]) -> None:
    settings = Settings(announce=announce, http=HttpSettings(listen=(listen,)))
    assert {finding.subject for finding in check_settings(settings) if finding.level != "ok"} == subjects


@pytest.mark.parametrize(
    ("admin", "subjects"),
    [
        (AdminSettings(), set()),
        (AdminSettings(listen=("unix:/run/a", "[::1]:1")), set()),
        (AdminSettings(listen=("127.0.0.1:6970", "0.0.0.0:6970")), {"admin port"}),
        (AdminSettings(listen=("0.0.0.0:6970",), enabled=False), set()),
    ],
)
def test_a_public_admin_port_is_reported(admin: AdminSettings, subjects: set[str]) -> None:
    settings = Settings(admin=admin, http=LOCAL)
    assert {finding.subject for finding in check_settings(settings) if finding.level != "ok"} == subjects


@pytest.mark.parametrize(
    ("urls", "enabled", "levels"),
    [
        ("", True, []),
        ("https://t.example", True, ["warning"]),
        ("https://t.example", None, ["ok"]),
        ("https://t.example", False, []),
        ("https://t.example,wss://t.example", True, []),
    ],
)
def test_a_url_that_browsers_need_is_missed(urls: str, enabled: bool | None, levels: list[str]) -> None:
    given: Any = {"http": LOCAL, "announce": {"urls": urls}, "webtorrent": {"enabled": enabled}}
    found = [each for each in check_settings(Settings.model_validate(given)) if each.subject == "webtorrent"]
    assert [each.level for each in found] == levels
    assert all("wss://" in each.text for each in found)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "ok"),
        ({"site": {"listen": ("0.0.0.0:6971",)}}, "can be intercepted"),
        ({"users": {"private": "optional"}}, "set TRACKER_USERS__PRIVATE=required"),
        ({"torrents": {"mode": "open"}}, "set TRACKER_TORRENTS__MODE=registered"),
        ({"clients": {"allow_list": True}}, "ok"),
        ({"clients": {}}, "set TRACKER_CLIENTS__DENY_LIST=true or TRACKER_CLIENTS__ALLOW_LIST=true"),
    ],
)
def test_settings_that_a_site_needs_for_its_calls_are_reported(changes: dict[str, Any], says: str) -> None:
    assert "site" not in {finding.subject for finding in check_settings(Settings(http=LOCAL))}
    settings = {
        "http": LOCAL,
        "site": {"listen": ("127.0.0.1:6971", "unix:/run/site"), "key": "k" * 32},
        "users": {"private": "required"},
        "torrents": {"mode": "registered"},
        "clients": {"deny_list": True},
        **changes,
    }
    found = [each for each in check_settings(Settings.model_validate(settings)) if each.subject == "site"]
    assert [each.level for each in found] == ["ok" if says == "ok" else "warning"]
    assert says == "ok" or says in str(found[0])


@pytest.mark.parametrize(
    ("days", "make", "level", "says"),
    [
        (59, make_city, "ok", "GeoLite2-City of 2026-01-01: countries, cities, postcodes"),
        (61, make_city, "warning", "that was 61 days ago: update it"),
        (1, make_country, "ok", "GeoLite2-Country of 2026-01-01: countries: a City database"),
    ],
)
def test_the_geoip_database_is_checked(
    tmp_path: Path, days: int, make: Callable[..., Path], level: str, says: str
) -> None:
    built = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    found = check_geoip(make(tmp_path / "g.mmdb", built=built), built + days * 86400)
    assert (found.level, found.subject) == (level, "geoip")
    assert says in str(found)


def test_an_unusable_geoip_database_is_wrong_and_none_is_ok(tmp_path: Path) -> None:
    missing = check_geoip(tmp_path / "g.mmdb", 0)
    assert missing.level == "wrong" and "(No such file or directory)" in missing.text
    (tmp_path / "g.mmdb").write_bytes(b"not a database")
    assert check_geoip(tmp_path / "g.mmdb", 0).level == "wrong"
    none = check_geoip(None, 0)
    assert none.level == "ok" and "TRACKER_GEOIP__DATABASE" in none.remedy


async def test_the_private_store_passes_every_check(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data": {"directory": tmp_path / "data"}, "http": LOCAL})
    async with open_store(settings) as store:
        context = Context(store, settings)
        assert {finding.level for finding in (await findings(context)).values()} == {"ok"}


@pytest.mark.parametrize(("enabled", "subjects"), [(False, ["probes"]), (True, [])])
def test_checks_of_peers_without_connections_are_a_warning(enabled: bool, subjects: list[str]) -> None:
    settings = Settings(http=LOCAL, probe=ProbeSettings(enabled=enabled, connectable=True))
    assert [finding.subject for finding in check_settings(settings) if finding.level == "warning"] == subjects


@pytest.mark.parametrize(
    ("info", "level"),
    [({"redis_version": "6.2.14"}, "wrong"), ({"redis_version": "7.0.0"}, "ok"), ({"valkey_version": "8.0.1"}, "ok")],
)
def test_a_node_with_an_unsupported_version_is_reported(info: dict[str, str], level: str) -> None:
    """The others of a cluster: the tracker does not start with such a node as its first."""
    found = {finding.subject: finding for finding in check_info(info, Settings(http=LOCAL))}
    assert found["server"].level == level
