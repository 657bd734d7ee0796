"""Runs background work until cancelled: a step again and again, in one tracker if it has a lease, or at messages."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection
from tracker.store.jobs.lease import Lease
from tracker.system.logger import Logger

_AGAIN_SECONDS, _SUBSCRIBE_SECONDS, _ERROR_SECONDS = 0.1, 0.5, 1.0

_T = TypeVar("_T")
Sleep = Callable[[float], Awaitable[object]]

log = Logger("tracker.background")


async def forever(
    step: Callable[[], Awaitable[Any]],
    every: float | None,
    failure: str = "background work failed",
    *,
    error_seconds: float | None = None,
    connection: Connection | None = None,
    lease: Lease | None = None,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Runs ``step`` until cancelled, with a pause of ``every`` seconds; None: of the seconds that it returns. With
    ``lease`` only while this tracker has it.

    Survives errors of the store. While it is unavailable, waits for ``connection``, or a pause where none is given.
    Logs other errors as ``failure``. Pauses for ``error_seconds``, if given, after an error and while another tracker
    has the lease.
    """
    try:
        while True:
            pause = error_seconds if error_seconds is not None else every if every is not None else _ERROR_SECONDS
            try:
                if lease is None or await lease.hold():
                    found = await step()
                    pause = found if every is None else every
            except StoreUnavailable:
                if connection is not None:
                    await sleep(_AGAIN_SECONDS)
                    await connection.until_available()
                    continue
            except RedisError as error:
                log.error(failure, error=str(error))
            if pause:
                await sleep(pause)
    finally:
        if lease is not None:
            await asyncio.shield(lease.release())


async def survive(work: Awaitable[_T], failure: str = "", told_by: Logger | None = None) -> _T | None:
    """None where the store is unavailable, or refuses, which is logged as ``failure`` unless that is empty. With
    ``told_by`` both are, as a warning of that logger."""
    try:
        return await work
    except (StoreUnavailable, RedisError) as error:
        if told_by is not None:
            told_by.warning(failure, error=str(error))
        elif failure and isinstance(error, RedisError):
            log.error(failure, error=str(error))
        return None


async def follow(
    connection: Connection,
    channel: str,
    handle: Callable[[bytes | None], Awaitable[None]],
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Calls ``handle`` with each message until cancelled; with ``None`` when the subscription begins, as messages may
    have been lost before."""
    while True:
        await connection.until_available()
        try:
            async with connection.subscription(channels=[channel]) as messages:
                await handle(None)
                async for _, payload in messages:
                    await handle(payload)
        except (StoreUnavailable, RedisError):  # RedisError: the store forbids the subscription
            await sleep(_SUBSCRIBE_SECONDS)


async def wait_for(event: asyncio.Event, seconds: float) -> None:
    """Returns when ``event`` is set, or after ``seconds``."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def until_next(seconds: float) -> None:
    """Waits until the event loop's clock reaches a multiple of ``seconds``, at least a quarter of them. The loops of
    all shards then call the store in the same turn of the event loop, and what they send a node is one write."""
    await asyncio.sleep(pause_until_next(seconds, asyncio.get_running_loop().time()))


def pause_until_next(seconds: float, now: float) -> float:
    """The pause (s) from ``now``. A timer that ends a little early does not lead to another, very short pause."""
    left = seconds - now % seconds
    return left if left >= seconds / 4 else left + seconds
