"""Redis' keyspace notifications: the flags the reaper needs, added to those already set."""

import structlog
from redis.exceptions import ResponseError

from tracker.store.connection import Connection

log = structlog.get_logger("tracker.store")


def missing_flags(present: str) -> str:
    """What ``notify-keyspace-events`` lacks for key expiry by key: K, and x unless A (all) is there."""
    return ("" if "K" in present else "K") + ("" if "x" in present or "A" in present else "x")


async def read_setting(connection: Connection, name: str) -> str | None:
    """A setting of the server, or None where CONFIG is forbidden."""
    try:
        answer = await connection.command("CONFIG", "GET", name)
    except ResponseError:
        return None
    pairs = answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))
    for key, value in pairs.items():
        if _text(key) == name:
            return _text(value)
    return None


async def request_expiry_events(connection: Connection) -> bool:
    """Switches expiry events on where they are off; False, and a warning, where that is forbidden."""
    present = await read_setting(connection, "notify-keyspace-events")
    missing = missing_flags(present or "")
    if present is not None and not missing:
        return True
    try:
        if present is None:
            raise ResponseError("CONFIG is forbidden")
        await connection.command("CONFIG", "SET", "notify-keyspace-events", present + missing)
    except ResponseError as error:
        log.warning(
            "no expiry events from the store: due lists and the sweep reap alone; set notify-keyspace-events to Kx there",
            error=str(error),
        )
        return False
    log.info("expiry events switched on", flags=present + missing)
    return True


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
