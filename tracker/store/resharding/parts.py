"""A store as its prefixes: the main one and those of the shards. Keys are found by walks through its servers."""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from tracker.errors import ClientError
from tracker.store.client.pipe import Argument
from tracker.store.client.server_info import read_info
from tracker.store.layout import ALIVE_SECONDS, heartbeats
from tracker.store.schema.keys import KeySpec, main_prefix_of, pattern_of
from tracker.store.schema.table import row_of
from tracker.store.sharding.shards import Place, Shard, scan_together
from tracker.store.store import Store

PAGE, _MEMBERS = 2000, 500
_SHARD = re.compile(rb"\{(main|[0-9]{2,3}[a-z]{4})\}:")


class Found(NamedTuple):
    part: Shard
    row: KeySpec
    name: bytes
    """The key without the prefix."""

    @property
    def key(self) -> bytes:
        return self.key_in(self.part)

    def key_in(self, part: Shard) -> bytes:
        """The key of the same name under another prefix."""
        return part.keys.prefix.encode() + self.name


Command = tuple[Place, tuple[Argument, ...]]


class Walk(NamedTuple):
    """Where a walk goes on."""

    server: int = 0
    cursor: int = 0


class Page(NamedTuple):
    found: list[Found]
    unknown: int
    """Keys of the prefix that are not in the key table."""
    keys: int
    """Keys that the servers named, also of other prefixes."""
    after: Walk | None
    """None at the end."""


class Parts:
    """The prefixes of ``store``. ``page``: keys in one SCAN."""

    def __init__(self, store: Store, page: int = PAGE) -> None:
        self.store = store
        self._page = page
        self.shards = store.shards
        self.main, self.others, self.all = store.shards.main, store.shards.others, store.shards.all
        self._by_name = {part.keys.prefix.encode(): part for part in self.all}

    async def number_written(self) -> int | None:
        """The number of shards that the store under this prefix was made with, if it has several."""
        key = f"{main_prefix_of(self.store.prefix, 2)}shards"
        (number,) = await self.send([(self.main, ("GET", key))])
        return None if number is None else int(number)

    async def runs(self) -> str:
        """Names the servers since their start: only as long is the position of a walk valid."""
        infos = [await read_info(server, "server") for server in self.store.shards.servers]
        return " ".join(info["run_id"] for info in infos)

    async def size(self) -> int:
        """Keys on all servers, also of other prefixes."""
        return sum([int(await server.command("DBSIZE")) for server in self.store.shards.servers])

    async def pages(self, start: Walk | None = None) -> AsyncGenerator[Page]:
        """All keys. One that is there all the time comes at least once."""
        servers, walk = self.store.shards.servers, start or Walk()
        how = ("MATCH", f"{pattern_of(self.store.prefix)}*", "COUNT", self._page)
        while True:
            cursor, names = await servers[walk.server].command("SCAN", walk.cursor, *how)
            after: Walk | None = Walk(walk.server, int(cursor))
            if after == Walk(walk.server):
                after = Walk(walk.server + 1) if walk.server + 1 < len(servers) else None
            found, unknown = self._sorted(names)
            yield Page(found, unknown, len(names), after)
            if after is None:
                return
            walk = after

    def _sorted(self, names: Sequence[bytes]) -> tuple[list[Found], int]:
        found, unknown, cut = [], 0, len(self.store.prefix)
        for key in names:
            match = _SHARD.match(key, cut)
            part = self._by_name.get(key[: match.end() if match else cut])
            if part is None:  # of another store, with another number of shards
                continue
            name = key[len(part.keys.prefix) :]
            row = row_of(name.decode("latin-1"))  # each byte as one letter, as the patterns expect
            if row is None:
                unknown += 1
            else:
                found.append(Found(part, row, name))
        return found, unknown

    async def send(self, commands: Sequence[Command]) -> list[Any]:
        try:
            return await self.store.shards.send(commands)
        except ResponseError as error:
            if str(error).startswith("WRONGTYPE"):
                raise ClientError(
                    "a key is of another type than docs/keys.md says: run `tracker cleanup --delete` before"
                ) from error
            raise

    async def ranked(self, part: Shard, key: str) -> AsyncIterator[list[str]]:
        """The members of a sorted set, in pages."""
        async for pages in scan_together(self.send, [(part, ("ZSCAN", key))], "COUNT", _MEMBERS):
            yield [member.decode() for member in pages[0][::2]]

    async def delete(self) -> None:
        async for page in self.pages():
            await self.send([(each.part, ("UNLINK", each.key)) for each in page.found])


async def check_idle(parts: Parts, shown: str) -> None:
    """Raises ClientError while a tracker runs on the store; ``shown``: which one."""
    now = parts.store.clock()
    if any(abs(now - beat) < ALIVE_SECONDS for beat in await heartbeats(parts.shards)):
        which = f"the {shown} store" if shown else "the store"
        raise ClientError(f"a tracker runs on {which}, or ran {ALIVE_SECONDS:.0f} seconds ago: stop it before")
