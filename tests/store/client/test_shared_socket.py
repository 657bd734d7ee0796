"""A socket that the callers of one server share."""

import asyncio

import pytest

from loadtest.servers import Server
from tracker.store.client.connection import connect
from tracker.store.client.pipe import RedisPipe, open_pipe
from tracker.store.client.shared_socket import SharedSocket


async def test_callers_share_one_socket_until_it_is_broken(valkey: Server) -> None:
    client = connect(valkey.url, connect_timeout=5)
    opens = 0

    async def open_one() -> RedisPipe:
        nonlocal opens
        opens += 1
        return await open_pipe(client, 5.0, lambda finished: None)

    shared = SharedSocket[RedisPipe]()
    first, second = await asyncio.gather(shared.opened(open_one), shared.opened(open_one))
    assert first is second is await shared.opened(open_one)
    assert opens == 1
    shared.close()
    assert first.broken
    assert await (await shared.opened(open_one)).execute("PING") == b"PONG"
    assert opens == 2
    shared.close()
    await client.aclose()


async def test_a_socket_that_cannot_be_opened_is_tried_again_by_the_next_caller() -> None:
    async def fail() -> RedisPipe:
        raise OSError("nobody listens")

    shared = SharedSocket[RedisPipe]()
    shared.close()
    for _ in range(2):
        with pytest.raises(OSError, match="nobody listens"):
            await shared.opened(fail)
