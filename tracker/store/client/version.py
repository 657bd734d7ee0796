"""Reads the kind and version of the store's server, and rejects unsupported ones."""

import asyncio
import re
import ssl
from collections.abc import Mapping

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tracker.errors import StartupError
from tracker.store.client.server_info import parse_info

_MIN_VERSIONS = {"valkey": (7, 2), "redis": (7, 0)}


class NoAnswer(StartupError):
    """The server accepts connections but does not reply."""


def version_of(info: Mapping[str, str]) -> tuple[str, tuple[int, int], str]:
    """(kind, (major, minor), text) from INFO server; kind is ``valkey`` or ``redis``."""
    kind = "valkey" if "valkey_version" in info or info.get("server_name") == "valkey" else "redis"
    text = info.get(f"{kind}_version", "0.0")
    found = re.match(r"(\d+)\.(\d+)", text)
    return kind, (int(found[1]), int(found[2])) if found else (0, 0), f"{kind} {text}"


async def check_server(client: Redis, shown: str, timeout: float = 2.0) -> str:
    """The server's name and version. Raises as read_info does, and StartupError for an unsupported version."""
    kind, version, name = version_of(await read_info(client, "server", shown, timeout))
    if version < _MIN_VERSIONS[kind]:
        raise StartupError(f"the store at {shown} is {name}: Redis 7.0, Valkey 7.2 or newer is needed")
    return name


async def read_info(client: Redis, section: str, shown: str, timeout: float = 2.0) -> Mapping[str, str]:
    """A section of INFO. Raises NoAnswer when the server does not answer in time (s), StartupError when it is unusable.

    ``shown`` is the server's address as it may be printed (no password).
    """
    try:
        async with asyncio.timeout(timeout):
            raw = await client.execute_command("INFO", section)  # type: ignore[no-untyped-call]  # redis-py's
    except TimeoutError as error:
        raise NoAnswer(f"no usable store at {shown}: no answer within {timeout:g} s") from error
    except (RedisError, OSError, ssl.SSLError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise StartupError(f"no usable store at {shown}: {reason.splitlines()[0]}") from error
    return parse_info(raw)
