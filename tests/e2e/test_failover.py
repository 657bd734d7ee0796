"""A tracker on a cluster whose main store fails over: with peers over UDP, with webhooks, and over TLS. And trackers of
two versions on one cluster."""

import asyncio
import shutil
from functools import partial
from itertools import product
from pathlib import Path

import pytest

import tracker as package
from loadtest.cluster import Cluster, cluster
from loadtest.servers import OPENSSL, SYSTEM_REDIS
from loadtest.trackers import RunningTracker
from tests.e2e.conftest import StartTracker
from tests.e2e.test_cluster import announced_over_udp, urls
from tests.e2e.test_udp import udp_url
from tests.store.client.test_cluster import PATIENCE_SECONDS, until_replicated
from tests.waiting import eventually
from tests.workers.test_webhooks import SECRET, serving
from tracker.store.schema.keys import shard_prefixes

PREFIXES = shard_prefixes("t:", 4)

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]


def joined(tracker: RunningTracker, shard: int, number: int, event: str = "started") -> bool:
    reply = tracker.announce(
        info_hash=f"%{shard:02x}" + "%00" * 19, peer_id=f"-TR4000-{number:012}", port=str(7000 + number), event=event
    )
    return b"complete" in reply


def joined_over_udp(tracker: RunningTracker, shard: int, number: int) -> bool:
    return announced_over_udp(udp_url(tracker), shard, number)


@pytest.mark.parametrize("way", ["UDP", "webhooks", "TLS"])
async def test_after_a_failover_the_store_has_what_was_answered(start_tracker: StartTracker, way: str) -> None:
    secure, join = way == "TLS", joined_over_udp if way == "UDP" else joined
    if secure and (SYSTEM_REDIS is None or OPENSSL is None):
        pytest.skip("no redis-server with TLS on this system")
    with cluster(binary="redis" if secure else "valkey", tls=secure) as nodes:
        main = nodes.primary("t:{main}:")
        replica = await asyncio.to_thread(nodes.start_replica, main)
        async with serving() as receiver:
            settings = {"TRACKER_REDIS__URL": nodes.url if secure else urls(nodes), "TRACKER_REDIS__SHARDS": "4"}
            if secure:
                settings["TRACKER_REDIS__TLS_CA_FILE"] = str(nodes.ca_file)
            if way == "webhooks":
                settings["TRACKER_CHANGES__MAX_ENTRIES"] = "1000"
                settings["TRACKER_CHANGES__WEBHOOK_URLS"] = receiver.url
                settings["TRACKER_CHANGES__WEBHOOK_SECRET"] = SECRET
            tracker = await asyncio.to_thread(start_tracker, **settings)

            async def join_all(*numbers: int) -> None:
                for number, shard in product(numbers, range(4)):
                    await eventually(partial(asyncio.to_thread, join, tracker, shard, number), PATIENCE_SECONDS)

            def delivered(*numbers: int) -> bool:
                """A receiver may get a change twice."""
                wanted = {(f"-TR4000-{number:012}".encode().hex(), shard) for number in numbers for shard in range(4)}
                return {(each["peer_id"], int(each["info_hash"][:2], 16)) for each in receiver.accepted} == wanted

            await join_all(*range(5))
            if way == "webhooks":
                await eventually(lambda: delivered(*range(5)), PATIENCE_SECONDS)
            await asyncio.to_thread(until_replicated, main)
            main.kill()
            await join_all(*range(5, 10))
            if way == "webhooks":
                await eventually(lambda: delivered(*range(10)), PATIENCE_SECONDS)
                assert not any(receiver.gaps)
            assert b"role:master" in replica.ask("INFO", "replication")
            assert seeders(nodes) == [10] * 4


def seeders(nodes: Cluster) -> list[int]:
    """Of each shard."""
    return [int(nodes.primary(prefix).ask("GET", f"{prefix}stats:seeders")) for prefix in PREFIXES]


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
        assert seeders(nodes) == [10] * 4
        for number in range(40):  # each goes on at the other one, and half of them stop
            event = "stopped" if number // 8 % 2 == 0 else ""
            assert joined((new, old)[number % 2], number // 2 % 4, number, event)
        assert seeders(nodes) == [4] * 4
        new.kill()
        assert joined(old, 0, 99)
