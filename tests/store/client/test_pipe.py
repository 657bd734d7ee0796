"""The pipe to the store: redis-py connects it, our own protocol sends and parses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ResponseError

from loadtest.servers import Server
from tests.store.fakes import answering
from tests.waiting import eventually
from tracker.errors import StoreUnavailable
from tracker.store.client.connection import Connection, connect
from tracker.store.client.pipe import RedisPipe


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisPipe]:
    server = connect(url, connect_timeout=5, timeout=5)
    pipe = await server.announces.opened()
    try:
        yield pipe
    finally:
        await server.close()


class TestPipe:
    async def test_replies_come_in_the_order_of_the_commands(self, any_server: Server) -> None:
        async with opened(any_server.url) as pipe:
            asked = [pipe.execute("ECHO", str(n)) for n in range(200)]
            assert await asyncio.gather(*asked) == [b"%d" % n for n in range(200)]

    async def test_a_reply_of_a_megabyte_arrives_whole(self, valkey: Server) -> None:
        async with opened(valkey.url) as pipe:
            assert await pipe.execute("ECHO", b"x" * 1_000_000) == b"x" * 1_000_000

    async def test_errors_are_those_of_the_client_library(self, valkey: Server) -> None:
        async with opened(valkey.url) as pipe:
            with pytest.raises(NoScriptError):
                await pipe.execute("EVALSHA", "0" * 40, 0)
            with pytest.raises(ResponseError):
                await pipe.execute("NO SUCH COMMAND")
            assert await pipe.execute("PING") == b"PONG"

    async def test_a_pipe_uses_the_database_of_its_url(self, valkey: Server) -> None:
        async with opened(valkey.url.replace("?db=0", "") + "?db=3") as pipe:
            assert b" db=3 " in await pipe.execute("CLIENT", "INFO")

    async def test_a_pipe_closed_by_the_store_fails_its_commands(self, valkey: Server) -> None:
        async with opened(valkey.url) as pipe:
            number = await pipe.execute("CLIENT", "ID")
            waiting = pipe.execute("BLPOP", "nothing here", 0)
            with valkey.client() as other:
                other.client_kill_filter(_id=str(number))
            with pytest.raises(RedisConnectionError):
                await waiting
            assert pipe.broken
            with pytest.raises(RedisConnectionError):
                await pipe.execute("PING")

    async def test_a_cancelled_command_shifts_no_reply(self, valkey: Server) -> None:
        async with opened(valkey.url) as pipe:
            first, second = pipe.execute("ECHO", "1"), pipe.execute("ECHO", "2")
            first.cancel()
            assert await second == b"2"

    async def test_several_commands_have_one_answer_with_errors_as_replies(self, any_server: Server) -> None:
        async with opened(any_server.url) as pipe:
            before = pipe.execute("ECHO", "before")
            replies = await pipe.execute_all([("ECHO", "1"), ("NO SUCH COMMAND",), ("ECHO", "2")])
            assert (replies[0], replies[2]) == (b"1", b"2")
            assert isinstance(replies[1], ResponseError)
            assert await before == b"before" and await pipe.execute("PING") == b"PONG"

    async def test_several_cancelled_commands_shift_no_reply(self, valkey: Server) -> None:
        async with opened(valkey.url) as pipe:
            cancelled = pipe.execute_all([("ECHO", "1"), ("ECHO", "2")])
            later = pipe.execute_all([("ECHO", "3"), ("ECHO", "4")])
            cancelled.cancel()
            assert await later == [b"3", b"4"]

    async def test_several_commands_of_a_pipe_that_breaks_all_fail(self, valkey: Server) -> None:
        async with opened(valkey.url) as pipe:
            number = await pipe.execute("CLIENT", "ID")
            waiting = pipe.execute_all([("ECHO", "1"), ("BLPOP", "nothing here", 0), ("ECHO", "2")])
            with valkey.client() as other:
                other.client_kill_filter(_id=str(number))
            first, *rest = await waiting
            assert first == b"1"
            assert [type(error) for error in rest] == [RedisConnectionError] * 2
            (error,) = await pipe.execute_all([("PING",)])
            assert isinstance(error, RedisConnectionError)

    async def test_a_value_that_cannot_be_sent_shifts_no_reply(self, valkey: Server) -> None:
        """Lone surrogates cannot be encoded."""
        async with opened(valkey.url) as pipe:
            before = pipe.execute("ECHO", "before")
            with pytest.raises(UnicodeEncodeError):
                pipe.execute("ECHO", "\udcff")
            with pytest.raises(UnicodeEncodeError):
                pipe.execute_all([("ECHO", "1"), ("ECHO", "\udcff")])
            assert await before == b"before"
            assert await pipe.execute("ECHO", "after") == b"after"
            assert await pipe.execute_all([("ECHO", "2"), ("ECHO", "3")]) == [b"2", b"3"]
            assert pipe.in_flight == 0

    @pytest.mark.parametrize("nonsense", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"+one\r\n+too many\r\n"])
    async def test_an_invalid_reply_breaks_a_pipe(self, nonsense: bytes) -> None:
        async with answering({b"ECHO": nonsense}) as url, opened(url) as pipe:
            await asyncio.wait([pipe.execute("ECHO", "1")])
            with pytest.raises(RedisConnectionError):
                await pipe.execute("PING")

    async def test_a_pipe_works_over_tls(self, debian_redis: Server) -> None:
        server = connect(debian_redis.tls_url, connect_timeout=5, timeout=5, tls_ca_file=str(debian_redis.ca_file))
        pipe = await server.announces.opened()
        assert await pipe.execute("ECHO", b"x" * 100_000) == b"x" * 100_000
        await server.close()


class _Recorder(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self._closing = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        self._closing = True
        self._protocol.connection_lost(None)


class TestGathering:
    @asynccontextmanager
    async def recorded(self) -> AsyncIterator[tuple[RedisPipe, _Recorder]]:
        transport = _Recorder()
        reader = asyncio.StreamReader()
        stream = asyncio.StreamWriter(
            transport, asyncio.StreamReaderProtocol(reader), reader, asyncio.get_running_loop()
        )
        pipe = RedisPipe(stream, 5, lambda finished: None)
        yield pipe, transport
        pipe.close()

    async def test_a_shared_pipe_sends_the_commands_of_one_turn_together(self) -> None:
        async with self.recorded() as (pipe, transport):
            pipe.gathers = True
            for _ in range(2):
                pipe.execute("PING").cancel()
                pipe.execute("PING").cancel()
                await asyncio.sleep(0)
            assert transport.written == [b"*1\r\n$4\r\nPING\r\n" * 2] * 2

    async def test_other_pipes_send_each_command_at_once(self) -> None:
        async with self.recorded() as (pipe, transport):
            pipe.execute("PING").cancel()
            pipe.execute("PING").cancel()
            assert len(transport.written) == 2

    async def test_a_pipe_that_breaks_first_sends_nothing(self) -> None:
        async with self.recorded() as (pipe, transport):
            pipe.gathers = True
            asked = pipe.execute("PING")
            pipe.close()
            await asyncio.sleep(0)
            assert not transport.written
            with pytest.raises(RedisConnectionError):
                await asked

    async def test_a_pipe_gathers_when_it_serves_several_prefixes(self, valkey: Server) -> None:
        connection = Connection(connect(valkey.url, connect_timeout=5, timeout=5))
        for prefix, gathers in (("a:", False), ("a:", False), ("b:", True)):
            assert connection.topology.of(prefix) is connection
            await connection.direct("PING")
            pipe = connection.server.announces.socket
            assert pipe is not None and pipe.gathers is gathers
            pipe.close()
        await connection.close()


class TestDirect:
    async def test_a_closed_pipe_is_opened_again(self, valkey: Server) -> None:
        connection = Connection(connect(valkey.url, connect_timeout=5, timeout=5))
        number = await connection.direct("CLIENT", "ID")
        with valkey.client() as other:
            other.client_kill_filter(_id=str(number))
        pipe = connection.server.announces.socket
        assert pipe is not None
        await eventually(lambda: pipe.broken)
        assert await connection.direct("CLIENT", "ID") != number
        assert not connection.unavailable
        await connection.close()

    async def test_a_timed_out_command_closes_its_pipe(self, valkey: Server) -> None:
        connection = Connection(connect(valkey.url, connect_timeout=5, timeout=0.2))
        number = await connection.direct("CLIENT", "ID")
        with pytest.raises(StoreUnavailable):
            await connection.direct("BLPOP", "nothing here", 0)
        with valkey.client() as other:
            await eventually(lambda: all(int(client["id"]) != number for client in other.client_list()))
        await connection.close()
