"""The name and version of the store's server, from its INFO, and which versions are too old."""

import pytest

from loadtest.servers import Server
from tests.store.fakes import answering, silent_server
from tracker.errors import StartupError, StoreNotReady
from tracker.store.client.connection import connect
from tracker.store.client.server_info import check_server, parse_info, version_of


def test_redis_is_recognised() -> None:
    info = b"# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n"
    assert version_of(parse_info(info)) == ("redis", (7, 0), "redis 7.0.15")


def test_valkey_is_recognised_although_it_reports_a_redis_version() -> None:
    info = b"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n"
    assert version_of(parse_info(info)) == ("valkey", (9, 1), "valkey 9.1.2")


@pytest.mark.parametrize("info", [b"", b"redis_version:unstable", b"no colons at all"])
def test_an_unknown_version_is_too_old(info: bytes) -> None:
    assert version_of(parse_info(info))[1] == (0, 0)


async def test_real_servers_are_recognised(any_server: Server) -> None:
    server = connect(any_server.url, connect_timeout=5, timeout=5)
    name = (await check_server(server, "it", 5))[0]
    await server.close()
    assert name.startswith("valkey 9." if "valkey" in any_server.binary else "redis ")


@pytest.mark.parametrize(
    ("info", "name"),
    [
        (b"redis_version:6.2.14\r\n", "redis 6.2.14"),
        (b"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.1.0\r\n", "valkey 7.1.0"),
    ],
)
async def test_old_servers_are_refused(info: bytes, name: str) -> None:
    async with answering({b"INFO": b"$%d\r\n%b\r\n" % (len(info), info)}) as url:
        server = connect(url, connect_timeout=5, timeout=5)
        with pytest.raises(StartupError) as refused:
            await check_server(server, "it", 5)
        await server.close()
    assert str(refused.value) == f"the store at it is {name}: Redis 7.0, Valkey 7.2 or newer is needed"


@pytest.mark.parametrize(("timeout", "patience"), [(0.05, 60.0), (60.0, 0.05)])
async def test_a_silent_server_is_named_whoever_loses_patience_first(timeout: float, patience: float) -> None:
    """The connection gives up with StoreUnavailable, the check with TimeoutError."""
    async with silent_server() as url:
        server = connect(url, connect_timeout=60, timeout=timeout)
        with pytest.raises(StoreNotReady) as refused:
            await check_server(server, "it", patience)
        await server.close()
    assert str(refused.value) == f"no usable store at it: no answer within {patience:g} s"
