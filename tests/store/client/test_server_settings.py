"""Expiry events are enabled without changing the flags that others have set (row T11)."""

from collections.abc import AsyncIterator

import pytest
import structlog

from loadtest.servers import Server
from tests.store.harness import Store
from tracker.store.client.connection import Connection, connect
from tracker.store.client.server_info import missing_flags, read_setting, request_expiry_events

SETTING = "notify-keyspace-events"


@pytest.fixture
async def restored(store: Store) -> AsyncIterator[Store]:
    """Restores the flags of the session's server."""
    before = await read_setting(store.connection, SETTING)
    assert before is not None
    yield store
    await store.redis.config_set(SETTING, before)


@pytest.mark.parametrize(
    ("present", "missing"),
    [("", "Kx"), ("Kx", ""), ("Ex", "K"), ("KEx", ""), ("K", "x"), ("A", "K"), ("AK", ""), ("AKE", ""), ("gE", "Kx")],
)
def test_missing_flags_are_computed(present: str, missing: str) -> None:
    assert missing_flags(present) == missing


@pytest.mark.parametrize("present", ["", "Kx", "Ex", "KEx", "K", "AKE", "E$g"])
async def test_flags_are_added_to_those_present(restored: Store, present: str) -> None:
    """T11: the others survive, and asking again changes nothing."""
    store = restored
    await store.redis.config_set(SETTING, present)
    normalized = await read_setting(store.connection, SETTING) or ""
    with structlog.testing.capture_logs() as logs:
        assert await request_expiry_events(store.connection)
        now = await read_setting(store.connection, SETTING) or ""
        assert await request_expiry_events(store.connection)
    assert len(logs) == (1 if missing_flags(normalized) else 0)
    assert missing_flags(now) == "" and set(normalized) <= set(now)
    assert set(now) <= set(normalized) | {"K", "x"}
    assert await read_setting(store.connection, SETTING) == now


@pytest.mark.parametrize("forbidden", ["-config", "-config|set"])
async def test_a_warning_names_the_remedy_where_config_is_forbidden(
    store: Store, any_server: Server, forbidden: str
) -> None:
    user = f"limited{store.keys.prefix.rstrip(':')}"
    await store.redis.acl_setuser(user, enabled=True, nopass=True, keys="*", commands=["+@all", forbidden])
    await store.redis.config_set(SETTING, "")
    connection = Connection(connect(f"unix://{user}:any@{any_server.socket_path}", connect_timeout=5, timeout=5))
    try:
        with structlog.testing.capture_logs() as logs:
            assert not await request_expiry_events(connection)
        assert [line["log_level"] for line in logs] == ["warning"]
        assert "set notify-keyspace-events to Kx there" in logs[0]["event"]
        await store.redis.config_set(SETTING, "Kx")
        assert await request_expiry_events(connection) is (forbidden == "-config|set")
    finally:
        await connection.close()
        await store.redis.acl_deluser(user)
        await store.redis.config_set(SETTING, "Kx")


async def test_settings_are_parsed(store: Store) -> None:
    assert await read_setting(store.connection, "maxmemory-policy") == "noeviction"
    assert await read_setting(store.connection, "no-such-setting") is None
