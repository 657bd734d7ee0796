"""U4: a host with several addresses of each family, in a network namespace of its own.

``python -m tests.frontends.udp.test_addresses`` is the part that runs inside.
"""

import asyncio
import socket

import pytest

from tests import namespaces
from tests.frontends.udp.harness import Client, announce_packet, serving

ADDRESSES = {"0.0.0.0:0": ("10.9.0.1", "10.9.0.2"), "[::]:0": ("fd00::1", "fd00::2")}
SET_UP = namespaces.set_up(*(each for pair in ADDRESSES.values() for each in pair))


def test_replies_come_from_the_address_that_was_asked_in_both_families() -> None:
    if reason := namespaces.why_not(SET_UP):
        pytest.skip(reason)
    done = namespaces.run_module(SET_UP, "tests.frontends.udp.test_addresses", seconds=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [each for pair in ADDRESSES.values() for each in pair]


async def ask_all() -> None:
    """Asks each address from the other one, by sockets that take replies of the asked address only."""
    for listen, pair in ADDRESSES.items():
        async with serving(listen) as served:
            for asked, source in zip(pair, reversed(pair), strict=True):
                family = socket.AF_INET6 if ":" in asked else socket.AF_INET
                client = Client((asked, served.address[1]), family, source=source)
                served.clients.append(client)
                assert len(await client.ask(announce_packet(await client.connect()))) == 20
                print(asked)  # noqa: T201  # what the test reads


if __name__ == "__main__":
    asyncio.run(ask_all())
