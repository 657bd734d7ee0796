"""The sockets to a server. test_connection.py tests commands and subscriptions."""

import asyncio
from collections.abc import Callable

import pytest

from loadtest.servers import Server as Valkey
from tests.waiting import eventually, loop_turns
from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection, connect
from tracker.store.client.server import MAX_COMMANDS, Shared


async def test_callers_share_one_socket_until_it_is_broken(valkey: Valkey) -> None:
    server = connect(valkey.url, connect_timeout=5, timeout=5)
    first, second = await asyncio.gather(server.commands.opened(), server.commands.opened())
    assert first is second is await server.commands.opened()
    server.close_sockets()
    assert first.broken
    assert await server.execute("PING") == b"PONG"
    assert server.commands.socket is not first
    await server.close()


async def test_commands_announces_and_messages_have_sockets_of_their_own(valkey: Valkey) -> None:
    server = connect(valkey.url, connect_timeout=5, timeout=5)
    ids = [await (await pipe.opened()).execute("CLIENT", "ID") for pipe in (server.announces, server.commands)]
    assert len(set(ids)) == 2
    subscription = await server.subscription.opened()
    waiting = (await server.commands.opened()).execute("BLPOP", "nothing here", 0)
    assert await (await server.announces.opened()).execute("PING") == b"PONG"
    assert not waiting.done() and not subscription.broken
    await server.close()
    await asyncio.wait([waiting])


async def test_a_socket_that_cannot_be_opened_is_tried_again_by_the_next_caller() -> None:
    async def fail() -> None:
        raise OSError("nobody listens")

    shared = Shared(fail)  # type: ignore[type-var]  # it opens none
    shared.close()
    for _ in range(2):
        with pytest.raises(OSError, match="nobody listens"):
            await shared.opened()


async def test_callers_that_wait_for_one_attempt_fail_with_it() -> None:
    """A server that does not answer would keep the last of a thousand callers for half an hour."""
    attempts = 0

    async def fail() -> None:
        nonlocal attempts
        attempts += 1
        await asyncio.sleep(0)
        raise OSError("no reply")

    shared = Shared(fail)  # type: ignore[type-var]  # it opens none
    outcomes = await asyncio.gather(*(shared.opened() for _ in range(5)), return_exceptions=True)
    assert [type(each) for each in outcomes] == [OSError, *[StoreUnavailable] * 4] and attempts == 1


async def test_a_socket_that_is_being_opened_is_closed_too(valkey: Valkey) -> None:
    server = connect(valkey.url, connect_timeout=5, timeout=5)
    with pytest.raises(StoreUnavailable):
        await asyncio.gather(server.commands.opened(), server.close())


async def test_a_loss_is_noted_once_for_the_calls_that_it_ends(start_server: Callable[..., Valkey]) -> None:
    """A later one would end the connection that is being restored."""
    valkey = start_server()
    connection = Connection(connect(valkey.url, connect_timeout=5, timeout=5))

    async def kill() -> None:
        with valkey.client() as client:
            await eventually(lambda: client.info("clients")["blocked_clients"] == 2)
        valkey.kill()

    outcomes = await asyncio.gather(
        connection.command("BLPOP", "none", 0), connection.direct("BLPOP", "none", 0), kill(), return_exceptions=True
    )
    assert [type(each) for each in outcomes[:2]] == [StoreUnavailable] * 2
    assert connection.server.losses == 1
    await connection.close()


@pytest.mark.parametrize("several", [False, True])
async def test_a_server_that_was_left_says_nothing_about_the_next_one(valkey: Valkey, several: bool) -> None:
    left, used = (connect(valkey.url, connect_timeout=5, timeout=5) for _ in range(2))
    connection = Connection(left)

    async def leave() -> None:
        await left.commands.opened()
        connection.use(used)
        left.close_sockets()

    commands = [("BLPOP", "none", 0)] * (1 + several)
    with pytest.raises(StoreUnavailable):
        await asyncio.gather(connection.pipeline(*commands) if several else connection.command(*commands[0]), leave())
    assert not connection.unavailable and used.losses == 0
    await left.close()
    await connection.close()


async def test_commands_wait_for_their_turn_and_fail_when_the_server_is_lost(
    start_server: Callable[..., Valkey],
) -> None:
    """The server executes what it has read of a pipe before it reads announces."""
    valkey = start_server()
    connection = Connection(connect(valkey.url, connect_timeout=20, timeout=20))
    await connection.command("PING")
    pipe = await connection.server.commands.opened()

    async def kill() -> None:
        await loop_turns(20)
        assert pipe.in_flight == MAX_COMMANDS
        assert await connection.direct("PING") == b"PONG"
        valkey.kill()

    waiting = [connection.command("BLPOP", "none", 0) for _ in range(3 * MAX_COMMANDS)]
    *outcomes, error = await asyncio.gather(*waiting, kill(), return_exceptions=True)
    assert error is None
    assert {type(each) for each in outcomes} == {StoreUnavailable}
    assert connection.server.losses == 1
    await connection.close()
