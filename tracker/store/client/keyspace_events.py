"""Redis' keyspace notifications: the flags the reaper needs, added to those already set."""

from redis.exceptions import ResponseError

from tracker.store.client.connection import Connection
from tracker.system.logger import Logger

log = Logger("tracker.store")


def missing_flags(present: str) -> str:
    """The flags that ``notify-keyspace-events`` needs for expiry events by key: K, and x unless A (all) is set."""
    return ("" if "K" in present else "K") + ("" if "x" in present or "A" in present else "x")


async def read_setting(connection: Connection, name: str) -> str | None:
    """A setting of the server; None when CONFIG is forbidden."""
    try:
        answer = await connection.command("CONFIG", "GET", name)
    except ResponseError:
        return None
    return answer[1].decode() if answer else None


async def request_expiry_events(connection: Connection) -> bool:
    """Enables expiry events; returns False, and logs a warning, when CONFIG is forbidden."""
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
            "no expiry events from the store: due lists and the sweep reap alone; "
            "set notify-keyspace-events to Kx there",
            error=str(error),
        )
        return False
    log.info("expiry events switched on", flags=present + missing)
    return True
