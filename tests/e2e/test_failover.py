"""A tracker on a cluster whose main store fails over: over TLS, with peers over HTTP and UDP, and with webhooks. And
trackers of two versions on one cluster."""

import asyncio
import shutil
from pathlib import Path

import pytest

import tracker as package
from loadtest.cluster import cluster
from loadtest.servers import OPENSSL, SYSTEM_REDIS
from loadtest.trackers import RunningTracker
from tests.e2e.conftest import StartTracker
from tests.e2e.test_cluster import announced_over_udp, urls
from tests.e2e.test_udp import udp_url
from tests.store.client.test_cluster import PATIENCE_SECONDS, replicated
from tests.waiting import eventually, until
from tests.workers.test_webhooks import SECRET, serving
from tracker.store.schema.keys import shard_prefixes

PREFIXES = shard_prefixes("t:", 4)

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]


def joined(tracker: RunningTracker, shard: int, number: int) -> bool:
    reply = tracker.announce(
        info_hash=f"%{shard:02x}" + "%00" * 19, peer_id=f"-TR4000-{number:012}", port=str(7000 + number)
    )
    return b"complete" in reply


async def test_http_udp_and_webhooks_go_on_after_a_failover_over_tls(start_tracker: StartTracker) -> None:
    if SYSTEM_REDIS is None or OPENSSL is None:
        pytest.skip("no redis-server with TLS on this system")
    with cluster(binary="redis", tls=True) as nodes:
        main = nodes.primary("t:{main}:")
        replica = await asyncio.to_thread(nodes.start_replica, main)
        async with serving() as receiver:
            tracker = await asyncio.to_thread(
                start_tracker,
                TRACKER_REDIS__URL=nodes.url,
                TRACKER_REDIS__TLS_CA_FILE=str(nodes.ca_file),
                TRACKER_REDIS__SHARDS="4",
                TRACKER_CHANGES__MAX_ENTRIES="1000",
                TRACKER_CHANGES__WEBHOOK_URLS=receiver.url,
                TRACKER_CHANGES__WEBHOOK_SECRET=SECRET,
            )

            async def join_all(number: int) -> None:
                for shard in range(4):
                    await eventually(
                        lambda shard=shard: asyncio.to_thread(joined, tracker, shard, number),  # type: ignore[misc]
                        PATIENCE_SECONDS,
                    )
                    await eventually(
                        lambda shard=shard: asyncio.to_thread(announced_over_udp, udp_url(tracker), shard),  # type: ignore[misc]
                        PATIENCE_SECONDS,
                    )

            def delivered(number: int) -> bool:
                wanted = f"-TR4000-{number:012}".encode().hex()
                return [change["peer_id"] for change in receiver.accepted].count(wanted) == 4

            await join_all(1)
            await eventually(lambda: delivered(1), PATIENCE_SECONDS)
            await asyncio.to_thread(until, lambda: replicated(main), PATIENCE_SECONDS)
            main.kill()
            await join_all(2)
            await eventually(lambda: delivered(2), PATIENCE_SECONDS)
            assert b"role:master" in replica.ask("INFO", "replication")
            assert not any(receiver.gaps)


def other_version(folder: Path) -> Path:
    """A copy of the package with the next version number, and an announce script with another text."""
    copy = Path(shutil.copytree(Path(package.__file__).parent, folder / "tracker"))
    for path, old, new in (
        (copy / "__init__.py", f'__version__ = "{package.__version__}"', '__version__ = "1.0.99"'),
        (copy / "store" / "lua" / "announce" / "announce.lua", "\nlocal P, ", "\ndo end\nlocal P, "),
    ):
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
    return folder


def test_trackers_of_two_versions_serve_from_one_cluster(start_tracker: StartTracker, tmp_path: Path) -> None:
    """Within one layout, as during a rolling upgrade."""
    (folder := tmp_path / "other").mkdir()
    with cluster() as nodes:
        settings = {"TRACKER_REDIS__URL": urls(nodes), "TRACKER_REDIS__SHARDS": "4"}
        old = start_tracker("old", **settings)
        new = start_tracker("new", PYTHONPATH=str(other_version(folder)), **settings)
        assert "1.0.99" in new.banner and "1.0.99" not in old.banner
        for number in range(40):
            assert joined((old, new)[number % 2], number // 2 % 4, number)
        for shard, prefix in enumerate(PREFIXES):
            assert int(nodes.primary(prefix).ask("GET", f"{prefix}stats:seeders")) == 10, shard
        new.kill()
        assert joined(old, 0, 99)
