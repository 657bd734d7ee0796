"""Subscriptions to messages of the store. test_connection.py tests what a subscription promises its callers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError

from loadtest.servers import Server as Valkey
from tests.waiting import eventually
from tracker.store.client.connection import connect
from tracker.store.client.server import Server
from tracker.store.client.subscription import MAX_WAITING, Subscriber, Subscription

MANY = 10 * MAX_WAITING


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[tuple[Server, Subscription]]:
    server = connect(url, connect_timeout=5, timeout=5)
    subscription = await server.subscription.opened()
    yield server, subscription
    await server.close()


async def started(
    subscription: Subscription, *, channels: tuple[str, ...] = (), patterns: tuple[str, ...] = ()
) -> Subscriber:
    subscriber = Subscriber(subscription, channels, patterns)
    await subscriber.start()
    return subscriber


async def test_unconsumed_messages_wait_in_the_store(any_server: Valkey, prefix: str) -> None:
    """Events arrive faster than peers are reaped: none is lost, and the process does not hold them all."""
    async with opened(any_server.url) as (server, subscription):
        messages = await started(subscription, patterns=(f"{prefix}*",))
        script = "for n = 1, tonumber(ARGV[1]) do redis.call('PUBLISH', ARGV[2] .. n % 7, n .. ARGV[3]) end"
        await server.execute("EVAL", script, 0, str(MANY), prefix, "." * 200)
        await eventually(lambda: subscription.paused)
        async with asyncio.timeout(30):
            waiting = subscription.waiting
            got = [await anext(messages) for _ in range(MANY)]
        assert waiting < MANY / 2
        assert [payload.rstrip(b".") for _, payload in got] == [b"%d" % (n + 1) for n in range(MANY)]
        assert {channel for channel, _ in got} == {f"{prefix}{n}".encode() for n in range(7)}
        assert subscription.waiting == 0


async def test_a_broken_subscription_stays_broken(any_server: Valkey, prefix: str) -> None:
    async with opened(any_server.url) as (server, subscription):
        several = [await started(subscription, channels=(f"{prefix}{name}",)) for name in "ab"]
        await server.execute("CLIENT", "KILL", "TYPE", "pubsub")
        for messages in 2 * several:
            with pytest.raises(RedisConnectionError):
                await anext(messages)
        with pytest.raises(RedisConnectionError):
            await started(subscription, channels=("late",))


async def test_subscribers_share_a_connection(any_server: Valkey, prefix: str) -> None:
    """Each gets its own messages. Those of one that has left cost no more, and the last one closes the connection."""
    async with opened(any_server.url) as (server, subscription):
        one = await started(subscription, patterns=(f"{prefix}1*",), channels=(f"{prefix}news",))
        two = await started(subscription, patterns=(f"{prefix}2*",), channels=(f"{prefix}news",))
        for channel in ("11", "21", "news", "12"):
            await server.execute("PUBLISH", prefix + channel, channel)
        assert [(await anext(one))[1] for _ in range(3)] == [b"11", b"news", b"12"]
        assert [(await anext(two))[1] for _ in range(2)] == [b"21", b"news"]
        one.close()
        with pytest.raises(RedisConnectionError):
            await anext(one)
        again = await started(subscription, channels=(f"{prefix}again",))  # after the store has heard of the end
        assert await server.execute("PUBLISH", f"{prefix}13", "") == 0
        assert await server.execute("PUBLISH", f"{prefix}news", "for two") == 1
        assert (await anext(two))[1] == b"for two"
        two.close()
        again.close()
        assert subscription.broken


async def test_messages_of_one_that_left_do_not_keep_the_others_waiting(any_server: Valkey, prefix: str) -> None:
    async with opened(any_server.url) as (server, subscription):
        stuck = await started(subscription, channels=(f"{prefix}stuck",))
        other = await started(subscription, channels=(f"{prefix}other",))
        script = "for n = 1, tonumber(ARGV[1]) do redis.call('PUBLISH', ARGV[2], ARGV[3]) end"
        await server.execute("EVAL", script, 0, str(MANY), f"{prefix}stuck", "." * 200)
        await eventually(lambda: subscription.paused)
        stuck.close()
        await server.execute("PUBLISH", f"{prefix}other", "x")
        async with asyncio.timeout(30):
            assert (await anext(other))[1] == b"x"


async def test_a_refused_subscriber_ends_alone(any_server: Valkey, prefix: str) -> None:
    with any_server.client() as admin:
        rules = ("on", ">p", "+@all", "resetchannels", f"&{prefix}mine")
        admin.execute_command("ACL", "SETUSER", f"{prefix}half", *rules)
        url = any_server.url.replace("unix://", f"unix://{prefix.replace(':', '%3A')}half:p@")
        try:
            async with opened(url) as (_, subscription):
                mine = await started(subscription, channels=(f"{prefix}mine",))
                refused = Subscriber(subscription, [f"{prefix}theirs"], ())
                with pytest.raises(NoPermissionError):
                    await refused.start()
                refused.close()
                await started(subscription, channels=(f"{prefix}mine",))
                admin.publish(f"{prefix}mine", "x")
                assert (await anext(mine))[1] == b"x"
        finally:
            admin.execute_command("ACL", "DELUSER", f"{prefix}half")
