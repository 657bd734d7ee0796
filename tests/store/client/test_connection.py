"""The line to the store: what it is, what goes wrong with it, and how it comes back."""

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

from tests.servers import Server
from tests.store.fakes import answering, http_server, silent_server
from tests.store.harness import Store, running, update
from tests.store.proxy import Proxy
from tracker.errors import StartupError, StoreAway
from tracker.store import connection as module
from tracker.store.connection import (
    MOST_AT_ONCE,
    MOST_UNDER_WAY,
    OUTCOMES,
    Connection,
    connect,
)
from tracker.store.keys import Keys
from tracker.store.line import open_line
from tracker.store.scripts import Scripts
from tracker.store.server_version import check_server
from tracker.store.subscription import open_subscription
from tracker.store.swarms import SwarmRules

TIMEOUT = 0.4
KINDS = pytest.mark.parametrize("kind", ["valkey", "redis"])
StartServer = Callable[..., Server]


@asynccontextmanager
async def connected(url: str, timeout: float = TIMEOUT) -> AsyncIterator[Connection]:
    """A connection with its watch at work."""
    connection = Connection(connect(url, connect_timeout=timeout), timeout=timeout)
    watch = asyncio.Task(connection.watch())
    try:
        yield connection
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
        await connection.close()


@asynccontextmanager
async def stopped(server: Server) -> AsyncIterator[None]:
    """The server neither answers nor closes anything."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def took(attempt: "asyncio.Future[object] | asyncio.Task[object]") -> float:
    started = time.monotonic()
    await asyncio.gather(attempt, return_exceptions=True)
    return time.monotonic() - started


class TestStart:
    """Whatever is wrong at the start is one line, and no secret is in it."""

    async def test_nobody_there(self) -> None:
        async with silent_server() as url:
            pass
        assert (await refusal(url)).startswith("no usable store at it: ")

    async def test_no_socket(self) -> None:
        assert "no usable store at it" in await refusal("unix:///nowhere/at/all")

    async def test_nobody_answers(self) -> None:
        async with silent_server() as url:
            assert await refusal(url) == "no usable store at it: no answer within 0.5 s"

    async def test_an_unknown_host(self) -> None:
        assert "no usable store at it" in await refusal("redis://no-such-host.invalid:6379/0")

    async def test_a_web_server(self) -> None:
        async with http_server() as url:
            assert "no usable store at it" in await refusal(url)

    @KINDS
    async def test_a_wrong_password(self, start_server: StartServer, kind: str) -> None:
        server = start_server(binary=kind)
        with server.client() as client:
            client.acl_setuser("tracker", enabled=True, passwords="+right", keys="*", commands=["+@all"])
        for user in ("tracker", "nobody"):
            text = await refusal(f"unix://{user}:wr0ng-s3cret@{server.socket_path}")
            assert "no usable store at it" in text and "wr0ng-s3cret" not in text
        async with connected(f"unix://tracker:right@{server.socket_path}") as connection:
            await connection.command("PING")

    async def test_a_password_nobody_gave(self, start_server: StartServer) -> None:
        server = start_server()
        with server.client() as client:
            client.config_set("requirepass", "right")
        assert "no usable store at it: Authentication required" in await refusal(server.url)

    async def test_a_database_that_is_not_there(self, any_server: Server) -> None:
        assert "no usable store at it: DB index" in await refusal(f"unix://{any_server.socket_path}?db=99")

    async def test_tls_where_there_is_none(self, debian_redis: Server) -> None:
        assert "no usable store at it" in await refusal(f"rediss://127.0.0.1:{debian_redis.port}/0")

    async def test_no_tls_where_there_is_some(self, debian_redis: Server) -> None:
        assert "no usable store at it" in await refusal(f"redis://127.0.0.1:{debian_redis.tls_port}/0")

    async def test_a_certificate_of_nobody(self, debian_redis: Server) -> None:
        assert "certificate verify failed" in await refusal(debian_redis.tls_url)

    async def test_a_certificate_that_is_trusted(self, debian_redis: Server) -> None:
        client = connect(debian_redis.tls_url, connect_timeout=2, tls_ca_file=str(debian_redis.ca_file))
        assert (await check_server(client, "it")).startswith("redis ")
        await client.aclose()

    @pytest.mark.parametrize(
        ("url", "ca_file", "line"),
        [
            ("rediss://h/0", "/no/such/file", "TLS_CA_FILE is no file: /no/such/file"),
            ("rediss://h/0", "/", "TLS_CA_FILE is no file: /"),
            ("redis://h/0", __file__, "only a rediss:// URL"),
            ("unix:///socket", __file__, "only a rediss:// URL"),
        ],
    )
    def test_a_ca_file_that_is_no_use(self, url: str, ca_file: str, line: str) -> None:
        with pytest.raises(StartupError, match=line):
            connect(url, connect_timeout=2, tls_ca_file=ca_file)

    @pytest.mark.parametrize(
        "url",
        [
            "",
            "localhost:6379",
            "http://:s3cret@host",
            "redis://:s3cret@host:port",
            "redis://h/0?socket_connect_timeout=x",
            *(
                "redis://h/1?foo=1",
                "redis://h?decode_responses=true",
                "redis://h/1?db=1&foo=1",
                "redis://h?db=",
            ),
            *("redis://h/1O", "redis://h/1/2", "redis://h/-1", "redis://h/%31", "redis://h/1?db=2"),
            *("redis://:s3cret?@h/0", "redis://:s3cret#@h/0", "redis://:/s3cret@h/0", "redis://:s3c[ret@h/0"),
            *("redis:h/0", "redis://h:65536/0", "unix://", "unix://relative/s3cret", "unix:///s?path=/other"),
        ],
    )
    async def test_a_url_that_is_none(self, url: str) -> None:
        with pytest.raises(StartupError, match="is not a URL of a store") as caught:
            connect(url, connect_timeout=1)
        assert "s3c" not in str(caught.value) and "\n" not in str(caught.value)

    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            ("redis://h", {"host": "h"}),
            ("redis://h/", {"host": "h"}),
            ("REDIS://h:1/12", {"host": "h", "port": 1, "db": 12}),
            ("redis://h?db=3", {"host": "h", "db": 3}),
            (
                "rediss://me:s%2Fcret@[::1]:1/2",
                {"host": "::1", "username": "me", "password": "s/cret", "db": 2},
            ),
            ("unix:///a/b?db=4", {"path": "/a/b", "db": 4}),
            ("unix://me:s3cret@/a/b", {"path": "/a/b", "username": "me", "password": "s3cret"}),
        ],
    )
    async def test_a_url_that_is_one(self, url: str, expected: dict[str, object]) -> None:
        client = connect(url, connect_timeout=1)
        assert client.connection_pool.connection_kwargs.items() >= expected.items()
        await client.aclose()


async def refusal(url: str) -> str:
    """The one line a person reads."""
    client = connect(url, connect_timeout=0.5)
    try:
        with pytest.raises(StartupError) as caught:
            await check_server(client, "it", 0.5)
    finally:
        await client.aclose()
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestAway:
    async def test_a_store_that_hangs(self, start_server: StartServer) -> None:
        """Calls fail within the timeout, those after them at once, and within 2 s of its return all is well."""
        server = start_server("--appendonly", "no")
        async with connected(server.url) as connection:
            await connection.command("SET", "k", "v")
            async with stopped(server):
                started = time.monotonic()
                results = await asyncio.gather(
                    *(connection.command("GET", "k") for _ in range(200)), return_exceptions=True
                )
                assert {type(result) for result in results} == {StoreAway}
                assert time.monotonic() - started < 1
                assert connection.away
                started = time.monotonic()
                for _ in range(100):
                    with pytest.raises(StoreAway):
                        await connection.command("GET", "k")
                    with pytest.raises(StoreAway):
                        await connection.pipeline(("GET", "k"))
                assert time.monotonic() - started < 1  # not 200 times the timeout
            await until_back(connection, 2)
            assert await connection.command("GET", "k") == b"v"

    async def test_who_waits_for_its_return_goes_first(self, start_server: StartServer) -> None:
        """Before any other command gets through; a callback that fails means that it is not back."""
        server = start_server("--appendonly", "no")
        async with connected(server.url) as connection:
            told: list[str] = []

            async def fails_once() -> None:
                told.append("first")
                if len(told) == 1:
                    raise StoreAway("not yet")

            async def asks() -> None:
                assert await connection.command("INCR", "callbacks") == len(told) - 1
                assert connection.away
                told.append("second")

            connection.on_return(fails_once)
            connection.on_return(asks)
            connection._lost(OSError())
            with pytest.raises(StoreAway):
                await connection.command("SET", "too", "early")
            await until_back(connection, 2)
            assert told == ["first", "first", "second"]
            assert await connection.command("EXISTS", "too") == 0

    async def test_a_callback_the_store_dislikes_is_logged(self, start_server: StartServer) -> None:
        server = start_server("--appendonly", "no")
        async with connected(server.url) as connection:

            async def wrong() -> None:
                await connection.command("NO-SUCH-COMMAND")

            connection.on_return(wrong)
            with structlog.testing.capture_logs() as logs:
                connection._lost(OSError())
                await until_back(connection, 2)
            assert [line["event"] for line in logs] == [
                "store lost",
                "greeting the store failed",
                "store is back",
            ]

    @KINDS
    async def test_a_store_that_is_killed_and_started_again(
        self, start_server: StartServer, kind: str
    ) -> None:
        server = start_server(binary=kind)
        async with connected(server.url, timeout=5) as connection:
            await asyncio.gather(*(connection.command("INCR", "n") for _ in range(30)))
            await asyncio.to_thread(server.kill)
            with pytest.raises(StoreAway):
                await connection.command("GET", "n")
            await asyncio.to_thread(server.start)
            await until_back(connection, 2)
            assert int(await connection.command("GET", "n")) <= 30  # the last second's may be lost
            await asyncio.gather(*(connection.command("PING") for _ in range(30)))

    async def test_connections_that_are_killed(self, start_server: StartServer) -> None:
        """CLIENT KILL in mid-run: what is under way fails, what comes later works."""
        server = start_server("--appendonly", "no")
        async with connected(server.url, timeout=5) as connection:
            done: list[object] = []

            async def ask() -> None:
                for _ in range(100):
                    done.extend(await asyncio.gather(connection.command("PING"), return_exceptions=True))
                    await asyncio.sleep(0.001)

            async with asyncio.TaskGroup() as tasks:
                for _ in range(10):
                    tasks.create_task(ask())
                for _ in range(5):
                    await asyncio.sleep(0.02)
                    await asyncio.to_thread(kill_clients, server)
            assert {type(result) for result in done} <= {bool, StoreAway}
            await until_back(connection, 2)
            for _ in range(30):
                await connection.command("PING")

    async def test_idle_connections_that_are_killed_are_not_missed(self, start_server: StartServer) -> None:
        """Over TCP too: a connection that died in the pool is replaced, and no command fails for it."""
        server = start_server("--appendonly", "no", binary="redis")
        async with connected(server.tcp_url, timeout=5) as connection:
            await asyncio.gather(*(connection.command("PING") for _ in range(20)))
            await asyncio.to_thread(kill_clients, server)
            await asyncio.sleep(0.05)
            await asyncio.gather(*(connection.command("PING") for _ in range(20)))
            assert not connection.away

    async def test_a_write_is_never_sent_twice(self, any_server: Server, prefix: str) -> None:
        """The answer is lost after the store did the work: redis-py must not repeat the call."""
        async with Proxy(any_server) as proxy, connected(proxy.url) as connection:
            scripts = Scripts(connection, prefix)
            await scripts.count(["me", 1, 0, 0, 0])
            with any_server.client() as direct:
                direct.config_resetstat()
                proxy.swallow_answers()
                with pytest.raises(StoreAway):
                    await scripts.count(["me", 2, 0, 1, 0, "requests", "1800000000 1"])
                await until_back(connection, 2)
                assert direct.info("commandstats")["cmdstat_evalsha"]["calls"] == 1
                assert direct.get(f"{prefix}stats:requests") == b"1"

    async def test_a_server_that_talks_nonsense(self) -> None:
        async with answering({b"GET": b"?!\r\n"}) as url, connected(url) as connection:
            with pytest.raises(StoreAway):
                await connection.command("GET", "k")

    async def test_a_cancelled_call_leaves_no_answer_behind(self, any_server: Server, prefix: str) -> None:
        """A client that hangs up in mid-scrape: nobody else may get its answer, and no cancellation is lost."""
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
            assert not connection.away

    async def test_what_is_lost_while_it_is_greeted_is_not_back(self, any_server: Server) -> None:
        """As when another failover comes then: what was greeted is a server that is left already."""
        async with connected(any_server.url) as connection:
            told: list[bool] = []

            async def lost_once() -> None:
                told.append(connection.away)
                if len(told) == 1:
                    connection._lost(RedisConnectionError())

            connection.on_return(lost_once)
            connection._lost(RedisConnectionError())
            await until_back(connection, 5)
            assert told == [True, True]

    async def test_a_line_that_was_being_opened_when_the_store_was_lost_is_not_used(
        self, any_server: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It may lead to a master that is one no longer, and would take announces for good."""
        async with connected(any_server.url) as connection:
            lines, opens = losing(connection, open_line)
            monkeypatch.setattr(module, "open_line", opens)
            with pytest.raises(StoreAway):
                await connection.direct("INCR", f"{prefix}n")
            monkeypatch.undo()
            await until_back(connection, 5)
            assert await connection.direct("INCR", f"{prefix}n") == 1
            assert lines[0].broken


