"""The Lua scripts as the server receives them."""

import re
import shutil
from collections.abc import AsyncIterator, Callable
from importlib import resources
from pathlib import Path

import pytest
from redis.exceptions import OutOfMemoryError, ResponseError

from loadtest.servers import Server
from tests.store.harness import Store, running, update
from tracker.store.client import scripts
from tracker.store.client.scripts import LIBRARIES, Script, source
from tracker.store.schema.keys import Keys
from tracker.store.swarms.codec import Refused
from tracker.store.swarms.rules import SwarmRules

LUA = Path(str(resources.files("tracker.store") / "lua"))
FILES = {str(path.relative_to(LUA)): path.read_text() for path in LUA.rglob("*.lua")}
INCLUDED = {name for text in FILES.values() for name in re.findall(r"^ *--@ include (\S+)$", text, re.MULTILINE)}
SCRIPTS = sorted(Path(name).stem for name in FILES.keys() - INCLUDED)
SHRINKS_OR_REPAIRS = {
    "upgrade_swarms",
    "unlink",
    "forget_markers",
    "reap",
    "due",
    "sweep",
    "shorten_timeouts",
    "remove",
    "allow",
    "cleanup",
    "heartbeat",
    "totals",
    "count",
    "count_announces",
    "clean",
    "delete_user",
    "copy_users",
    "drop_hit_and_runs",
    "begin_removal",
    "end_removal",
}
LETS_OTHERS_SHRINK = {
    "abandon",
    "claim",
    "collect",
    "enqueue_slot",
    "extend",
    "finish",
    "purge",
    "acknowledge",
    "work_release",
    "work_extend",
    "work_lapse",
    "work_purge",
    "work_trim",
    "work_rank",
    "work_delete",
}
"""Jobs free memory, so their scripts must run in a full store."""
SIGNS_IN = {"sign_in"}
"""Operators must be able to sign in to a full store. It adds at most 1,000 sessions of a few hundred bytes."""
RECORDS = {"audit"}
"""Changes in a full store, such as deletions, are recorded. It keeps a bounded number of entries."""
KEEPS_LEASES = {"work_verify", "work_probe", "work_facts", "hold_webhook"}
"""A volunteer who seeds must not lose the claim in a full store, and changes are delivered. They rewrite records whose
number is bounded."""
ONLY_READS = {
    "scrape",
    "count_before",
    "list_users",
    "list_torrents",
    "read_users",
    "read_torrents",
    "session",
    "user_peers",
    "dht_swarm",
    "dht_page",
}
"""Operators must be able to search a full store. Replicas may run these scripts too."""


def test_scripts_are_found() -> None:
    assert {"announce", "reap", "due", "sweep", "add", "remove"} <= set(SCRIPTS)


def test_includes_are_resolved() -> None:
    texts = {name: source(name) for name in SCRIPTS}
    assert not [name for name, text in texts.items() if not text.startswith("#!lua") or "\n#!lua" in text]
    assert not [name for name, text in texts.items() if "--@" in text]


def test_an_upgrade_of_the_package_changes_no_script_of_a_running_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(LUA, tmp_path / "lua")
    monkeypatch.setattr(scripts, "_LUA", tmp_path / "lua")
    for cached in (scripts._texts, scripts._files, source):
        cached.cache_clear()
    before = source("heartbeat")
    shutil.rmtree(tmp_path / "lua")
    assert source("audit") != before


def test_each_head_lists_arguments_and_the_reply() -> None:
    assert not [name for name in SCRIPTS if not has_a_whole_head(name)]


def has_a_whole_head(name: str) -> bool:
    (text,) = [text for file, text in FILES.items() if Path(file).stem == name]
    first, *rest = text.splitlines()
    head = "\n".join(line for line in rest[: [*rest, ""].index(next(x for x in rest if not x.startswith("--")))])
    whole = head.startswith(f"-- {name}.lua: ") and "-- Answer    " in head
    allowed = SHRINKS_OR_REPAIRS | LETS_OTHERS_SHRINK | SIGNS_IN | RECORDS | KEEPS_LEASES
    flags = " flags=allow-oom" if name in allowed else " flags=no-writes" if name in ONLY_READS else ""
    return whole and first == f"#!lua{flags}"


def test_no_joined_number_can_lose_its_digits() -> None:
    """1e14 joined to a string becomes `1e+14`: numbers that may be large go through decimal()."""
    for name, text in FILES.items():
        for line in text.splitlines():
            assert not re.search(r"tostring\((?!reply)", line), f"{name}: {line}"


async def test_the_server_loads_each_script(store: Store) -> None:
    for name in SCRIPTS:
        await store.redis.script_load(source(name))


async def test_a_script_allowed_to_run_when_memory_is_short(store: Store) -> None:
    text = source("announce", allows_oom=True)
    assert text.startswith("#!lua flags=allow-oom\n--") and text.count("#!lua") == 1
    await store.redis.script_load(text)


