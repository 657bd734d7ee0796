"""Counts the files that an announce enters on its path from the socket to the store and back.

A whole tracker serves in this process, with a real valkey-server. A profile function notes each call of a function in
``tracker/`` while one announce is answered. Several announces are traced, and the path that most of them took counts:
a timer of another part may run during one of them.
"""

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import NamedTuple, get_args

import pytest
from pydantic import SecretStr

import tracker
from tests.frontends.http.harness import PEER_ID, QUERY
from tests.raw_http import Client, connect
from tests.raw_http import request as http_request
from tests.store.harness import ALICE, Store, peer_id, running
from tracker.app.service import Banner, serve
from tracker.bittorrent import Accounts
from tracker.settings.model import AdminSettings, HttpSettings, RedisSettings, Settings, UserSettings
from tracker.settings.reload import Reload
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.valkey.opening import StoreServer

PACKAGE = f"{Path(tracker.__file__).parent}/"
TRACED = 15
MAX_FILES = {"regular": 10, "early": 10, "join": 14}
"""By kind of announce: a peer that announces again, after its interval or before; and a peer that joins."""


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


@dataclass(frozen=True)
class Peers:
    """Peers of one torrent, announced over one kept connection."""

    client: Client
    path: str
    store: Store

    def target(self, number: int, event: str = "") -> str:
        query = QUERY.replace(escaped(PEER_ID), escaped(peer_id(number)))
        return f"{self.path}?{query}&key=1F3A9C07&compact=1&numwant=50{event and f'&event={event}'}"

    async def trace(self, kind: str) -> tuple[Call, ...]:
        """The most common path of several announces of a kind."""
        if kind == "join":
            traces = [
                await trace(self.client, self.target(number, "started")) for number in range(1, 1 + TRACED)
            ]
        else:
            await trace(self.client, self.target(0, "started"))
            traces = [await self.announce_again(early=kind == "early") for _ in range(TRACED)]
        return Counter(traces).most_common(1)[0][0]

    async def announce_again(self, *, early: bool) -> tuple[Call, ...]:
        key = self.store.keys.peer("1", peer_id(0))
        announced = int(await self.store.redis.hget(key, "last_announce"))
        if not early:  # its interval has passed
            await self.store.redis.hset(key, "last_announce", announced - 1800)
        return await trace(self.client, self.target(0))


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
        await store.users.add("7", ALICE)
        found = Peers(client, "/announce" if request.param == "off" else f"/{ALICE}/announce", store)
        await trace(client, found.target(99, "started"))  # what is cached once is cached
        yield found


@pytest.mark.serial
@pytest.mark.parametrize("kind", MAX_FILES)
async def test_an_announce_enters_few_files_each_once_down_and_once_up(peers: Peers, kind: str) -> None:
    calls = await peers.trace(kind)
    print(kind, shown(calls))  # noqa: T201
    assert calls[0].file == "frontends/http/fast_protocol.py" and {call.way for call in calls} == {
        "down",
        "up",
    }
    assert len(files_of(calls)) <= MAX_FILES[kind]
    assert not entered_again(calls)
