"""The connection to the store: its properties, its failures, and its recovery."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoPermissionError, OutOfMemoryError, ResponseError

from loadtest.servers import Server
from tests.store.client.proxy import Proxy
from tests.store.fakes import answering, http_server, silent_server
from tests.store.harness import Store, info_hash, redis_of, running, update
from tests.waiting import eventually, in_background, loop_turns
from tracker.errors import StartupError, StoreUnavailable
from tracker.store.client import server as module
from tracker.store.client.connection import Connection, connect
from tracker.store.client.pipe import open_stream
from tracker.store.client.scripts import Scripts
from tracker.store.client.server import MAX_CALLS, OUTCOMES
from tracker.store.client.server_info import check_server
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

TIMEOUT = 0.4
KINDS = pytest.mark.parametrize("kind", ["valkey", "redis"])
StartServer = Callable[..., Server]


@asynccontextmanager
async def connected(url: str, timeout: float = TIMEOUT) -> AsyncIterator[Connection]:
    """A connection whose watch runs."""
    connection = Connection(connect(url, connect_timeout=timeout, timeout=timeout))
    try:
        async with in_background(connection.watch()):
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def stopped(server: Server) -> AsyncIterator[None]:
    """A suspended server: it replies to nothing and closes nothing."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def took(attempt: "asyncio.Future[object] | asyncio.Task[object]") -> float:
    started = time.monotonic()
    await asyncio.gather(attempt, return_exceptions=True)
    return time.monotonic() - started


async def test_an_error_names_no_arguments(redis_url: str) -> None:
    """Arguments may be passkeys, and errors are logged, kept with jobs and shown."""
    async with connected(redis_url) as connection:
        for call in (connection.command, connection.direct):
            with pytest.raises(ResponseError, match=r"^unknown command 'NOSUCH'$"):
                await call("NOSUCH", "secret")
        (answer,) = await connection.pipeline(("NOSUCH", "secret"))
        assert str(answer) == "unknown command 'NOSUCH'"


