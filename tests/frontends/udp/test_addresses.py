"""U4: a host with several addresses of each family, in a network namespace of its own.

``python -m tests.frontends.udp.test_addresses`` is the part that runs inside.
"""

import asyncio
import shutil
import socket
import subprocess
import sys

import pytest

from loadtest.servers import ROOT
from tests.frontends.udp.harness import Client, announce_packet, serving

ADDRESSES = {"0.0.0.0:0": ("10.9.0.1", "10.9.0.2"), "[::]:0": ("fd00::1", "fd00::2")}
NAMESPACE = ["unshare", "--user", "--map-root-user", "--net"]
SET_UP = " && ".join(
    [
        "ip link set lo up",
        *(f"ip address add {address}/32 dev lo" for address in ADDRESSES["0.0.0.0:0"]),
        *(f"ip address add {address}/128 dev lo nodad" for address in ADDRESSES["[::]:0"]),
    ]
)


def why_not() -> str:
    """Why a namespace with these addresses cannot be made; empty if it can."""
    if not shutil.which("ip") or not shutil.which("unshare"):
        return "no ip and unshare on this system"
    done = subprocess.run([*NAMESPACE, "sh", "-c", SET_UP], capture_output=True, text=True, check=False)
    return f"no network namespace here: {done.stderr.strip()}" if done.returncode else ""


def test_replies_come_from_the_address_that_was_asked_in_both_families() -> None:
    if reason := why_not():
        pytest.skip(reason)
    inside = f"{SET_UP} && exec {sys.executable} -m tests.frontends.udp.test_addresses"
    done = subprocess.run(
        [*NAMESPACE, "sh", "-c", inside],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
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
