"""A tracker on a cluster, as on a managed service: one prefix with a hash tag."""

from pathlib import Path

import pytest

from loadtest import trackers
from loadtest.cluster import cluster
from tests.e2e.conftest import StartTracker

PREFIX = "t:{x}:"


@pytest.mark.slow
def test_two_web_processes_serve_from_a_cluster(start_tracker: StartTracker) -> None:
    """The URL names a node without the keys. They move to that node while the tracker serves."""
    with cluster() as nodes:
        other = next(node for node in nodes.nodes if node is not nodes.primary(PREFIX))
        tracker = start_tracker(
            TRACKER_REDIS__URL=other.tcp_url, TRACKER_REDIS__PREFIX=PREFIX, TRACKER_HTTP__WORKERS="2"
        )

        def join(number: int) -> object:
            return tracker.announce(peer_id=f"-TR4000-{number:012}", port=str(7000 + number))[b"complete"]

        for number in range(20):
            assert join(number) == number + 1
        nodes.move(PREFIX, other)
        for number in range(20, 40):
            assert join(number) == number + 1
        assert int(other.ask("GET", f"{PREFIX}stats:seeders")) == 40
        assert tracker.end() == 0


def test_a_tracker_does_not_start_on_a_cluster_with_the_default_prefix(tmp_path: Path) -> None:
    with cluster(primaries=1) as nodes:
        ended = trackers.run(tmp_path, "serve", TRACKER_REDIS__URL=nodes.url, **trackers.ANY_PORTS)
    assert ended.returncode == 1
    assert "TRACKER_REDIS__PREFIX needs a hash tag, as in t:{t}:" in ended.stderr