class TestStart:
    """Every problem at the start is reported in one line that holds no secret."""

    async def test_a_closed_port_is_reported(self) -> None:
        async with silent_server() as url:
            pass
        assert (await refusal(url)).startswith("no usable store at it: ")

    async def test_a_missing_socket_is_reported(self) -> None:
        assert "no usable store at it" in await refusal("unix:///nowhere/at/all")

    async def test_a_silent_server_is_reported(self) -> None:
        async with silent_server() as url:
            assert await refusal(url) == "no usable store at it: no answer within 0.5 s"

    async def test_an_unknown_host_is_reported(self) -> None:
        assert "no usable store at it" in await refusal("redis://no-such-host.invalid:6379/0")

    async def test_a_server_with_tls_is_told_from_one_without(self, debian_redis: Server) -> None:
        assert debian_redis.tls_port, "openssl is missing"
        for url, advice in (
            (f"redis://127.0.0.1:{debian_redis.tls_port}", "rediss://"),
            (debian_redis.tls_url, "TRACKER_REDIS__TLS_CA_FILE"),
        ):
            reason = await refusal(url, patience=5, shown=url)
            assert advice in reason and "\n" not in reason

    async def test_a_web_server_is_reported(self) -> None:
        async with http_server() as url:
            assert "no usable store at it" in await refusal(url)

    @KINDS
    async def test_a_wrong_password_is_reported(self, start_server: StartServer, kind: str) -> None:
        server = start_server(binary=kind)
        with server.client() as client:
            client.acl_setuser("tracker", enabled=True, passwords="+right", keys="*", commands=["+@all"])
        for user in ("tracker", "nobody"):
            text = await refusal(f"unix://{user}:wr0ng-s3cret@{server.socket_path}")
            assert "no usable store at it" in text and "wr0ng-s3cret" not in text
        async with connected(f"unix://tracker:right@{server.socket_path}") as connection:
            await connection.command("PING")

    async def test_a_missing_password_is_reported(self, start_server: StartServer) -> None:
        server = start_server()
        with server.client() as client:
            client.config_set("requirepass", "right")
        assert "no usable store at it: Authentication required" in await refusal(server.url)

    async def test_a_missing_database_is_reported(self, any_server: Server) -> None:
        assert "no usable store at it: DB index" in await refusal(f"unix://{any_server.socket_path}?db=99")

    async def test_tls_to_a_port_without_tls_is_reported(self, debian_redis: Server) -> None:
        assert "no usable store at it" in await refusal(f"rediss://127.0.0.1:{debian_redis.port}/0")

    async def test_no_tls_to_a_port_with_tls_is_reported(self, debian_redis: Server) -> None:
        assert "no usable store at it" in await refusal(f"redis://127.0.0.1:{debian_redis.tls_port}/0")

    async def test_an_untrusted_certificate_is_reported(self, debian_redis: Server) -> None:
        assert "certificate verify failed" in await refusal(debian_redis.tls_url, patience=10)

    async def test_a_trusted_certificate_is_accepted(self, debian_redis: Server) -> None:
        server = connect(debian_redis.tls_url, connect_timeout=2, timeout=2, tls_ca_file=str(debian_redis.ca_file))
        assert (await check_server(server, "it"))[0].startswith("redis ")
        await server.close()

    @pytest.mark.parametrize(
        ("url", "ca_file", "line"),
        [
            ("rediss://h/0", "/no/such/file", "TLS_CA_FILE is no file: /no/such/file"),
            ("rediss://h/0", "/", "TLS_CA_FILE is no file: /"),
            ("redis://h/0", __file__, "only a rediss:// URL"),
            ("unix:///socket", __file__, "only a rediss:// URL"),
        ],
    )
    def test_an_unusable_ca_file_is_refused(self, url: str, ca_file: str, line: str) -> None:
        with pytest.raises(StartupError, match=line):
            connect(url, connect_timeout=2, timeout=2, tls_ca_file=ca_file)

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "localhost:6379",
            "http://:s3cret@host",
            "redis://:s3cret@host:port",
            "redis://h/0?socket_connect_timeout=x",
            *("redis://h/1?foo=1", "redis://h?decode_responses=true", "redis://h/1?db=1&foo=1", "redis://h?db="),
            *("redis://h/1O", "redis://h/1/2", "redis://h/-1", "redis://h/%31", "redis://h/1?db=2"),
            *("redis://:s3cret?@h/0", "redis://:s3cret#@h/0", "redis://:/s3cret@h/0", "redis://:s3c[ret@h/0"),
            *("redis:h/0", "redis://h:65536/0", "unix://", "unix://relative/s3cret", "unix:///s?path=/other"),
        ],
    )
    async def test_an_invalid_url_is_refused(self, url: str) -> None:
        with pytest.raises(StartupError, match="is not a URL of a store") as caught:
            connect(url, connect_timeout=1, timeout=1)
        assert "s3c" not in str(caught.value) and "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("redis://h", {"host": "h"}),
            ("redis://h/", {"host": "h"}),
            ("REDIS://h:1/12", {"host": "h", "port": 1, "db": 12}),
            ("redis://h?db=3", {"host": "h", "db": 3}),
            ("rediss://me:s%2Fcret@[::1]:1/2", {"host": "::1", "username": "me", "password": "s/cret", "db": 2}),
            ("unix:///a/b?db=4", {"path": "/a/b", "db": 4}),
            ("unix://me:s3cret@/a/b", {"path": "/a/b", "username": "me", "password": "s3cret"}),
        ],
    )
    async def test_a_valid_url_is_parsed(self, url: str, expected: dict[str, object]) -> None:
        server = connect(url, connect_timeout=1, timeout=1)
        assert server.client.connection_pool.connection_kwargs.items() >= expected.items()
        await server.close()