class TestRefusals:
    """The store answers, but does no work for now: nobody is to blame but us, and it is not away."""

    async def test_a_replica(self, start_server: StartServer) -> None:
        server = start_server("--appendonly", "no")
        async with connected(server.url) as connection:
            await connection.command("REPLICAOF", "127.0.0.1", 1)
            for attempt in (
                connection.command("SET", "k", "v"),
                connection.pipeline(("GET", "k"), ("SET", "k", "v")),
                Scripts(connection, "t:").count(["me", 1, 0]),
            ):
                with pytest.raises(StoreAway, match="refuses work"):
                    await attempt
            assert not connection.away
            await connection.command("REPLICAOF", "NO", "ONE")
            await connection.command("SET", "k", "v")

    async def test_a_disk_that_failed(self, start_server: StartServer) -> None:
        """MISCONF: a snapshot could not be written, so the server takes no writes."""
        server = start_server("--appendonly", "no", "--save", "3600 1")
        async with connected(server.url, timeout=5) as connection:
            await connection.command("SET", "k", "v")
            (server.directory / "dump.rdb").mkdir()  # where the snapshot should go
            await connection.command("BGSAVE")
            async with asyncio.timeout(10):
                while (await connection.client.info("persistence"))["rdb_last_bgsave_status"] == "ok":
                    await asyncio.sleep(0.01)
            with pytest.raises(StoreAway, match="refuses work"):
                await connection.command("SET", "k", "v")
            assert not connection.away

    @pytest.mark.parametrize(
        ("line", "away"),
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
    async def test_every_word_for_it(self, line: bytes, away: bool) -> None:
        async with answering({b"GET": line + b"\r\n"}) as url:
            for in_pipeline in (False, True):
                connection = Connection(connect(url, connect_timeout=1), timeout=1)
                with pytest.raises(StoreAway):
                    await (
                        connection.pipeline(("GET", "k")) if in_pipeline else connection.command("GET", "k")
                    )
                assert connection.away is away
                await connection.close()

    @pytest.mark.parametrize(
        ("line", "error"),
        [
            (b"-OOM command not allowed when used memory > 'maxmemory'.", OutOfMemoryError),
            (b"-NOPERM no permissions", NoPermissionError),
            (b"-WRONGTYPE Operation against a key holding the wrong kind of value", ResponseError),
        ],
    )
    async def test_other_errors_stay_what_they_are(self, line: bytes, error: type[Exception]) -> None:
        async with answering({b"GET": line + b"\r\n"}) as url, connected(url) as connection:
            with pytest.raises(error):
                await connection.command("GET", "k")
            failed, done = await connection.pipeline(("GET", "k"), ("SET", "k"))
            assert isinstance(failed, error) and done is True
            assert not connection.away

    async def test_while_it_loads_it_is_not_back(self) -> None:
        answers = {b"PING": b"-LOADING Redis is loading the dataset in memory\r\n"}
        async with answering(answers) as url:
            connection = Connection(connect(url, connect_timeout=1), timeout=1)
            connection._lost(OSError())
            assert not await connection._returned()
            answers[b"PING"] = b"-MISCONF Errors writing to the AOF file\r\n"
            assert not await connection._returned()
            answers[b"PING"] = b"-NOPERM this user has no permissions to run the 'ping' command\r\n"
            assert await connection._returned()  # an answer is an answer
            await connection.close()


class TestFloods:
    async def test_calls_share_a_few_connections(self, any_server: Server) -> None:
        async with Proxy(any_server) as proxy, connected(proxy.url, timeout=5) as connection:
            await asyncio.gather(*(connection.command("PING") for _ in range(500)))
            assert 1 < proxy.connections <= MOST_AT_ONCE

    async def test_what_waits_is_bounded(self, any_server: Server) -> None:
        async with connected(any_server.url, timeout=5) as connection:
            calls = [connection.command("PING") for _ in range(MOST_UNDER_WAY + 10)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert sum(isinstance(result, StoreAway) for result in results) == 10
            assert not connection.away


class TestHearing:
    """Every round trip is told of, with how it ended."""

    async def test_outcomes(self, start_server: StartServer, prefix: str) -> None:
        server = start_server("--appendonly", "no")
        heard: list[tuple[str, float]] = []
        connection = Connection(
            connect(server.url, connect_timeout=0.5), timeout=0.5, heard=lambda *trip: heard.append(trip)
        )
        await connection.command("PING")
        await connection.pipeline(("PING",), ("PING",))
        assert await Scripts(connection, prefix).heartbeat([1]) is not None  # unknown there, so sent twice
        with pytest.raises(ResponseError):
            await connection.command("NOSUCH")
        await connection.command("CONFIG", "SET", "min-replicas-to-write", "1")
        with pytest.raises(StoreAway):
            await connection.command("SET", f"{prefix}x", 1)
        async with stopped(server):
            with pytest.raises(StoreAway):
                await connection.command("PING")
            assert [outcome for outcome, _ in heard[-4:]] == ["error", "answered", "refused", "timeout"]
        assert {outcome for outcome, _ in heard[:-4]} == {"answered"}
        server.kill()
        assert not await connection._returned()
        assert heard[-1][0] == "unreachable"
        with pytest.raises(StoreAway):
            await connection.command("PING")  # not even tried
        assert [outcome for outcome, _ in heard].count("unreachable") == 1
        assert {outcome for outcome, _ in heard} == set(OUTCOMES)
        assert all(0 <= seconds < 60 for _, seconds in heard)
        await connection.close()


class TestSubscriptions:
    async def test_messages_come_with_their_channel(self, any_server: Server, prefix: str) -> None:
        async with connected(any_server.url) as connection:
            async with connection.subscription(channels=[f"{prefix}a"], patterns=[f"{prefix}b*"]) as messages:
                for channel in ("a", "b1", "c", "b2"):
                    await connection.command("PUBLISH", prefix + channel, channel)
                got = [await anext(messages) for _ in range(3)]
        assert got == [(f"{prefix}{c}".encode(), c.encode()) for c in ("a", "b1", "b2")]

    async def test_silence_does_not_break_it(self, any_server: Server, prefix: str) -> None:
        """A subscription waits longer than the time a command may take."""
        async with connected(any_server.url, timeout=0.05) as connection:
            async with connection.subscription(channels=[f"{prefix}a"]) as messages:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await anext(messages)

    async def test_what_is_forbidden_says_so(self, start_server: StartServer, prefix: str) -> None:
        """Users made with ACL SETUSER may use no channel unless they are given some."""
        server = start_server("--appendonly", "no")
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "quiet", "on", ">p", "~*", "+@all", "resetchannels")
        async with connected(server.url.replace("unix://", "unix://quiet:p@"), timeout=5) as connection:
            with pytest.raises(NoPermissionError):
                async with connection.subscription(channels=[f"{prefix}a"]):
                    pytest.fail("it is subscribed")
            assert not connection.away

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

    async def test_a_line_that_breaks_says_so(self, any_server: Server, prefix: str) -> None:
        async with Proxy(any_server) as proxy, connected(proxy.url) as connection:
            with pytest.raises(StoreAway):  # noqa: PT012  # leaving the block is what raises
                async with connection.subscription(channels=[f"{prefix}a"]) as messages:
                    proxy.cut()
                    await anext(messages)
            await until_back(connection, 2)

    async def test_one_that_was_being_opened_when_the_store_was_lost_breaks(
        self, any_server: Server, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else it would listen to a server that is gone, or that nobody writes to any more."""
        async with connected(any_server.url) as connection:
            _, opens = losing(connection, open_subscription)
            monkeypatch.setattr(module, "open_subscription", opens)
            with pytest.raises(StoreAway):
                async with connection.subscription(channels=[f"{prefix}a"]):
                    pytest.fail("it is subscribed")

    def test_channels_name_the_database(self) -> None:
        for url, database in (("redis://h/3", 3), ("redis://h", 0), ("unix:///s?db=7", 7)):
            connection = Connection(connect(url, connect_timeout=1), timeout=1)
            assert connection.keyspace_channel("t:x") == f"__keyspace@{database}__:t:x"


class TestAnnounces:
    """A store that is away: no announce waits longer than the timeout, and none piles up."""

    async def test_all_fail_in_time_and_service_resumes(self, start_server: StartServer) -> None:
        server = start_server("--appendonly", "no")
        store = Store(server.url, Keys("t:"), SwarmRules())
        async with connected(server.url) as connection:
            store.connection = store.swarms._connection = connection
            store.swarms._scripts = Scripts(connection, "t:")
            async with running(store):
                await store.announce(update(1, "s"))
                async with stopped(server):
                    for _ in range(2):  # the first time the timeout runs out, then nobody asks
                        started = time.monotonic()
                        results = await asyncio.gather(
                            *(store.swarms.announce(update(n, "s")) for n in range(500)),
                            return_exceptions=True,
                        )
                        assert {type(result) for result in results} == {StoreAway}
                        assert time.monotonic() - started < 1
                        assert not store.swarms.waiting
                continued = time.monotonic()
                await until_back(connection, 2)
                assert (await store.announce(update(1))).leechers >= 1
                assert time.monotonic() - continued < 2


def losing(connection: Connection, opening: Callable[[Any], Awaitable[Any]]) -> tuple[list[Any], Any]:
    """(what was opened, what opens it): the store is lost in the middle of that."""
    opened: list[Any] = []

    async def opens(client: Any) -> Any:
        opened.append(await opening(client))
        connection._lost(RedisConnectionError())
        return opened[-1]

    return opened, opens


async def until_back(connection: Connection, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await connection.until_back()


def kill_clients(server: Server) -> None:
    with server.client() as client:
        client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
