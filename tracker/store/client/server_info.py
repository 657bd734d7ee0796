"""What the server says about itself: INFO, as text by field, and settings. Unsupported kinds and versions are rejected;
the flags of keyspace notifications that the reaper needs are added to those already set."""

import asyncio
import re
import ssl
from collections.abc import Mapping

from redis.exceptions import AuthenticationError, InvalidResponse, RedisError, ResponseError

from tracker.errors import StartupError, StoreNotReady, StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.client.server import NO_REPLY, Server, is_refusal
from tracker.system.logger import Logger

log = Logger("tracker.store")


def parse_info(reply: bytes) -> dict[str, str]:
    """The fields of INFO's reply. Section titles and what is no field are left out."""
    lines = reply.decode("utf-8", "replace").splitlines()
    fields = (line.partition(":") for line in lines if not line.startswith("#"))
    return {name: value for name, colon, value in fields if colon}


async def read_info(connection: Connection, *sections: str) -> dict[str, str]:
    """INFO, or some sections of it. Raises StoreUnavailable, and redis.exceptions.ResponseError where it is
    forbidden."""
    return parse_info(await connection.command("INFO", *sections))


def bytes_in(info: dict[str, str], field: str) -> int:
    """A field that counts bytes; 0 where the server does not have it."""
    return int(info.get(field, 0))


_MIN_VERSIONS = {"valkey": (7, 2), "redis": (7, 0)}


def version_of(info: Mapping[str, str]) -> tuple[str, tuple[int, int], str]:
    """(kind, (major, minor), text) from INFO server; kind is ``valkey`` or ``redis``."""
    kind = "valkey" if "valkey_version" in info or info.get("server_name") == "valkey" else "redis"
    text = info.get(f"{kind}_version", "0.0")
    found = re.match(r"(\d+)\.(\d+)", text)
    return kind, (int(found[1]), int(found[2])) if found else (0, 0), f"{kind} {text}"


def too_old(info: Mapping[str, str]) -> str:
    """Why the server of this INFO is not supported; empty if it is."""
    kind, version, name = version_of(info)
    return "" if version >= _MIN_VERSIONS[kind] else f"{name}: Redis 7.0, Valkey 7.2 or newer is needed"


async def check_server(server: Server, shown: str, timeout: float = 2.0) -> tuple[str, bool]:
    """Its name with the version, and whether it is part of a cluster. ``shown`` is its address as it may be printed (no
    password). Raises StoreNotReady when it gives no answer in time (s) or refuses work for now, StartupError when it is
    unusable."""
    try:
        async with asyncio.timeout(timeout):
            raw = await server.execute("INFO", "server", "cluster")
    except (TimeoutError, StoreUnavailable) as error:
        raise StoreNotReady(f"no usable store at {shown}: no answer within {timeout:g} s") from error
    except (RedisError, OSError, ssl.SSLError, ValueError) as error:
        reason = str(error) or type(error).__name__
        lasting = (AuthenticationError, InvalidResponse, ssl.SSLError)  # a wrong password, protocol or certificate
        is_lasting = any(isinstance(each, lasting) for each in (error, error.__cause__, error.__context__))
        kind = StoreNotReady if (isinstance(error, NO_REPLY) or is_refusal(error)) and not is_lasting else StartupError
        raise kind(f"no usable store at {shown}: {reason.splitlines()[0]}{_advice(shown, error)}") from error
    info = parse_info(raw)
    if reason := too_old(info):
        raise StartupError(f"the store at {shown} is {reason}")
    return version_of(info)[2], info.get("cluster_enabled") == "1"


def _advice(shown: str, error: Exception) -> str:
    """What to do about an error of TLS, or of a server that speaks it."""
    if "certificate verify failed" in str(error):
        return " (TRACKER_REDIS__TLS_CA_FILE names the authority of the server's certificate)"
    closed = any(text in str(error) for text in ("Connection lost", "Connection reset", "Connection closed"))
    return " (a server with TLS needs rediss://)" if closed and shown.startswith("redis://") else ""


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
