"""Shared by the tests of the front end: a tracker that records requests, a raw client, both event loops."""

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import pytest
import uvloop

from tests.raw_http import Client, connect
from tracker.bittorrent import Address, Announce, AnnounceReply, Scrape, ScrapeFile, ScrapeReply
from tracker.core.announce import Tracker
from tracker.frontends.http.server import serve_http
from tracker.refusals import Refusal
from tracker.settings.model import LiveSettings, Settings
from tracker.settings.public import AnnounceSettings, HttpSettings, TorrentSettings, UserSettings
from tracker.system.listeners import open_listeners
from tracker.wire.endpoint import format_address

INFO_HASH = bytes(range(20))
PEER_ID = b"-XX0001-" + bytes(range(244, 256))
QUERY = "info_hash={}&peer_id={}&port=6881&uploaded=0&downloaded=0&left=1".format(
    "".join(f"%{byte:02x}" for byte in INFO_HASH), "".join(f"%{byte:02X}" for byte in PEER_ID)
)
ANNOUNCE = f"/announce?{QUERY}"
fast_path = True
"""False: aiohttp answers everything (conftest.py runs every test with both values)."""

_LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def on_loops(*names: str) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Callable[..., None]]:
    """Runs a coroutine test on the named event loops, or on all of them."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
        def run(*args: Any, new_loop: Callable[[], asyncio.AbstractEventLoop], **fixtures: Any) -> None:
            with asyncio.Runner(loop_factory=new_loop) as runner:
                runner.run(test(*args, **fixtures))

        functools.update_wrapper(run, test)
        signature = inspect.signature(test)
        extra = inspect.Parameter("new_loop", inspect.Parameter.KEYWORD_ONLY)
        run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), extra])  # type: ignore[attr-defined]
        del run.__wrapped__  # type: ignore[attr-defined]  # or pytest treats it as a coroutine
        chosen = names or tuple(_LOOPS)
        mark = pytest.mark.parametrize("new_loop", [_LOOPS[name] for name in chosen], ids=chosen)
        marked: Callable[..., None] = mark(run)
        return marked

    return decorate


Reply = TypeVar("Reply")


def _outcome(task: "asyncio.Task[Reply]") -> Reply | Refusal:
    if task.cancelled():
        return Refusal("internal error")
    error = task.exception()
    return error if isinstance(error, Refusal) else task.result()


class RecordingTracker(Tracker):
    """Records and accepts every request. ``error`` is raised instead; answers wait for ``may_answer``."""

    def __init__(self) -> None:
        self.announces: list[tuple[Announce, str | None, Address]] = []
        self.scrapes: list[tuple[Scrape, str | None, Address]] = []
        self.labels: list[str] = []
        self.kinds: list[str] = []
        self.error: Exception | None = None
        self.reads_store_first = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def submit(
        self,
        announce: Announce,
        passkey: str | None,
        address: Address,
        answer: Callable[[AnnounceReply | Refusal], None],
    ) -> bool:
        if self.reads_store_first:
            return False
        if self.error is not None and not isinstance(self.error, Refusal):
            raise self.error
        asked = asyncio.get_running_loop().create_task(self.announce(announce, passkey, address))
        asked.add_done_callback(lambda task: answer(_outcome(task)))
        return True

    async def submit_later(
        self,
        announce: Announce,
        passkey: str | None,
        address: Address,
        answer: Callable[[AnnounceReply | Refusal], None],
    ) -> None:
        try:
            answer(await self.announce(announce, passkey, address))
        except Refusal as error:
            answer(error)

    def submit_scrape(
        self, scrape: Scrape, passkey: str | None, address: Address, answer: Callable[[ScrapeReply | Refusal], None]
    ) -> bool:
        if not scrape.info_hashes:
            return False
        if self.error is not None and not isinstance(self.error, Refusal):
            raise self.error
        asked = asyncio.get_running_loop().create_task(self.scrape(scrape, passkey, address))
        asked.add_done_callback(lambda task: answer(_outcome(task)))
        return True

    async def announce(self, announce: Announce, passkey: str | None, address: Address) -> AnnounceReply:
        self.announces.append((announce, passkey, address))
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return AnnounceReply(1800, 900, seeders=announce.port, leechers=0, completions=0)

    async def scrape(self, scrape: Scrape, passkey: str | None, address: Address) -> ScrapeReply:
        self.scrapes.append((scrape, passkey, address))
        if self.error is not None:
            raise self.error
        return ScrapeReply({info_hash: ScrapeFile(seeders=1) for info_hash in scrape.info_hashes})

    def refused(self, label: str, kind: str = "other", number: int = 1) -> None:
        self.labels += [label] * number
        self.kinds += [kind] * number

    @property
    def address(self) -> str:
        """The address of the last announce, as text."""
        return format_address(self.announces[-1][2])


@contextlib.asynccontextmanager
async def serving(
    tracker: RecordingTracker,
    announce: AnnounceSettings | None = None,
    constants: Mapping[str, Any] | None = None,
    backlog: int | None = None,
    users: UserSettings | None = None,
    **http: Any,
) -> AsyncIterator[str]:
    """A front end on a free loopback port, or on ``listen``; yields its first address.

    ``constants`` replaces constants of the tracker's modules, ``http`` are settings.
    """
    settings = Settings(
        http=HttpSettings(**{"listen": ("127.0.0.1:0",), **http}),
        announce=announce or AnnounceSettings(),
        torrents=TorrentSettings(max_scrape=400),
        users=users or UserSettings(),
    )
    listeners = await open_listeners(settings.http.listen, backlog) if backlog else None
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (constants or {}).items():
            patch.setattr(f"tracker.{name}", value)
        served = serve_http(tracker, LiveSettings(settings), listeners=listeners, fast_path=fast_path)
        async with served as addresses:
            yield addresses[0]


@contextlib.asynccontextmanager
async def talking(
    tracker: RecordingTracker,
    announce: AnnounceSettings | None = None,
    constants: Mapping[str, Any] | None = None,
    users: UserSettings | None = None,
    **http: Any,
) -> AsyncIterator[Client]:
    """A front end with one client."""
    async with serving(tracker, announce, constants, users=users, **http) as address, connect(address) as client:
        yield client
