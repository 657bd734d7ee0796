"""Settings of the store: a Redis or Valkey server of the site, or the tracker's private one."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from tracker.settings.types import Section


class RedisSettings(Section):
    """The store: an existing Redis or Valkey server. Without a URL the tracker starts a private server."""

    url: SecretStr | None = None
    """An existing server: `redis://`, `rediss://` or `unix://`, with user, password and database. With Sentinel:
    `redis+sentinel://user:password@host:26379,host:26379/name-of-the-master/database`, with TLS `rediss+sentinel://`.
    Of a cluster one node or several: `redis://user:password@host:6379,host:6379`; the first that answers names the
    others. Without it a private server is started."""
    sentinel_user: str | None = None
    """User name for the sentinels, if they require one; separate from the server's user name."""
    sentinel_password: SecretStr | None = None
    """Password for the sentinels, if they require one."""
    prefix: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.{}:\-]*:$")] = "t:"
    """Prefix of every key, so that several trackers can share a server; it ends with a colon. On a Redis or Valkey
    Cluster it needs a hash tag, as in `t:{t}:`, unless there are several shards."""
    shards: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of parts that the swarms are split into, by info hash: 1, or a power of two. It is fixed when the store is
    made; `tracker reshard` copies a store into one with another number."""
    tls_ca_file: Path | None = None
    """CA certificates that verify a `rediss://` server, instead of the system's."""
    connect_timeout_seconds: float = Field(0.5, gt=0, le=60)
    """How long connecting to the store may take."""
    timeout_seconds: Annotated[float, Field(gt=0, le=60)] = 0.8
    """How long an answer of the store may take. After that, announces fail with `retry in`."""
    start_wait_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0
    """How long a start waits for a store that does not answer or refuses work for now; 0: for ever. `tracker serve
    --fail-fast` waits for a second."""
    max_waiting: Annotated[int, Field(ge=64, le=1_000_000_000)] = 2048
    """Maximum number of announces waiting for the store, in all processes together. More are refused at once with
    `retry in`, and their connections closed. A good value is the number of announces that the tracker answers in half a
    second."""

    @field_validator("shards")
    @classmethod
    def _power_of_two(cls, value: int, info: ValidationInfo) -> int:
        if value & (value - 1):
            raise ValueError("choose 1 or a power of two")
        if value > 1 and "{" in info.data.get("prefix", ""):
            raise ValueError("several shards need a prefix without braces")
        return value

    @field_validator("prefix")
    @classmethod
    def _no_shard(cls, value: str) -> str:
        """Scripts recognise the prefixes of several shards, and the main one, by such an end."""
        if re.search(r":\{([0-9]+[a-z]*|main)\}:$", value):
            raise ValueError("choose another hash tag: numbers and main are those of shards")
        return value


class DataSettings(Section):
    """The private store's data on this machine."""

    directory: Path = Path("data")
    """Directory of the private store's data. It is created if missing, readable by its owner only."""
    max_memory_mb: Annotated[int | None, Field(ge=0, le=1_000_000_000)] = None
    """Memory limit of the private store, in MB (2^20 bytes); 0: no limit. Default: 60 % of the memory this process may
    use (cgroup or machine), at least 256 MB and 1.25 times the data at the start. At 80 % of it unique users are no
    longer counted, at 100 % joins are refused."""