async def test_a_lost_script_is_loaded_again(store: Store) -> None:
    """A restart, SCRIPT FLUSH or a failover loses all scripts. NOSCRIPT means that nothing was executed."""
    await store.torrents.add(b"x" * 20)  # type: ignore[arg-type]  # an info hash
    for _ in range(2):
        await store.redis.script_flush()
        await store.announce(update(1))
        await store.counters.flush()
        assert await store.reaping.reap([("1", "00" * 20)]) == 0


async def test_a_script_that_is_lost_repeatedly_is_run(store: Store) -> None:
    """Two failovers between loading and calling: the call then carries the script itself."""
    flushed = 0

    async def losing(*words: str | bytes | int | float) -> object:
        nonlocal flushed
        if words[0] == "EVALSHA":
            await store.redis.script_flush()
            flushed += 1
        return await store.connection.command(*words)

    echo = Script(losing, store.keys.prefix, "#!lua\nreturn { KEYS[1], ARGV[1] }")
    assert await echo(["a"]) == [store.keys.prefix.encode(), b"a"]
    assert flushed == 2


async def test_errors_of_a_script_reach_the_caller(store: Store) -> None:
    broken = Script(store.connection.command, store.keys.prefix, "#!lua\nreturn redis.call('INCR', KEYS[1], 'x')")
    with pytest.raises(ResponseError, match="Wrong number of args"):
        await broken([])
    short = Script(store.connection.command, store.keys.prefix, "#!lua\nreturn redis.error_reply('OOM no room')")
    with pytest.raises(OutOfMemoryError):
        await short([])


async def test_the_prefix_is_the_only_key(store: Store) -> None:
    """On a cluster it decides the slot."""
    echo = Script(store.connection.command, store.keys.prefix, "#!lua\nreturn { #KEYS, KEYS[1], #ARGV, ARGV[2] }")
    assert await echo(["a", b"\xff"]) == [1, store.keys.prefix.encode(), 2, b"\xff"]


@pytest.fixture(params=["valkey", "redis"])
def own(request: pytest.FixtureRequest, start_server: Callable[..., Server]) -> Server:
    """A server for this test alone."""
    return start_server("--appendonly", "no", binary=request.param)


@pytest.fixture
async def own_store(own: Server) -> AsyncIterator[Store]:
    async with running(Store(own.url, Keys("t:"), SwarmRules())) as store:
        yield store


def commands(store: Store) -> list[str | int]:
    return [script.head[0] for script in (store.scripts.announce, store.scripts.announce_when_full)]


async def libraries(store: Store) -> list[bytes]:
    return [row[1] for row in await store.redis.execute_command("FUNCTION", "LIST")]


async def test_the_server_keeps_the_announce_script_as_functions(own_store: Store) -> None:
    for _ in range(2):
        await own_store.redis.execute_command("FUNCTION", "FLUSH")
        await own_store.announce(update(1))
    (library,) = await libraries(own_store)
    assert library.startswith(f"{LIBRARIES}announce_".encode())
    assert commands(own_store) == ["FCALL", "FCALL"]


async def test_a_full_server_keeps_the_functions(own_store: Store) -> None:
    await own_store.announce(update(1, "s"))
    await own_store.redis.config_set("maxmemory", 1)
    assert isinstance(await own_store.swarms.announce(update(2, "s")), Refused)
    assert (await own_store.announce(update(1))).outcome == "update"
    await own_store.redis.config_set("maxmemory", 0)
    assert (await own_store.announce(update(2, "s"))).outcome == "join"
    assert commands(own_store) == ["FCALL", "FCALL"]


async def test_a_full_server_that_lost_its_functions_runs_scripts(own_store: Store) -> None:
    await own_store.announce(update(1, "s"))
    await own_store.redis.execute_command("FUNCTION", "FLUSH")
    await own_store.redis.config_set("maxmemory", 1)
    assert isinstance(await own_store.swarms.announce(update(2, "s")), Refused)
    assert (await own_store.announce(update(1))).outcome == "update"
    assert not await libraries(own_store)


@pytest.mark.parametrize("denied", ["-fcall", "-function", "-function|load"])
async def test_a_server_that_forbids_functions_runs_scripts(own: Server, own_store: Store, denied: str) -> None:
    await own_store.redis.acl_setuser("site", enabled=True, nopass=True, keys="*", channels="*", commands=["+@all"])
    await own_store.redis.execute_command("ACL", "SETUSER", "site", denied)
    url = own.url.replace("unix://", "unix://site:any@")
    async with running(Store(url, Keys("t:"), SwarmRules())) as store:
        assert (await store.announce(update(1, "s"))).outcome == "join"
        assert (await store.announce(update(1))).outcome == "update"
        assert store.scripts.announce.head[0] == "EVALSHA"


async def test_a_server_without_functions_runs_scripts(start_server: Callable[..., Server]) -> None:
    server = start_server("--appendonly", "no", "--rename-command", "FCALL", "")
    async with running(Store(server.url, Keys("t:"), SwarmRules())) as store:
        assert (await store.announce(update(1, "s"))).outcome == "join"
        assert store.scripts.announce.head[0] == "EVALSHA"
