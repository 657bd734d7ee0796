"""The doctor's checks of sentinels and replicas."""

import pytest
from pydantic import SecretStr

from loadtest.cluster import cluster
from loadtest.sentinels import failover
from tracker.doctor import Finding
from tracker.doctor.checks import run_checks
from tracker.doctor.server_checks import check_isolation, check_replicas, check_required
from tracker.runtime.store import open_store
from tracker.settings.model import RedisSettings, Settings
from tracker.settings.public import HttpSettings
from tracker.store.schema.keys import shard_prefixes
from tracker.store.sharding.shards import named


async def findings(url: str, prefix: str = "t:") -> dict[str, Finding]:
    redis = RedisSettings(url=SecretStr(url), prefix=prefix, connect_timeout_seconds=5)
    settings = Settings(redis=redis, http=HttpSettings(listen=("127.0.0.1:0",)))
    async with open_store(settings) as store:
        return {finding.subject: finding async for finding in run_checks(store, settings)}


async def test_disagreeing_sentinels_and_missing_replicas_are_reported() -> None:
    with failover() as group:
        master, replica = group.servers
        found = await findings(group.url)
        assert f"1 report 127.0.0.1:{master.port} as the master" in found["sentinels"].text
        assert found["role"].level == "ok"
        assert found["replicas"] == Finding("ok", "replicas", "1 connected")

        found = await findings(group.url.replace("//", "//127.0.0.1:1,", 1))
        assert found["sentinels"].level == "warning"
        assert found["sentinels"].text.startswith(f"1 of 2 report 127.0.0.1:{master.port} as the master (127.0.0.1:1: ")

        with replica.client() as client:
            client.replicaof("NO", "ONE")
        found = await findings(group.url)
        assert (found["replicas"].level, "start one" in found["replicas"].remedy) == ("wrong", True)


@pytest.mark.parametrize(
    ("replicas", "required", "level"), [(1, "0", "ok"), (2, "0", "warning"), (2, "1", "ok"), (0, "1", "wrong")]
)
def test_a_master_with_two_replicas_has_to_require_one(replicas: int, required: str, level: str) -> None:
    """A master with one replica must work alone. A master with two that reaches neither is cut off itself."""
    found = check_replicas(replicas, required)
    assert found.level == level
    assert bool(found.remedy) == (level != "ok")


@pytest.mark.parametrize(
    ("replicas", "required", "level"),
    [(0, 0, None), (0, 1, "wrong"), (1, 0, None), (1, 1, "warning"), (1, 2, "wrong"), (2, 1, None)],
)
def test_a_node_and_the_one_after_it_need_enough_replicas(replicas: int, required: int, level: str | None) -> None:
    found = check_required(replicas, required)
    assert (found and found.level) == level
    if found:
        assert ("after a failover" in found.text) == (level == "warning") and found.remedy


@pytest.mark.parametrize(
    ("replicas", "required", "max_lag", "text"),
    [
        (0, 0, 10, ""),
        (1, 0, 10, ""),
        (1, 1, 10, ""),
        (2, 1, 10, ""),
        (2, 0, 10, "for cluster-node-timeout and 2 s"),
        (2, 1, 60, "min-replicas-max-lag is 60"),
        (1, 1, 0, "min-replicas-max-lag is 0"),
    ],
)
def test_a_node_that_is_cut_off_has_to_refuse_announces(replicas: int, required: int, max_lag: int, text: str) -> None:
    """With one replica it would refuse them while that is restarted."""
    found = check_isolation(replicas, required, max_lag)
    assert (found is None) == (text == "")
    if found:
        assert text in found.text and found.level == "warning" and "min-replicas-max-lag" in found.remedy


async def test_a_node_without_replica_and_a_strict_cluster_are_reported() -> None:
    with cluster(primaries=1) as group:
        (node,) = group.nodes
        found = await findings(group.url, "t:{t}:")
        assert found["cluster"].level == "ok"
        assert found["cluster"].text == f"127.0.0.1:{node.port} serves the keys; nodes known: 1"
        assert found["replicas"].level == "warning"
        assert "coverage" not in found
        assert found["node timeout"].text.startswith("cluster-node-timeout is 2000 ms")
        group.be_patient()
        assert "node timeout" not in await findings(group.url, "t:{t}:")
        node.ask("CONFIG", "SET", "cluster-require-full-coverage", "yes")
        assert (await findings(group.url, "t:{t}:"))["coverage"].level == "warning"


