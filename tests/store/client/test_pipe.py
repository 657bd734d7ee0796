"""The line of its own to the store: what redis-py connects, a protocol of ours talks over."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ResponseError

from tests.servers import Server
from tests.store.fakes import answering
from tracker.errors import StoreAway
from tracker.store.connection import Connection, connect
from tracker.store.line import Line, open_line


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Line]:
    client = connect(url, connect_timeout=5)
    line = await open_line(client)
    try:
        yield line
    finally:
        line.close()
        await client.aclose()


class TestLine:
    async def test_answers_come_in_the_order_of_the_questions(self, any_server: Server) -> None:
        async with opened(any_server.url) as line:
            asked = [line.ask("ECHO", str(n)) for n in range(200)]
            assert await asyncio.gather(*asked) == [b"%d" % n for n in range(200)]

    async def test_an_answer_of_a_megabyte_in_many_pieces(self, valkey: Server) -> None:
        async with opened(valkey.url) as line:
            assert await line.ask("ECHO", b"x" * 1_000_000) == b"x" * 1_000_000

    async def test_errors_are_those_of_the_client_library(self, valkey: Server) -> None:
        async with opened(valkey.url) as line:
            with pytest.raises(NoScriptError):
                await line.ask("EVALSHA", "0" * 40, 0)
            with pytest.raises(ResponseError):
                await line.ask("NO SUCH COMMAND")
            assert await line.ask("PING") == b"PONG"

    async def test_it_is_in_the_database_of_the_url(self, valkey: Server) -> None:
        async with opened(valkey.url.replace("?db=0", "") + "?db=3") as line:
            assert b" db=3 " in await line.ask("CLIENT", "INFO")

    async def test_a_line_that_the_store_closes_fails_what_was_asked(self, valkey: Server) -> None:
        async with opened(valkey.url) as line:
            number = await line.ask("CLIENT", "ID")
            waiting = line.ask("BLPOP", "nothing here", 0)
            with valkey.client() as other:
                other.client_kill_filter(_id=str(number))
            with pytest.raises(RedisConnectionError):
                await waiting
            assert line.broken
            with pytest.raises(RedisConnectionError):
                await line.ask("PING")

    async def test_who_gave_up_gets_nobody_elses_answer(self, valkey: Server) -> None:
        async with opened(valkey.url) as line:
            first, second = line.ask("ECHO", "1"), line.ask("ECHO", "2")
            first.cancel()
            assert await second == b"2"

    @pytest.mark.parametrize("nonsense", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+one\r\n+too many\r\n"])
    async def test_nonsense_breaks_it(self, nonsense: bytes) -> None:
        async with answering({b"ECHO": nonsense}) as url, opened(url) as line:
            await asyncio.wait([line.ask("ECHO", "1")])
            with pytest.raises(RedisConnectionError):
                await line.ask("PING")

    async def test_over_tls(self, debian_redis: Server) -> None:
        client = connect(debian_redis.tls_url, connect_timeout=5, tls_ca_file=str(debian_redis.ca_file))
        line = await open_line(client)
        assert await line.ask("ECHO", b"x" * 100_000) == b"x" * 100_000
        line.close()
        await client.aclose()


class TestDirect:
    async def test_the_line_is_opened_again_when_it_was_closed_meanwhile(self, valkey: Server) -> None:
        connection = Connection(connect(valkey.url, connect_timeout=5), timeout=5)
        number = await connection.direct("CLIENT", "ID")
        with valkey.client() as other:
            other.client_kill_filter(_id=str(number))
        while not (connection._direct is None or connection._direct.broken):
            await asyncio.sleep(0.01)
        assert await connection.direct("CLIENT", "ID") != number
        assert not connection.away
        await connection.close()

    async def test_an_answer_that_does_not_come_in_time_closes_it(self, valkey: Server) -> None:
        connection = Connection(connect(valkey.url, connect_timeout=5), timeout=0.2)
        number = await connection.direct("CLIENT", "ID")
        with pytest.raises(StoreAway):
            await connection.direct("BLPOP", "nothing here", 0)
        with valkey.client() as other:
            while any(int(client["id"]) == number for client in other.client_list()):
                await asyncio.sleep(0.01)
        await connection.close()
