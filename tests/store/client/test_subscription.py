"""Subscriptions to messages of the store. test_connection.py tests what a subscription promises its callers."""

import asyncio

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from loadtest.servers import Server
from tests.waiting import eventually
from tracker.store.client.connection import connect
from tracker.store.client.subscription import MAX_WAITING, open_subscription

MANY = 10 * MAX_WAITING


async def test_unconsumed_messages_wait_in_the_store(any_server: Server, prefix: str) -> None:
    """Events arrive faster than peers are reaped: none is lost, and the process does not hold them all."""
    client = connect(any_server.url, connect_timeout=5)
    subscription = await open_subscription(client)
    await subscription.subscribe("PSUBSCRIBE", f"{prefix}*")
    script = "for n = 1, tonumber(ARGV[1]) do redis.call('PUBLISH', ARGV[2] .. n % 7, n .. ARGV[3]) end"
    await client.eval(script, 0, str(MANY), prefix, "." * 200)
    await eventually(lambda: subscription.paused)
    async with asyncio.timeout(30):
        waiting = subscription.waiting
        got = [await anext(subscription) for _ in range(MANY)]
    assert waiting < MANY / 2
    assert [payload.rstrip(b".") for _, payload in got] == [b"%d" % (n + 1) for n in range(MANY)]
    assert {channel for channel, _ in got} == {f"{prefix}{n}".encode() for n in range(7)}
    subscription.close()
    await client.aclose()


async def test_a_broken_subscription_stays_broken(any_server: Server, prefix: str) -> None:
    client = connect(any_server.url, connect_timeout=5)
    subscription = await open_subscription(client)
    await subscription.subscribe("SUBSCRIBE", f"{prefix}a", f"{prefix}b")
    await client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")  # type: ignore[no-untyped-call]  # redis-py's
    for _ in range(2):
        with pytest.raises(RedisConnectionError):
            await anext(subscription)
    await client.aclose()


async def test_a_refused_subscription_ends(any_server: Server) -> None:
    client = connect(any_server.url, connect_timeout=5)
    subscription = await open_subscription(client)
    with pytest.raises(ResponseError):
        await subscription.subscribe("SUBSCRIBE_NOT", "a")
    await client.aclose()
