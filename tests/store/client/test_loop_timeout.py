"""A store counts as lost after its own silence, not after a pause of this process."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from redis import Redis

from tests.store.fakes import silent_server
from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection, connect
from tracker.store.client.pipe import loop_timeout

SECONDS = 0.2
BUSY_SECONDS = 60.0


class LaggingLoop(asyncio.SelectorEventLoop):
    """Its clock can be set ahead, as if one callback took that long."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def on_lagging_loop(work: Callable[[LaggingLoop], Awaitable[None]]) -> None:
    loop = LaggingLoop()

    async def run() -> None:
        await work(loop)

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(run())


def test_a_call_longer_than_the_limit_is_ended() -> None:
    async def work(loop: LaggingLoop) -> None:
        began = loop.time()
        with pytest.raises(TimeoutError):
            async with loop_timeout(SECONDS):
                await asyncio.Event().wait()
        assert loop.time() - began >= SECONDS

    on_lagging_loop(work)


def test_a_busy_process_does_not_end_a_call() -> None:
    async def work(loop: LaggingLoop) -> None:
        done = asyncio.Event()
        async with loop_timeout(SECONDS):
            loop.ahead += BUSY_SECONDS
            loop.call_later(SECONDS / 20, done.set)
            await done.wait()

    on_lagging_loop(work)


def test_a_limit_that_was_not_reached_leaves_nothing_behind() -> None:
    async def work(loop: LaggingLoop) -> None:
        async with loop_timeout(SECONDS):
            await asyncio.sleep(0)
        loop.ahead += BUSY_SECONDS
        await asyncio.sleep(0)

    on_lagging_loop(work)


@pytest.mark.parametrize("times", [1, 3, 20])
def test_a_store_that_answers_is_not_lost_while_the_process_is_busy(redis_url: str, times: int) -> None:
    """Commands on pooled connections, on the direct one, and on connections that have to be opened first. While the
    process is busy, the server answers what it has got: another client waits for that."""

    async def work(loop: LaggingLoop) -> None:
        connection = Connection(connect(redis_url, connect_timeout=SECONDS, timeout=SECONDS))
        for _ in range(2):
            calls = [
                asyncio.Task(call(*command))
                for call in (connection.command, connection.direct)
                for command in [("PING",), ("ECHO", "a")]
            ]
            for _ in range(times):
                await asyncio.sleep(0)
                other.ping()
                loop.ahead += BUSY_SECONDS
            await asyncio.gather(*calls)
        assert not connection.unavailable
        await connection.close()

    with Redis.from_url(redis_url) as other:
        on_lagging_loop(work)


def test_a_silent_store_is_lost_although_the_process_is_busy() -> None:
    async def work(loop: LaggingLoop) -> None:
        async with silent_server() as url:
            connection = Connection(connect(url, connect_timeout=SECONDS, timeout=SECONDS))
            call = asyncio.Task(connection.direct("PING"))
            await asyncio.sleep(0)
            loop.ahead += BUSY_SECONDS
            with pytest.raises(StoreUnavailable):
                await call
            assert connection.unavailable
            await connection.close()

    on_lagging_loop(work)
