"""The line on which the store speaks unasked. What a subscription promises its users is tested in test_connection.py."""

import asyncio

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from tests.servers import Server
from tracker.store.connection import connect
from tracker.store.subscription import MOST_WAITING, open_subscription

MANY = 10 * MOST_WAITING


async def test_messages_nobody_takes_wait_in_the_store(any_server: Server, prefix: str) -> None:
    """A crowd of events comes faster than anybody reaps; none is lost, and this process does not hold them all."""
    client = connect(any_server.url, connect_timeout=5)
    subscription = await open_subscription(client)
    await subscription.subscribe("PSUBSCRIBE", f"{prefix}*")
    script = "for n = 1, tonumber(ARGV[1]) do redis.call('PUBLISH', ARGV[2] .. n % 7, n .. ARGV[3]) end"
    await client.eval(script, 0, str(MANY), prefix, "." * 200)
    async with asyncio.timeout(30):
        while not subscription.paused:
            await asyncio.sleep(0.01)
        waiting = subscription.waiting
        got = [await anext(subscription) for _ in range(MANY)]
    assert waiting < MANY / 2
    assert [payload.rstrip(b".") for _, payload in got] == [b"%d" % (n + 1) for n in range(MANY)]
    assert {channel for channel, _ in got} == {f"{prefix}{n}".encode() for n in range(7)}
    subscription.close()
    await client.aclose()


async def test_a_broken_one_stays_broken(any_server: Server, prefix: str) -> None:
    client = connect(any_server.url, connect_timeout=5)
    subscription = await open_subscription(client)
    await subscription.subscribe("SUBSCRIBE", f"{prefix}a", f"{prefix}b")
    await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")  # type: ignore[no-untyped-call]  # redis-py's
    for _ in range(2):
        with pytest.raises(RedisConnectionError):
            await anext(subscription)
    await client.aclose()


async def test_what_the_store_refuses_ends_it(any_server: Server) -> None:
    client = connect(any_server.url, connect_timeout=5)
    subscription = await open_subscription(client)
    with pytest.raises(ResponseError):
        await subscription.subscribe("SUBSCRIBE_NOT", "a")
    await client.aclose()
