"""A store that sentinels know: found, followed through failovers, and never mistaken."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.processes import free_port, until
from tests.sentinels import NAME, Failover, SentinelServer, failover
from tests.servers import OPENSSL, SYSTEM_REDIS, Server, start_system_redis
from tests.store.fakes import answering, silent_server
from tests.store.harness import Store, update
from tracker.errors import StartupError, StoreAway
from tracker.loops import running
from tracker.store.connection import Connection, connect
from tracker.store.keys import Keys
from tracker.store.server_version import check_server
from tracker.store.swarms import SwarmRules

PATIENCE_SECONDS = 30.0


@asynccontextmanager
async def followed(url: str, timeout: float = 5.0) -> AsyncIterator[Connection]:
    """A connection that is looked after as in a tracker."""
    connection = Connection(connect(url, connect_timeout=timeout), timeout=timeout)
    try:
        async with running(connection.watch, connection.follow):
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def store_at(url: str) -> AsyncIterator[Store]:
    store = Store(url, Keys("t:"), SwarmRules())
    try:
        async with running(store.connection.watch, store.connection.follow, store.swarms.run):
            yield store
    finally:
        await store.connection.close()


async def announced(store: Store, peer: int) -> int:
    """Announces until that is answered: how often the store was away. Anything else it may be fails the test."""
    refused = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await store.announce(update(peer, "s"))
            except StoreAway:
                refused += 1
                await asyncio.sleep(0.02)
            else:
                return refused


@pytest.fixture
def group() -> Iterator[Failover]:
    with failover() as group:
        yield group


def swarm_of(server: Server) -> int:
    with server.client() as client:
        return int(client.hget(Keys("t:").torrent(update(1).info_hash), "leechers") or 0)


async def test_announces_follow_a_master_that_is_killed(group: Failover) -> None:
    """Away while there is none; then on the other server, with what the first had passed on, and no script is missed."""
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
    """Commands, the line of announces and subscriptions leave the old master, seconds before it learns of it."""
    _, new = group.servers
    async with store_at(group.url) as store:
        await announced(store, 1)
        with pytest.raises(StoreAway):  # noqa: PT012  # what breaks is the listening
            async with store.connection.subscription(channels=["t:news"]) as messages:
                await asyncio.to_thread(group.promote)
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await anext(messages)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while store.connection.away or store.connection.master != f"127.0.0.1:{new.port}":
                await asyncio.sleep(0.02)
        async with store.connection.subscription(channels=["t:news"]) as messages:
            with new.client() as client:
                client.publish("t:news", "heard")
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert await anext(messages) == (b"t:news", b"heard")
        await announced(store, 2)
    assert swarm_of(new) >= 1


async def test_a_master_that_stands_still_is_left(group: Failover) -> None:
    """It neither answers nor closes anything; when it goes on, nobody writes to it any more."""
    old, new = group.servers
    async with store_at(group.url) as store:
        store.connection._timeout = 0.5
        await announced(store, 1)
        os.kill(old.pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while store.connection.away or store.connection.master != f"127.0.0.1:{new.port}":
                    await asyncio.gather(announced(store, 2))
        finally:
            os.kill(old.pid, signal.SIGCONT)
        before = swarm_of(new)
        await announced(store, 3)
        assert swarm_of(new) == before + 1


def named(server: Server, epoch: int = 1) -> dict[bytes, bytes]:
    """A sentinel's answers: where the master is, and what else it knows of it."""
    port = str(server.port).encode()
    state = b"*2\r\n$12\r\nconfig-epoch\r\n$1\r\n%d\r\n" % epoch
    return {
        b"SENTINEL GET-MASTER-ADDR-BY-NAME": b"*2\r\n$9\r\n127.0.0.1\r\n$%d\r\n%b\r\n" % (len(port), port),
        b"SENTINEL MASTER": state,
    }


@asynccontextmanager
async def sentinels(*answers: dict[bytes, bytes]) -> AsyncIterator[str]:
    """Sentinels that say what they are told to: the URL for a tracker."""
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(answering(each)) for each in answers]
        hosts = ",".join(url.removeprefix("redis://").removesuffix("/0") for url in urls)
        yield f"redis+sentinel://{hosts}/{NAME}"


