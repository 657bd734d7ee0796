"""D17: Transmission, aria2 and libtorrent in a DHT with the node of a tracker, in a network namespace of their own.

``python -m tests.e2e.test_dht`` records what they send to the node (tests/vectors/dht.json).
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("libtorrent", reason="libtorrent has no wheel for this interpreter or system")

from tests import namespaces, recorded_dht
from tests.e2e.dht_network import SET_UP

SECONDS = 400


def run_inside(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return namespaces.run_module(SET_UP, "tests.e2e.dht_network", str(folder), *words, seconds=SECONDS)


# Transmission takes half a minute until it knows enough nodes.
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(SECONDS + 60)
def test_clients_announce_to_the_node_and_find_what_it_has(short_directory: Path) -> None:
    """D8, D10, D11, D15: none of their queries is dropped, no datagram is too large, and a private torrent is named in
    none."""
    if reason := namespaces.why_not(SET_UP, "transmission-daemon", "aria2c"):
        pytest.skip(reason)
    done = run_inside(short_directory)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="sk-") as name:
        done = run_inside(Path(name), str(recorded_dht.FILE))
    sys.exit(done.stderr if done.returncode else 0)