async def test_settings_that_prevent_a_failover_are_reported() -> None:
    with cluster(primaries=1) as group:
        (node,) = group.nodes
        group.start_replica(node)
        found = await findings(group.url, "t:{t}:")
        assert found["primaries"].text.startswith("nodes with slots: 1; ")
        assert found.keys().isdisjoint({"replicas", "failover", "masterauth"})
        node.ask("CONFIG", "SET", "cluster-replica-no-failover", "yes", "min-replicas-to-write", "1")
        node.ask("CONFIG", "SET", "requirepass", "secret")
        signed_in = group.url.replace("//", "//:secret@")
        found = await findings(signed_in, "t:{t}:")
        for subject, setting in (
            ("failover", "cluster-replica-no-failover is yes"),
            ("replicas", "min-replicas-to-write is 1 with 1 connected"),
            ("masterauth", "requirepass is set and masterauth is not"),
        ):
            assert found[subject].level == "warning" and found[subject].text.startswith(setting)
            assert "secret" not in str(found[subject])


async def test_a_master_that_could_not_return_as_a_replica_is_reported() -> None:
    with failover() as group:
        assert "masterauth" not in await findings(group.url)
        with group.servers[0].client() as client, client.pipeline() as commands:
            commands.execute_command("CONFIG", "SET", "requirepass", "secret")
            commands.execute_command("ACL", "SETUSER", "default", "nopass")  # for the sentinels
            commands.execute()
        assert (await findings(group.url))["masterauth"].level == "warning"


@pytest.mark.slow
async def test_each_node_and_unavailable_shards_are_named() -> None:
    """Home's node and the others; a wrong setting of any of them."""
    with cluster() as group:
        group.be_patient()
        prefixes = shard_prefixes("t:", 4)
        places = {number: group.primary(prefix) for number, prefix in enumerate(prefixes)}
        main = group.primary("t:{main}:")
        node, other = (each for each in group.nodes if each is not main)
        served = {each.port: named(n for n, place in places.items() if place is each) for each in group.nodes}
        other.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        found = await every_finding(group.url)
        assert f"127.0.0.1:{other.port}: allkeys-lru evicts" in texts(found, "eviction", "wrong")
        assert texts(found, "shards", "ok") == "all 4 are served"
        node.kill()
        found = await every_finding(main.tcp_url)
        unavailable = f"unavailable: {served[node.port]} of 127.0.0.1:{node.port} (the node does not answer)"
        assert texts(found, "shards", "wrong") == f"{unavailable}; their torrents are refused"


@pytest.mark.slow
async def test_everything_else_is_checked_without_a_node_and_without_a_majority() -> None:
    """Each node in turn, also that of the main store."""
    with cluster() as group:
        main = group.primary("t:{main}:")
        replica, primaries = group.start_replica(main), group.nodes[:3]
        url = f"redis://{','.join(f'127.0.0.1:{node.port}' for node in primaries)}/0"
        shown = texts(await every_finding(url), "node", "ok")
        assert f"127.0.0.1:{replica.port}, a replica of 127.0.0.1:{main.port}, answers, 0 bytes behind" in shown
        assert shown.count("a primary with the slots") == 3 and "(main store, shard" in shown
        replica.kill()  # no failover
        for node in primaries:
            node.stop()
            found = await every_finding(url)
            assert f"127.0.0.1:{node.port}, a primary with the slots" in texts(found, "node", "wrong")
            assert texts(found, "node", "ok").count(", answers") == 2
            assert texts(found, "interval", "ok") and not texts(found, "majority", "wrong")
            assert ("not checked: layout, server" in texts(found, "main store", "wrong")) == (node is main)
            node.start()
            group.until(lambda: all(group._is_ready(each) for each in primaries))
        left, *stopped = primaries
        for node in stopped:
            node.stop()
        group.until(lambda: b"cluster_state:fail" in left.ask("CLUSTER", "INFO"))
        found = await every_finding(url)
        cause = "no majority: 1 of 3 primaries answers"
        assert texts(found, "majority", "wrong") == cause
        assert texts(found, "main store", "wrong").startswith(f"{cause}; not checked: ")
        assert all("TAKEOVER" in each.remedy for each in found if each.subject == "majority")
        assert texts(found, "interval", "ok")


async def every_finding(url: str) -> list[Finding]:
    redis = RedisSettings(url=SecretStr(url), shards=4, connect_timeout_seconds=5)
    settings = Settings(redis=redis, http=HttpSettings(listen=("127.0.0.1:0",)))
    async with open_store(settings, checked=False) as store:
        return [finding async for finding in run_checks(store, settings)]


def texts(found: list[Finding], subject: str, level: str) -> str:
    return " · ".join(each.text for each in found if (each.subject, each.level) == (subject, level))
