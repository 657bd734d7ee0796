"""Which server the store is, and whether it is one that we can use."""

import asyncio
import re
import ssl

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tracker.errors import StartupError

_OLDEST = {"valkey": (7, 2), "redis": (7, 0)}


def version_of(info: str) -> tuple[str, tuple[int, int], str]:
    """(kind, (major, minor), text) out of INFO server; kind is ``valkey`` or ``redis``."""
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    kind = "valkey" if "valkey_version" in fields or fields.get("server_name") == "valkey" else "redis"
    text = fields.get(f"{kind}_version", "0.0")
    found = re.match(r"(\d+)\.(\d+)", text)
    return kind, (int(found[1]), int(found[2])) if found else (0, 0), f"{kind} {text}"


async def check_server(client: Redis, shown: str, timeout: float = 2.0) -> str:
    """The server's name and version; raises StartupError when it does not answer in time (s) or is too old.

    ``shown`` is the server's address as it may be printed (no password).
    """
    try:
        async with asyncio.timeout(timeout):
            raw = await client.execute_command("INFO", "server")  # type: ignore[no-untyped-call]  # redis-py's
    except TimeoutError as error:
        raise StartupError(f"no usable store at {shown}: no answer within {timeout:g} s") from error
    except (RedisError, OSError, ssl.SSLError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise StartupError(f"no usable store at {shown}: {reason.splitlines()[0]}") from error
    text = raw if isinstance(raw, bytes) else b"\n".join(b"%b:%b" % (_b(k), _b(v)) for k, v in raw.items())
    kind, version, name = version_of(text.decode("utf-8", "replace"))
    if version < _OLDEST[kind]:
        raise StartupError(f"the store at {shown} is {name}: Redis 7.0, Valkey 7.2 or newer is needed")
    return name


def _b(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()
