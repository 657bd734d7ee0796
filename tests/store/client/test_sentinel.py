"""A store behind sentinels: found, followed through failovers, and never confused."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from loadtest.sentinels import NAME, Failover, SentinelServer, failover
from loadtest.servers import OPENSSL, SYSTEM_REDIS, Server, free_port, start_system_redis
from tests.store.fakes import answering, silent_server
from tests.store.harness import Store, update
from tests.waiting import eventually, until
from tracker.errors import StartupError, StoreUnavailable
from tracker.store.client.connection import Connection, connect
from tracker.store.client.server_info import check_server
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.system.event_loop import running

PATIENCE_SECONDS = 30.0


@asynccontextmanager
async def followed(url: str, timeout: float = 5.0) -> AsyncIterator[Connection]:
    """A connection that is watched as in a tracker."""
    connection = Connection(connect(url, connect_timeout=timeout, timeout=timeout))
    try:
        async with running(connection.watch, connection.topology.follow):
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def store_at(url: str) -> AsyncIterator[Store]:
    store = Store(url, Keys("t:"), SwarmRules())
    try:
        async with running(store.connection.watch, store.connection.topology.follow, store.swarms.run):
            yield store
    finally:
        await store.connection.close()


async def announced(store: Store, peer: int) -> int:
    """Announces until it succeeds; returns how often the store was unavailable. Any other failure fails the test."""
    refused = -1

    async def is_answered() -> bool:
        nonlocal refused
        refused += 1
        await store.announce(update(peer, "s"))
        return True

    await eventually(is_answered, PATIENCE_SECONDS, ignored=(StoreUnavailable,))
    return refused


@pytest.fixture
def group() -> Iterator[Failover]:
    with failover() as group:
        yield group


def swarm_of(server: Server) -> int:
    with server.client() as client:
        return int(client.hget(Keys("t:").torrent(update(1).info_hash), "leechers") or 0)


async def test_announces_follow_a_killed_master(group: Failover) -> None:
    """Unavailable while there is none. Then the other server has the replicated data, and no script is missing."""
    old, new = group.servers
    async with store_at(group.url) as store:
        await announced(store, 1)
        assert store.connection.master == f"127.0.0.1:{old.port}"
        await asyncio.to_thread(_await_swarm, new, 1)
        old.kill()
        assert await announced(store, 2) > 0
        assert store.connection.master == f"127.0.0.1:{new.port}"
    assert swarm_of(new) == 2


def _await_swarm(server: Server, peers: int) -> None:
    until(lambda: swarm_of(server) == peers, PATIENCE_SECONDS)


async def test_everything_moves_in_a_planned_failover(group: Failover) -> None:
    """Commands, the pipe and subscriptions leave the old master seconds before it learns of its replacement."""
    _, new = group.servers
    async with store_at(group.url) as store:
        await announced(store, 1)
        with pytest.raises(StoreUnavailable):  # noqa: PT012  # what breaks is the listening
            async with store.connection.subscription(channels=["t:news"]) as messages:
                await asyncio.to_thread(group.promote)
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await anext(messages)
        await eventually(
            lambda: not store.connection.unavailable and store.connection.master == f"127.0.0.1:{new.port}",
            PATIENCE_SECONDS,
        )
        async with store.connection.subscription(channels=["t:news"]) as messages:
            with new.client() as client:
                client.publish("t:news", "text")
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await anext(messages) == (b"t:news", b"text")
        await announced(store, 2)
    assert swarm_of(new) >= 1


async def test_a_suspended_master_is_left(group: Failover) -> None:
    """It neither replies nor closes anything; after it resumes, nothing is written to it."""
    old, new = group.servers
    async with store_at(group.url) as store:
        store.connection.server.timeout = 0.5
        await announced(store, 1)
        os.kill(old.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while store.connection.unavailable or store.connection.master != f"127.0.0.1:{new.port}":
                    await asyncio.gather(announced(store, 2))
        finally:
            os.kill(old.pid, signal.SIGCONT)
        before = swarm_of(new)
        await announced(store, 3)
        assert swarm_of(new) == before + 1


def named(server: Server, epoch: int = 1) -> dict[bytes, bytes]:
    """A sentinel's replies: the address of the master, and its other information."""
    port = str(server.port).encode()
    state = b"*2\r\n$12\r\nconfig-epoch\r\n$1\r\n%d\r\n" % epoch
    return {
        b"SENTINEL GET-MASTER-ADDR-BY-NAME": b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%b\r\n" % (len(port), port),
        b"SENTINEL MASTER": state,
    }


