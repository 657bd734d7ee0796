"""Counts the files that an announce enters on its path from the socket to the store and back, and in the store.

A whole tracker serves in this process, with a real valkey-server. A profile function notes each call of a function in
``tracker/`` while one announce is answered. Several announces are traced, and the path that most of them took counts:
a timer of another part may run during one of them. For the path in the store, the server gets the announce script with
a note at the start of each of its functions.
"""

import asyncio
import gc
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import NamedTuple, TypeVar, get_args

import pytest
from pydantic import SecretStr

import tracker
from tests.frontends.http.harness import PEER_ID, QUERY
from tests.raw_http import Client, connect
from tests.raw_http import request as http_request
from tests.store.harness import Store, peer_id, running
from tracker.app.service import Banner, serve
from tracker.bittorrent import Accounts
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.public import HttpSettings, UserSettings
from tracker.settings.reload import Reload
from tracker.settings.site import AdminSettings
from tracker.store.client.scripts import lines_of, source
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.valkey.server import StoreServer

PACKAGE = f"{Path(tracker.__file__).parent}/"
TRACED = 15
MAX_FILES = {"regular": 10, "moving": 10, "early": 10, "join": 14, "leave": 10}
"""By kind of announce: a peer that announces again, after its interval, then also with other byte counts, or before it;
a peer that joins, and one that leaves."""
MAX_LUA_FILES = {"regular": (5, 8), "moving": (5, 8), "join": (14, 14), "leave": (12, 12)}
"""The same for files of the announce script: of a peer without a user, and of a user's."""
LUA_FUNCTION = re.compile(r"\bfunction\b *([\w.]*)\([^)]*\)")


class Call(NamedTuple):
    """A call of a function of the tracker."""

    way: str
    """``down`` until the store's answer arrives, then ``up``."""
    file: str
    function: str
    enters: bool
    """Whether the caller is in another file, or outside the tracker."""


def files_of(calls: tuple[Call, ...]) -> list[str]:
    """The files entered, in the order in which an announce first comes to them."""
    return list(dict.fromkeys(call.file for call in calls))


def entered_again(calls: tuple[Call, ...]) -> list[tuple[str, str]]:
    """Files entered, left into another file, and entered again on the same way."""
    entries = [entry for entry, _ in groupby((call.way, call.file) for call in calls if call.enters)]
    return [entry for entry, times in Counter(entries).items() if times > 1]


def shown(calls: tuple[Call, ...]) -> str:
    lines = [f"  {call.way:4} {call.file} {call.function}" for call in calls]
    return "\n".join([f"{len(files_of(calls))} files: {', '.join(files_of(calls))}", *lines])


def file_of(frame: FrameType | None) -> str:
    """The file of a frame, below tracker/; empty for any other."""
    name = frame.f_code.co_filename if frame is not None else ""
    return name.removeprefix(PACKAGE) if name.startswith(PACKAGE) else ""


def file_of_caller(frame: FrameType) -> str:
    """The file of the nearest caller that belongs to the tracker."""
    caller = frame.f_back
    while caller is not None and not file_of(caller):
        caller = caller.f_back
    return file_of(caller)


@contextmanager
def tracing(calls: list[Call]) -> Iterator[None]:
    way = "down"

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal way
        file = file_of(frame) if event == "call" else ""
        if file:
            if file == "store/client/pipe.py" and frame.f_code.co_name == "data_received":
                way = "up"
            calls.append(Call(way, file, frame.f_code.co_name, file_of_caller(frame) != file))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(before)


async def trace(client: Client, target: str) -> tuple[Call, ...]:
    """The calls from the first byte of an announce to its answer, and in three turns of the loop after it."""
    calls: list[Call] = []
    with tracing(calls):
        client.send(http_request(target))
        assert b"peers" in (await client.receive()).reply
        for _ in range(3):
            await asyncio.sleep(0)
    return tuple(calls)


def noting(file: str) -> str:
    """The text of a Lua file with its fragments. Each function notes at its start that it was called."""
    return "".join(
        LUA_FUNCTION.sub(lambda match, file=own: f"{match[0]} note_entry('{file} {match[1]}')", f"{line}\n")  # type: ignore[misc]
        for own, _, line in lines_of(file)
    )