async def refusal(url: str, patience: float = 0.5, shown: str = "it") -> str:
    """The one line of the error."""
    server = connect(url, connect_timeout=patience, timeout=patience)
    try:
        with pytest.raises(StartupError) as caught:
            await check_server(server, shown, patience)
    finally:
        await server.close()
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestUnavailable:
    @pytest.mark.serial
    async def test_a_suspended_store_fails_calls_in_time(self, start_server: StartServer) -> None:
        """Waiting calls fail within the timeout, later ones at once. All work within 2 s of the store's return."""
        server = start_server("--appendonly", "no")
        async with connected(server.url) as connection:
            await connection.command("SET", "k", "v")
            async with stopped(server):
                started = time.monotonic()
                results = await asyncio.gather(
                    *(connection.command("GET", "k") for _ in range(200)), return_exceptions=True
                )
                assert {type(result) for result in results} == {StoreUnavailable}
                assert time.monotonic() - started < 1
                assert connection.unavailable
                started = time.monotonic()
                for _ in range(100):
                    with pytest.raises(StoreUnavailable):
                        await connection.command("GET", "k")
                    with pytest.raises(StoreUnavailable):
                        await connection.pipeline(("GET", "k"))
                assert time.monotonic() - started < 1  # not 200 times the timeout
            await until_available(connection, 2)
            assert await connection.command("GET", "k") == b"v"

    async def test_reconnect_callbacks_run_before_other_commands(self, start_server: StartServer) -> None:
        """A failed callback leaves the store unavailable."""
        server = start_server("--appendonly", "no")
        async with connected(server.url) as connection:
            called: list[str] = []

            async def fails_once() -> None:
                called.append("first")
                if len(called) == 1:
                    raise StoreUnavailable("not yet")

            async def asks() -> None:
                assert await connection.command("INCR", "callbacks") == len(called) - 1
                assert connection.unavailable
                called.append("second")

            connection.on_reconnect(fails_once)
            connection.on_reconnect(asks)
            connection._lost(OSError())
            with pytest.raises(StoreUnavailable):
                await connection.command("SET", "too", "early")
            await until_available(connection, 2)
            assert called == ["first", "first", "second"]
            assert await connection.command("EXISTS", "too") == 0

    async def test_a_failed_reconnect_callback_is_logged(self, start_server: StartServer) -> None:
        server = start_server("--appendonly", "no")
        async with connected(server.url) as connection:

            async def wrong() -> None:
                await connection.command("NO-SUCH-COMMAND")

            connection.on_reconnect(wrong)
            with structlog.testing.capture_logs() as logs:
                connection._lost(OSError())
                await until_available(connection, 2)
            assert [line["event"] for line in logs] == ["store lost", "reconnect callback failed", "store is back"]

    @KINDS
    async def test_a_restarted_store_is_used_again(self, start_server: StartServer, kind: str) -> None:
        server = start_server(binary=kind)
        async with connected(server.url, timeout=5) as connection:
            await asyncio.gather(*(connection.command("INCR", "n") for _ in range(30)))
            await asyncio.to_thread(server.kill)
            with pytest.raises(StoreUnavailable):
                await connection.command("GET", "n")
            await asyncio.to_thread(server.start)
            await until_available(connection, 2)
            assert int(await connection.command("GET", "n")) <= 30  # the last second's writes may be lost
            await asyncio.gather(*(connection.command("PING") for _ in range(30)))

    async def test_killed_connections_fail_only_calls_in_flight(self, start_server: StartServer) -> None:
        """CLIENT KILL during calls: those in flight fail, later ones succeed."""
        server = start_server("--appendonly", "no")
        async with connected(server.url, timeout=5) as connection:
            done: list[object] = []

            async def ask() -> None:
                for _ in range(100):
                    done.extend(await asyncio.gather(connection.command("PING"), return_exceptions=True))
                    await loop_turns(1)

            async with asyncio.TaskGroup() as tasks:
                for _ in range(10):
                    tasks.create_task(ask())
                for kills in range(5):
                    await eventually(lambda wanted=10 + 50 * kills: len(done) >= wanted)  # type: ignore[misc]
                    await asyncio.to_thread(kill_clients, server)
            assert {type(result) for result in done} <= {bytes, StoreUnavailable}
            await until_available(connection, 2)
            for _ in range(30):
                await connection.command("PING")

    async def test_killed_idle_connections_fail_no_call(self, start_server: StartServer) -> None:
        """Over TCP too: a connection that died in the pool is replaced."""
        server = start_server("--appendonly", "no", binary="redis")
        async with connected(server.tcp_url, timeout=5) as connection:
            await asyncio.gather(*(connection.command("PING") for _ in range(20)))
            await asyncio.to_thread(kill_clients, server)
            await loop_turns(10)
            await asyncio.gather(*(connection.command("PING") for _ in range(20)))
            assert not connection.unavailable

    async def test_a_write_is_never_sent_twice(self, any_server: Server, prefix: str) -> None:
        """The reply is lost after the store executed the call: redis-py must not repeat it."""
        async with Proxy(any_server) as proxy, connected(proxy.url) as connection:
            scripts = Scripts(connection, prefix)
            await scripts.count(["me", 1, 0, 0, 0])
            with any_server.client() as direct:
                direct.config_resetstat()
                proxy.swallow_answers()
                with pytest.raises(StoreUnavailable):
                    await scripts.count(["me", 2, 0, 1, 0, "requests", "1800000000 1"])
                await until_available(connection, 2)
                assert direct.info("commandstats")["cmdstat_evalsha"]["calls"] == 1
                assert direct.get(f"{prefix}stats:requests") == b"1"

    async def test_an_invalid_reply_fails_the_call(self) -> None:
        async with answering({b"GET": b"?!\r\n"}) as url, connected(url) as connection:
            with pytest.raises(StoreUnavailable):
                await connection.command("GET", "k")

    async def test_a_cancelled_call_leaves_no_reply_behind(self, any_server: Server, prefix: str) -> None:
        """A client hangs up during its scrape: no other call receives its reply, and no cancellation is lost."""
        async with connected(any_server.url, timeout=5) as connection:
            for turns in (*range(12), *range(12)):
                call = asyncio.Task(connection.command("ECHO", f"wrong {turns}"))
                for _ in range(turns):
                    await asyncio.sleep(0)
                answered = call.done()
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
                assert answered or call.cancelled()
                assert await connection.command("ECHO", f"right {turns}") == f"right {turns}".encode()
            assert not connection.unavailable

    async def test_a_store_lost_during_its_callbacks_is_not_back(self, any_server: Server) -> None:
        """Another failover may happen then: the callbacks ran on a server that is replaced already."""
        async with connected(any_server.url) as connection:
            called: list[bool] = []

            async def lost_once() -> None:
                called.append(connection.unavailable)
                if len(called) == 1:
                    connection._lost(RedisConnectionError())

            connection.on_reconnect(lost_once)
            connection._lost(RedisConnectionError())
            await until_available(connection, 5)
            assert called == [True, True]

    async def test_a_pipe_opened_while_the_store_was_lost_is_not_used(
        self, any_server: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may lead to a replaced master, which would then take all announces."""
        async with connected(any_server.url) as connection:
            streams, opens = losing(connection, open_stream)
            monkeypatch.setattr(module, "open_stream", opens)
            with pytest.raises(StoreUnavailable):
                await connection.direct("INCR", f"{prefix}n")
            monkeypatch.undo()
            await until_available(connection, 5)
            assert await connection.direct("INCR", f"{prefix}n") == 1
            assert streams[0].is_closing()


REPLIES: list[tuple[tuple[str, ...], object]] = [
    (("PING",), b"PONG"),
    (("EXISTS", "hash", "none"), 1),
    (("TYPE", "hash"), b"hash"),
    (("HGETALL", "hash"), [b"field", b"1"]),
    (("HMGET", "hash", "field", "none"), [b"1", None]),
    (("SMEMBERS", "set"), [b"member"]),
    (("ZSCORE", "zset", "member"), b"1.5"),
    (("ZMSCORE", "zset", "member", "none"), [b"1.5", None]),
    (("ZRANGE", "zset", "0", "-1", "WITHSCORES"), [b"member", b"1.5"]),
    (("ZSCAN", "zset", "0"), [b"0", [b"member", b"1.5"]]),
    (("HSCAN", "hash", "0"), [b"0", [b"field", b"1"]]),
    (("SSCAN", "set", "0"), [b"0", [b"member"]]),
    (("EXPIRE", "none", "1"), 0),
    (("SET", "string", "text"), b"OK"),
    (("CONFIG", "GET", "port"), [b"port", b"0"]),
    (("EVAL", "return redis.call('HGETALL', 'hash')", "0"), [b"field", b"1"]),
]


class TestReplies:
    async def test_every_path_returns_the_same_shape(self, start_server: StartServer) -> None:
        server = start_server("--appendonly", "no")
        async with connected(server.url, timeout=5) as connection:
            await connection.pipeline(
                ("HSET", "hash", "field", 1), ("SADD", "set", "member"), ("ZADD", "zset", 1.5, "member")
            )
            for command, reply in REPLIES:
                assert await connection.command(*command) == reply, command
                assert await connection.direct(*command) == reply, command
                assert await connection.pipeline(command) == [reply], command

    async def test_info_is_text_on_every_path(self, any_server: Server) -> None:
        async with connected(any_server.url, timeout=5) as connection:
            replies = [
                await connection.command("INFO", "server"),
                await connection.direct("INFO", "server"),
                *await connection.pipeline(("INFO", "server")),
            ]
            assert all(reply.startswith(b"# Server\r\n") for reply in replies)


class TestRefusals:
    """The store replies with refusals: the tracker cannot work, but the connection is fine."""

    async def test_a_replica_refuses_work(self, start_server: StartServer) -> None:
        server = start_server("--appendonly", "no")
        async with connected(server.url) as connection:
            await connection.command("REPLICAOF", "127.0.0.1", 1)
            for attempt in (
                connection.command("SET", "k", "v"),
                connection.pipeline(("GET", "k"), ("SET", "k", "v")),
                Scripts(connection, "t:").count(["me", 1, 0]),
            ):
                with pytest.raises(StoreUnavailable, match="refuses writes: read-only"):
                    await attempt
            assert not connection.unavailable
            await connection.command("REPLICAOF", "NO", "ONE")
            await connection.command("SET", "k", "v")

    async def test_a_failed_disk_refuses_work(self, start_server: StartServer) -> None:
        """MISCONF: a snapshot could not be written, so the server takes no writes."""
        server = start_server("--appendonly", "no", "--save", "3600 1")
        async with connected(server.url, timeout=5) as connection:
            await connection.command("SET", "k", "v")
            (server.directory / "dump.rdb").mkdir()  # in the place of the snapshot
            await connection.command("BGSAVE")

            async def has_failed() -> bool:
                return bool((await redis_of(connection).info("persistence"))["rdb_last_bgsave_status"] != "ok")

            await eventually(has_failed)
            with pytest.raises(StoreUnavailable, match="refuses writes: disk full"):
                await connection.command("SET", "k", "v")
            assert not connection.unavailable

    @pytest.mark.parametrize(
        ("line", "unavailable"),
        [
            (b"-LOADING Redis is loading the dataset in memory", True),
            (b"-MISCONF Errors writing to the AOF file", False),
            (b"-READONLY You can't write against a read only replica.", False),
            (b"-MASTERDOWN Link with MASTER is down", False),
            (b"-BUSY Redis is busy running a script.", False),
            (b"-CLUSTERDOWN The cluster is down", False),
            (b"-NOREPLICAS Not enough good replicas to write.", False),
            (b"-NOAUTH Authentication required.", True),
        ],
    )
    async def test_each_refusal_is_store_unavailable(self, line: bytes, unavailable: bool) -> None:
        async with answering({b"GET": line + b"\r\n"}) as url:
            for in_pipeline in (False, True):
                connection = Connection(connect(url, connect_timeout=1, timeout=1))
                with pytest.raises(StoreUnavailable):
                    await (connection.pipeline(("GET", "k")) if in_pipeline else connection.command("GET", "k"))
                assert connection.unavailable is unavailable
                await connection.close()

    @pytest.mark.parametrize(
        ("line", "error"),
        [
            (b"-OOM command not allowed when used memory > 'maxmemory'.", OutOfMemoryError),
            (b"-NOPERM no permissions", NoPermissionError),
            (b"-WRONGTYPE Operation against a key holding the wrong kind of value", ResponseError),
        ],
    )
    async def test_other_errors_are_raised_unchanged(self, line: bytes, error: type[Exception]) -> None:
        async with answering({b"GET": line + b"\r\n"}) as url, connected(url) as connection:
            with pytest.raises(error):
                await connection.command("GET", "k")
            failed, done = await connection.pipeline(("GET", "k"), ("SET", "k"))
            assert isinstance(failed, error) and done == b"OK"
            assert not connection.unavailable

    async def test_a_store_that_loads_its_data_is_not_back(self) -> None:
        answers = {b"PING": b"-LOADING Redis is loading the dataset in memory\r\n"}
        async with answering(answers) as url:
            connection = Connection(connect(url, connect_timeout=1, timeout=1))
            connection._lost(OSError())
            assert not await connection.reconnect()
            answers[b"PING"] = b"-MISCONF Errors writing to the AOF file\r\n"
            assert not await connection.reconnect()
            answers[b"PING"] = b"-NOPERM this user has no permissions to run the 'ping' command\r\n"
            assert await connection.reconnect()  # even an error is a reply
            await connection.close()


class TestFloods:
    async def test_commands_share_a_socket(self, any_server: Server) -> None:
        async with Proxy(any_server) as proxy, connected(proxy.url, timeout=5) as connection:
            await asyncio.gather(*(connection.command("PING") for _ in range(500)))
            assert proxy.connections == 1

    async def test_waiting_calls_are_bounded(self, any_server: Server) -> None:
        async with connected(any_server.url, timeout=5) as connection:
            calls = [connection.command("PING") for _ in range(MAX_CALLS + 10)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert sum(isinstance(result, StoreUnavailable) for result in results) == 10
            assert not connection.unavailable


class TestRoundTrips:
    """Every round trip is reported with its outcome."""

    async def test_round_trips_are_reported_with_their_outcomes(self, start_server: StartServer, prefix: str) -> None:
        server = start_server("--appendonly", "no")
        trips: list[tuple[str, float]] = []
        connection = Connection(
            connect(server.url, connect_timeout=0.5, timeout=0.5, on_round_trip=lambda *trip: trips.append(trip))
        )
        await connection.command("PING")
        await connection.pipeline(("PING",), ("PING",))
        await eventually(lambda: [outcome for outcome, _ in trips] == 2 * ["answered"])
        assert await Scripts(connection, prefix).heartbeat([1]) is not None  # unknown there, so sent twice
        with pytest.raises(ResponseError):
            await connection.command("NOSUCH")
        await connection.command("CONFIG", "SET", "min-replicas-to-write", "1")
        with pytest.raises(StoreUnavailable):
            await connection.command("SET", f"{prefix}x", 1)
        async with stopped(server):
            with pytest.raises(StoreUnavailable):
                await connection.command("PING")
            last = ["error", "answered", "refused", "timeout"]
            await eventually(lambda: [outcome for outcome, _ in trips[-4:]] == last)
        assert {outcome for outcome, _ in trips[:-4]} == {"answered"}
        server.kill()
        assert not await connection.reconnect()
        assert trips[-1][0] == "unreachable"
        with pytest.raises(StoreUnavailable):
            await connection.command("PING")  # not even tried
        assert [outcome for outcome, _ in trips].count("unreachable") == 1
        assert {outcome for outcome, _ in trips} == set(OUTCOMES)
        assert all(0 <= seconds < 60 for _, seconds in trips)
        await connection.close()


class TestSubscriptions:
    async def test_messages_come_with_their_channel(self, any_server: Server, prefix: str) -> None:
        async with connected(any_server.url) as connection:
            async with connection.subscription(channels=[f"{prefix}a"], patterns=[f"{prefix}b*"]) as messages:
                for channel in ("a", "b1", "c", "b2"):
                    await connection.command("PUBLISH", prefix + channel, channel)
                got = [await anext(messages) for _ in range(3)]
        assert got == [(f"{prefix}{c}".encode(), c.encode()) for c in ("a", "b1", "b2")]

    async def test_silence_does_not_break_a_subscription(self, any_server: Server, prefix: str) -> None:
        """A subscription may wait longer than the timeout of a command."""
        async with connected(any_server.url, timeout=0.05) as connection:
            async with connection.subscription(channels=[f"{prefix}a"]) as messages:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await anext(messages)

    async def test_a_forbidden_channel_raises_no_permission(self, start_server: StartServer, prefix: str) -> None:
        """Users made with ACL SETUSER may use no channel unless they are given some."""
        server = start_server("--appendonly", "no")
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "quiet", "on", ">p", "~*", "+@all", "resetchannels")
        async with connected(server.url.replace("unix://", "unix://quiet:p@"), timeout=5) as connection:
            with pytest.raises(NoPermissionError):
                async with connection.subscription(channels=[f"{prefix}a"]):
                    pytest.fail("it is subscribed")
            assert not connection.unavailable

    async def test_messages_between_confirmations_are_kept(self, any_server: Server, prefix: str) -> None:
        names = [f"{prefix}{number}" for number in range(200)]
        async with connected(any_server.url, timeout=5) as connection:
            stop = asyncio.Event()

            async def publish() -> None:
                while not stop.is_set():
                    await connection.command("PUBLISH", names[0], "x")

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(publish())
                async with connection.subscription(channels=names) as messages:
                    await connection.command("PUBLISH", names[-1], "last")
                    stop.set()
                    async for channel, payload in messages:
                        if payload == b"last":
                            assert channel == names[-1].encode()
                            break

    async def test_a_broken_subscription_raises_store_unavailable(self, any_server: Server, prefix: str) -> None:
        async with Proxy(any_server) as proxy, connected(proxy.url) as connection:
            with pytest.raises(StoreUnavailable):  # noqa: PT012  # leaving the block is what raises
                async with connection.subscription(channels=[f"{prefix}a"]) as messages:
                    proxy.cut()
                    await anext(messages)
            await until_available(connection, 2)

    async def test_a_subscription_opened_while_the_store_was_lost_breaks(
        self, any_server: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may listen to a replaced server."""
        async with connected(any_server.url) as connection:
            _, opens = losing(connection, open_stream)
            monkeypatch.setattr(module, "open_stream", opens)
            with pytest.raises(StoreUnavailable):
                async with connection.subscription(channels=[f"{prefix}a"]):
                    pytest.fail("it is subscribed")

    def test_channels_name_the_database(self) -> None:
        for url, database in (("redis://h/3", 3), ("redis://h", 0), ("unix:///s?db=7", 7)):
            connection = Connection(connect(url, connect_timeout=1, timeout=1))
            assert connection.keyspace_channel("t:x") == f"__keyspace@{database}__:t:x"


class TestAnnounces:
    """While the store is unavailable, no announce waits longer than the timeout, and none piles up."""

    @pytest.mark.serial
    async def test_announces_fail_in_time_and_resume(self, start_server: StartServer) -> None:
        server = start_server("--appendonly", "no")
        store = Store(server.url, Keys("t:"), SwarmRules())
        async with connected(server.url) as connection:
            swarms = store.swarms.of(info_hash(1))
            store.connection = swarms._connection = connection
            swarms._scripts = Scripts(connection, "t:")
            async with running(store):
                await store.announce(update(1, "s"))
                async with stopped(server):
                    for _ in range(2):  # the first round times out, the second asks nothing
                        started = time.monotonic()
                        results = await asyncio.gather(
                            *(store.swarms.announce(update(n, "s")) for n in range(500)), return_exceptions=True
                        )
                        assert {type(result) for result in results} == {StoreUnavailable}
                        assert time.monotonic() - started < 1
                        assert not store.swarms.waiting
                continued = time.monotonic()
                await until_available(connection, 2)
                assert (await store.announce(update(1))).leechers >= 1
                assert time.monotonic() - continued < 2


def losing(connection: Connection, opening: Callable[..., Awaitable[Any]]) -> tuple[list[Any], Any]:
    """(what was opened, a function that opens it): the store is lost while that function runs."""
    opened: list[Any] = []

    async def opens(*arguments: Any) -> Any:
        opened.append(await opening(*arguments))
        connection._lost(RedisConnectionError())
        return opened[-1]

    return opened, opens


async def until_available(connection: Connection, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await connection.until_available()


def kill_clients(server: Server) -> None:
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