@asynccontextmanager
async def sentinels(*answers: dict[bytes, bytes]) -> AsyncIterator[str]:
    """Sentinels with given replies; yields the URL for a tracker."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(answering(each)) for each in answers]
        hosts = ",".join(url.removeprefix("redis://").removesuffix("/0") for url in urls)
        yield f"redis+sentinel://{hosts}/{NAME}"


class TestReplies:
    """Simulated sentinels, two real servers."""

    @pytest.fixture
    def pair(self) -> Iterator[list[Server]]:
        with failover(sentinels=0) as group:
            yield list(group.servers)

    async def test_a_replica_is_not_written_to_even_if_sentinels_name_it(self, pair: list[Server]) -> None:
        async with sentinels(named(pair[1])) as url:
            master = connect(url, connect_timeout=5, timeout=5)
            with pytest.raises(StartupError, match="is not a master"):
                await check_server(master, "it", 5)
            await master.close()

    async def test_a_replaced_master_is_left_though_it_replies(self, pair: list[Server]) -> None:
        """It is cut off from the sentinels, does not know, and would take writes that are lost later."""
        old, new = pair
        with new.client() as client:
            client.replicaof("NO", "ONE")
        answers = named(old)
        async with sentinels(answers) as url, followed(url) as connection:
            await connection.direct("SET", "k", "old")
            with pytest.raises(StoreUnavailable):  # noqa: PT012  # what breaks is the listening
                async with connection.subscription(channels=["c"]) as messages:
                    answers.update(named(new, 2))
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        await anext(messages)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await connection.until_available()
            await asyncio.gather(connection.direct("SET", "k", "new"), connection.command("SET", "l", "new"))
        with old.client() as client:
            assert client.mget("k", "l") == [b"old", None]

    async def test_the_sentinels_that_know_the_latest_failover_decide(self, pair: list[Server]) -> None:
        """Even a minority of them. A sentinel that knows of no failover counts as little as an unreachable one."""
        stale, true = named(pair[1], 1), named(pair[0], 2)
        async with sentinels(stale, true, stale) as url, followed(url) as connection:
            assert await connection.command("PING")
            said = await connection.topology.replies()
            assert said is not None
            assert [word.epoch for word in said] == [1, 2, 1]
            assert connection.master == f"127.0.0.1:{pair[0].port}"

    async def test_a_silent_sentinel_delays_nothing(self, pair: list[Server]) -> None:
        true = named(pair[0])
        async with sentinels(true, true) as url, silent_server() as other:
            silent = other.removeprefix("redis://").removesuffix("/0")
            async with followed(url.replace("//", f"//{silent},", 1), timeout=60) as connection:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    assert await connection.command("PING")

    async def test_one_sentinel_is_enough_when_the_others_are_unreachable(self, pair: list[Server]) -> None:
        async with sentinels(named(pair[0])) as url:
            async with followed(url.replace("//", "//127.0.0.1:1,127.0.0.1:2,", 1)) as connection:
                assert await connection.command("PING")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"*-1\r\n", "it does not know swarm"),
        (b"-NOAUTH Authentication required.\r\n", "Authentication required"),
        (b"-ERR unknown command 'SENTINEL'\r\n", "unknown command"),
    ],
)
async def test_useless_sentinels_are_reported_in_one_line(answer: bytes, reason: str) -> None:
    async with sentinels({b"SENTINEL": answer}) as url:
        master = connect(url, connect_timeout=5, timeout=5)
        with pytest.raises(StartupError) as caught:
            await check_server(master, "it", 5)
        await master.close()
    text = str(caught.value)
    assert reason in text and "no sentinel names the master swarm" in text and "\n" not in text


@pytest.mark.slow
async def test_tls_and_both_passwords_are_used(tmp_path: Path) -> None:
    """The password of the sentinels is not the server's; without either nothing is found."""
    if SYSTEM_REDIS is None or OPENSSL is None:
        pytest.skip("no redis-server with TLS on this system")
    (home := tmp_path / "0").mkdir()
    server = start_system_redis(home, "--appendonly", "no")
    with server.client() as administrator:
        administrator.execute_command("ACL", "SETUSER", "me", "on", ">right", "~*", "&*", "+@all")
    sentinel = SentinelServer(SYSTEM_REDIS, tmp_path, port=free_port())
    certificate = home / "cert.pem"
    sentinel.conf.write_text(f"""
port {sentinel.port}
tls-port {(tls_port := free_port())}
tls-cert-file {certificate}
tls-key-file {home / "key.pem"}
tls-ca-cert-file {certificate}
tls-auth-clients no
tls-replication yes
dir {tmp_path}
user default on nopass ~* &* +@all -sentinel
user watcher on >word ~* &* +@all
sentinel monitor {NAME} 127.0.0.1 {server.tls_port} 1
""")
    try:
        await asyncio.to_thread(sentinel.start)
        url = f"rediss+sentinel://me:right@127.0.0.1:{tls_port}/{NAME}/0"
        for login, found in ((("watcher", "word"), True), ((None, None), False), (("watcher", "x"), False)):
            master = connect(url, connect_timeout=5, timeout=5, tls_ca_file=str(server.ca_file), sentinel_login=login)
            try:
                if found:
                    assert "redis 7" in (await check_server(master, "it", 10))[0]
                else:
                    with pytest.raises(StartupError, match="no sentinel names the master"):
                        await check_server(master, "it", 10)
            finally:
                await master.close()
    finally:
        sentinel.kill()
        server.kill()
