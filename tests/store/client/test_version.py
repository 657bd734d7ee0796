"""Which server the store is: its name and version out of what it says, and who is too old."""

import pytest

from tests.servers import Server
from tests.store.fakes import answering
from tracker.errors import StartupError
from tracker.store.connection import connect
from tracker.store.server_version import check_server, version_of


def test_redis() -> None:
    info = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n"
    assert version_of(info) == ("redis", (7, 0), "redis 7.0.15")


def test_valkey_says_an_old_redis_version_too() -> None:
    info = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n"
    assert version_of(info) == ("valkey", (9, 1), "valkey 9.1.2")


@pytest.mark.parametrize("info", ["", "redis_version:unstable", "no colons at all"])
def test_what_cannot_be_told_is_too_old(info: str) -> None:
    assert version_of(info)[1] == (0, 0)


async def test_real_ones(any_server: Server) -> None:
    client = connect(any_server.url, connect_timeout=5)
    name = await check_server(client, "it", 5)
    await client.aclose()
    assert name.startswith("valkey 9." if "valkey" in any_server.binary else "redis ")


@pytest.mark.parametrize(
    ("info", "name"),
    [
        (b"redis_version:6.2.14\r\n", "redis 6.2.14"),
        (b"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:7.1.0\r\n", "valkey 7.1.0"),
    ],
)
async def test_old_ones_are_refused(info: bytes, name: str) -> None:
    async with answering({b"INFO": b"$%d\r\n%b\r\n" % (len(info), info)}) as url:
        client = connect(url, connect_timeout=5)
        with pytest.raises(StartupError) as refused:
            await check_server(client, "it", 5)
        await client.aclose()
    assert str(refused.value) == f"the store at it is {name}: Redis 7.0, Valkey 7.2 or newer is needed"
