"""The Lua scripts as the server gets them."""

import re
from importlib import resources

import pytest
from redis.exceptions import OutOfMemoryError, ResponseError

from tests.store.harness import Store, update
from tracker.store.scripts import Script, source, source_allowing_oom

FILES = {path.name: path.read_text() for path in (resources.files("tracker.store") / "lua").iterdir()}
INCLUDED = {
    name for text in FILES.values() for name in re.findall(r"^--@ include (\S+)$", text, re.MULTILINE)
}
SCRIPTS = sorted(name.removesuffix(".lua") for name in FILES.keys() - INCLUDED)
SHRINKS_OR_REPAIRS = {
    "reap",
    "due",
    "sweep",
    "rewind",
    "remove",
    "allow",
    "tidy",
    "heartbeat",
    "totals",
    "count",
    "clean",
    "delete_user",
}
LETS_OTHERS_SHRINK = {"abandon", "claim", "collect", "enqueue_slot", "extend", "finish", "purge", "sent"}
"""What frees memory runs as jobs: they must start and end where the store is full."""
LETS_PEOPLE_IN = {"sign_in"}
"""Whoever makes room has to come in: at most 1000 sessions of a few hundred bytes."""
ONLY_READS = {"scrape", "search"}
"""Whoever makes room has to find what to remove; a replica may be asked too."""


def test_there_are_scripts() -> None:
    assert {"announce", "reap", "due", "sweep", "add", "remove"} <= set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_includes_are_resolved(name: str) -> None:
    text = source(name)
    assert text.startswith("#!lua") and "\n#!lua" not in text
    assert "--@" not in text


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_head_says_what_goes_in_and_out(name: str) -> None:
    first, *rest = FILES[f"{name}.lua"].splitlines()
    head = "\n".join(
        line for line in rest[: [*rest, ""].index(next(x for x in rest if not x.startswith("--")))]
    )
    assert head.startswith(f"-- {name}.lua: ") and "KEYS[1]   the prefix" in head and "Answer" in head
    allowed = SHRINKS_OR_REPAIRS | LETS_OTHERS_SHRINK | LETS_PEOPLE_IN
    flags = " flags=allow-oom" if name in allowed else " flags=no-writes" if name in ONLY_READS else ""
    assert first == f"#!lua{flags}"


def test_no_joined_number_can_lose_its_digits() -> None:
    """1e14 joined to a string becomes `1e+14`: what may be large goes through decimal()."""
    for name, text in FILES.items():
        for line in text.splitlines():
            assert not re.search(r"tostring\((?!reply)", line), f"{name}: {line}"


@pytest.mark.parametrize("name", SCRIPTS)
async def test_the_server_takes_it(store: Store, name: str) -> None:
    await store.redis.script_load(source(name))


async def test_a_script_allowed_to_run_when_memory_is_short(store: Store) -> None:
    text = source_allowing_oom("announce")
    assert text.startswith("#!lua flags=allow-oom\n--") and text.count("#!lua") == 1
    await store.redis.script_load(text)


async def test_a_lost_script_is_loaded_again(store: Store) -> None:
    """A restart, SCRIPT FLUSH or a failover loses them all; NOSCRIPT says that nothing was run."""
    await store.torrents.add(b"x" * 20)  # type: ignore[arg-type]  # an info hash
    for _ in range(2):
        await store.redis.script_flush()
        await store.announce(update(1))
        await store.counters.flush()
        assert await store.reaping.reap([("1", "00" * 20)]) == 0


async def test_errors_of_a_script_are_the_callers(store: Store) -> None:
    broken = Script(
        store.connection.command, store.keys.prefix, "#!lua\nreturn redis.call('INCR', KEYS[1], 'x')"
    )
    with pytest.raises(ResponseError, match="Wrong number of args"):
        await broken([])
    short = Script(
        store.connection.command, store.keys.prefix, "#!lua\nreturn redis.error_reply('OOM no room')"
    )
    with pytest.raises(OutOfMemoryError):
        await short([])


async def test_the_prefix_is_the_one_key(store: Store) -> None:
    """On a cluster it decides the slot."""
    echo = Script(
        store.connection.command, store.keys.prefix, "#!lua\nreturn { #KEYS, KEYS[1], #ARGV, ARGV[2] }"
    )
    assert await echo(["a", b"\xff"]) == [1, store.keys.prefix.encode(), 2, b"\xff"]