@asynccontextmanager
async def tracing_script(client: Client, store: Store) -> AsyncIterator[Callable[[str], Awaitable[tuple[str, ...]]]]:
    """Makes announces and returns the calls of functions of the announce script, each as ``file function``."""
    key, load = f"{store.keys.prefix}calls", store.scripts.announce.load
    begin, tail = "local announce\n", "return announce(KEYS, ARGV)\n"
    note = f"local function note_entry(call) redis.call('RPUSH', '{key}', call) end\n"
    plain, noted = (
        text.removeprefix("#!lua\n").removesuffix(tail)
        for text in (source("announce"), noting("announce/announce.lua"))
    )
    assert load[-1].count(begin) == load[-1].count(plain) == 1 and "note_entry" not in plain
    text = load[-1].replace(begin, begin + note).replace(plain, noted)

    async def trace_script(target: str) -> tuple[str, ...]:
        await store.redis.delete(key)
        assert b"peers" in (await client.get(target)).reply
        return tuple(call.decode() for call in await store.redis.lrange(key, 0, -1))

    await store.connection.command(*load[:-1], text)
    try:
        yield trace_script
    finally:
        await store.connection.command(*load)


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[str]:
    """A whole tracker in this process; gives the address of its HTTP port."""
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    assert settings.redis.url is not None
    server = StoreServer(settings.redis.url.get_secret_value(), "in that server", None)
    threshold = gc.get_threshold()

    def on_ready(banner: Banner) -> None:
        ready.set_result(banner.addresses[0])

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(serve(settings, server, stop, on_ready, Reload(lambda: settings)))
        try:
            yield await ready
        finally:
            stop.set()
    gc.unfreeze()
    gc.set_threshold(*threshold)


T = TypeVar("T")


@dataclass(frozen=True)
class Peers:
    """Peers of one torrent, announced over one kept connection."""

    client: Client
    store: Store
    has_users: bool
    """Whether each peer is one of a user of its own."""

    def target(self, kind: str, number: int) -> str:
        peer = number if kind in ("join", "leave") else 0
        query = QUERY.replace(escaped(PEER_ID), escaped(peer_id(peer)))
        query = query.replace("port=6881", f"port={6881 + peer}")
        if kind == "moving":
            query = query.replace("uploaded=0&downloaded=0", f"uploaded={2 * number}&downloaded={number}")
        event = {"join": "&event=started", "leave": "&event=stopped"}.get(kind, "")
        path = f"/{peer:020}/announce" if self.has_users else "/announce"
        return f"{path}?{query}&key=1F3A9C07&compact=1&numwant=50{event}"

    async def most_common(self, kind: str, trace: Callable[[str], Awaitable[T]]) -> T:
        """The most common path of several announces of a kind. ``trace`` makes one, and returns its path."""
        paths = []
        for number in range(1, 1 + TRACED):
            await self.prepare(kind, number)
            paths.append(await trace(self.target(kind, number)))
        return Counter(paths).most_common(1)[0][0]

    async def prepare(self, kind: str, number: int) -> None:
        """Who does not join is in the swarm, and who is not early announced an interval ago."""
        if kind == "leave":
            await self.client.get(self.target("join", number))
        elif kind != "join" and number == 1:
            await self.client.get(self.target("join", 0))
        if kind in ("regular", "moving"):
            await self.store.redis.hincrby(self.store.keys.peer("1", peer_id(0)), "last_announce", -1800)


def escaped(raw: bytes) -> str:
    return "".join(f"%{byte:02X}" for byte in raw)


@pytest.fixture(params=get_args(Accounts))
async def peers(request: pytest.FixtureRequest, redis_url: str, prefix: str) -> AsyncIterator[Peers]:
    settings = Settings(
        redis=RedisSettings(url=SecretStr(redis_url), prefix=prefix),
        http=HttpSettings(listen=("127.0.0.1:0",)),
        users=UserSettings(private=request.param),
        admin=AdminSettings(enabled=False),
    )
    async with (
        running(Store(redis_url, Keys(prefix), SwarmRules())) as store,
        serving(settings) as address,
        connect(address) as client,
    ):
        for user in range(TRACED + 2):
            await store.users.add(str(user + 1), f"{user:020}")
        found = Peers(client, store, request.param != "off")
        await trace(client, found.target("join", TRACED + 1))  # what is cached once is cached
        yield found


@pytest.mark.serial
@pytest.mark.parametrize("kind", MAX_FILES)
async def test_an_announce_enters_few_files_each_once_down_and_once_up(peers: Peers, kind: str) -> None:
    calls = await peers.most_common(kind, partial(trace, peers.client))
    print(kind, shown(calls))  # noqa: T201
    assert calls[0].file == "frontends/http/fast_protocol.py" and {call.way for call in calls} == {"down", "up"}
    assert len(files_of(calls)) <= MAX_FILES[kind]
    assert not entered_again(calls)


@pytest.mark.serial
@pytest.mark.parametrize("kind", MAX_LUA_FILES)
async def test_an_announce_enters_few_files_of_the_script(peers: Peers, kind: str) -> None:
    async with tracing_script(peers.client, peers.store) as trace_script:
        calls = await peers.most_common(kind, trace_script)
    files = list(dict.fromkeys(call.split()[0] for call in calls))
    path = f"{len(files)} files, {len(calls)} calls: {', '.join(files)}"
    print("\n  ".join([kind, path, *calls]))  # noqa: T201
    assert calls[0] == "announce/announce.lua announce"
    public, private = MAX_LUA_FILES[kind]
    assert len(files) <= (private if peers.has_users else public), path
