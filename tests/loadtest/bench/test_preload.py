"""Peers that join a store without HTTP."""

from collections.abc import Callable

from loadtest.bench.population import make_peers
from loadtest.bench.preload import preload
from loadtest.servers import Server
from tests.conftest import NO_PERSISTENCE


async def test_all_peers_join(start_server: Callable[..., Server]) -> None:
    """More than one call of the store takes, and more than wait at once."""
    server = start_server(*NO_PERSISTENCE)
    await preload(server.url, make_peers(700, 3), timeout_seconds=1800)
    with server.client() as client:
        found = [client.get(f"t:stats:{kind}") for kind in ("seeders", "leechers")]
    assert sum(int(number) for number in found) == 700