class TestWord:
    """Sentinels that are made up, two real servers."""

    @pytest.fixture
    def pair(self) -> Iterator[list[Server]]:
        with failover(sentinels=0) as group:
            yield list(group.servers)

    async def test_a_replica_is_not_written_to_whatever_sentinels_say(self, pair: list[Server]) -> None:
        async with sentinels(named(pair[1])) as url:
            client = connect(url, connect_timeout=5)
            with pytest.raises(StartupError, match="is no master"):
                await check_server(client, "it", 5)
            await client.aclose()

    async def test_a_master_that_was_replaced_is_left_though_it_answers(self, pair: list[Server]) -> None:
        """Cut off from the sentinels it does not know, and would take what is lost then."""
        old, new = pair
        with new.client() as client:
            client.replicaof("NO", "ONE")
        answers = named(old)
        async with sentinels(answers) as url, followed(url) as connection:
            await connection.direct("SET", "k", "old")
            with pytest.raises(StoreAway):  # noqa: PT012  # what breaks is the listening
                async with connection.subscription(channels=["c"]) as messages:
                    answers.update(named(new, 2))
                    async with asyncio.timeout(PATIENCE_SECONDS):
                        await anext(messages)
            async with asyncio.timeout(PATIENCE_SECONDS):
                await connection.until_back()
            await asyncio.gather(connection.direct("SET", "k", "new"), connection.command("SET", "l", "new"))
        with old.client() as client:
            assert client.mget("k", "l") == [b"old", None]

    async def test_whoever_knows_of_the_latest_failover_is_right(self, pair: list[Server]) -> None:
        """However many have not heard of it; and one that has heard of none counts for as little as one that is gone."""
        stale, true = named(pair[1], 1), named(pair[0], 2)
        async with sentinels(stale, true, stale) as url, followed(url) as connection:
            assert await connection.command("PING")
            said = await connection.sentinels()
            assert said is not None
            assert [word.epoch for word in said] == [1, 2, 1]
            assert connection.master == f"127.0.0.1:{pair[0].port}"

    async def test_nobody_waits_for_one_that_does_not_answer(self, pair: list[Server]) -> None:
        true = named(pair[0])
        async with sentinels(true, true) as url, silent_server() as other:
            silent = other.removeprefix("redis://").removesuffix("/0")
            async with followed(url.replace("//", f"//{silent},", 1), timeout=60) as connection:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    assert await connection.command("PING")

    async def test_one_is_enough_when_the_others_are_gone(self, pair: list[Server]) -> None:
        async with sentinels(named(pair[0])) as url:
            async with followed(url.replace("//", "//127.0.0.1:1,127.0.0.1:2,", 1)) as connection:
                assert await connection.command("PING")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"*-1\r\n", "it knows no swarm"),
        (b"-NOAUTH Authentication required.\r\n", "Authentication required"),
        (b"-ERR unknown command 'SENTINEL'\r\n", "unknown command"),
    ],
)
async def test_sentinels_that_are_no_use_say_why_in_one_line(answer: bytes, reason: str) -> None:
    async with sentinels({b"SENTINEL": answer}) as url:
        client = connect(url, connect_timeout=5)
        with pytest.raises(StartupError) as caught:
            await check_server(client, "it", 5)
        await client.aclose()
    text = str(caught.value)
    assert reason in text and "no sentinel names the master swarm" in text and "\n" not in text


@pytest.mark.slow
async def test_tls_and_the_passwords_of_both(tmp_path: Path) -> None:
    """The sentinels' password is not the server's; without either nothing is found."""
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
            client = connect(url, connect_timeout=5, tls_ca_file=str(server.ca_file), sentinel_login=login)
            try:
                if found:
                    assert "redis 7" in await check_server(client, "it", 10)
                else:
                    with pytest.raises(StartupError, match="no sentinel names the master"):
                        await check_server(client, "it", 10)
            finally:
                await client.aclose()
    finally:
        sentinel.kill()
        server.kill()
