"""D12: a node with default settings learns its address from nodes of libtorrent, in both families.

They have public addresses of different networks, in a network namespace of their own that has nothing but ``lo``.
``python -m tests.frontends.dht.test_addresses`` is the part that runs inside.
"""

import asyncio
import socket
import time

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

from tests import namespaces
from tests.frontends.dht.harness import serving
from tests.frontends.dht.islands import PORT, public_session
from tests.waiting import eventually
from tracker.bittorrent import Address
from tracker.dht.node import DhtNode
from tracker.dht.node_id import fits_address
from tracker.wire.endpoint import pack_address

SESSIONS, OUR_PORT = 12, 6881
OURS, OURS6 = "5.200.0.1", "2a00:200::1"
HOSTS = [(f"5.{number}.0.1", f"2a00:{number}::1") for number in range(1, SESSIONS + 1)]
SET_UP = namespaces.set_up(*(each for pair in [(OURS, OURS6), *HOSTS] for each in pair))


@pytest.mark.slow
def test_our_ids_follow_the_addresses_that_libtorrent_sees() -> None:
    if reason := namespaces.why_not(SET_UP):
        pytest.skip(reason)
    done = namespaces.run_module(SET_UP, "tests.frontends.dht.test_addresses", seconds=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done"]


def has_found(node: DhtNode, host: str) -> bool:
    own = pack_address(host)
    assert own is not None
    return node.external.address == own and fits_address(node.id, Address(own)) and len(node.table) >= 8


async def main() -> None:
    names = [name for _, name in socket.if_nameindex()]
    assert names == ["lo"], f"not in a namespace of its own: {names}"
    listen = f"{OURS}:{OUR_PORT}", f"[{OURS6}]:{OUR_PORT}"
    async with serving(*listen, timer=time.monotonic, private_addresses=False) as served:
        sessions = [public_session(f"{host}:{PORT},[{host6}]:{PORT}") for host, host6 in HOSTS]
        for number, each in enumerate(sessions):
            for known in (OURS, OURS6):
                each.add_dht_node((known, OUR_PORT))
            for known in HOSTS[number - 1]:
                each.add_dht_node((known, PORT))
        nodes = {host: served.sockets[family].node for family, host in ((4, OURS), (6, OURS6))}
        await eventually(lambda: all(has_found(node, host) for host, node in nodes.items()), 120)
        sessions.clear()
    print("done")  # noqa: T201  # what the test reads


if __name__ == "__main__":
    asyncio.run(main())
