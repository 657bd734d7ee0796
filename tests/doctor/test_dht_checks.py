"""D22: the doctor names what is wrong with the node of the DHT."""

from typing import Any

import pytest

from tests.store.dht.harness import STATUS, status
from tests.store.harness import START, Store
from tracker.doctor import Finding
from tracker.doctor.settings_checks import check_dht_node, check_dht_settings
from tracker.settings.background import DhtSettings, ProbeSettings
from tracker.settings.model import Settings
from tracker.settings.public import UserSettings
from tracker.store.dht.nodes import NodeStatus
from tracker.store.dht.torrents import Participation

ON = Settings(dht=DhtSettings(enabled=True, name=STATUS.name))


async def node_findings(store: Store, shown: NodeStatus | None, settings: Settings = ON) -> list[Finding]:
    if shown is not None:
        await store.dht_nodes.save_status(shown)
    return [finding async for finding in check_dht_node(store.dht_nodes, settings, START + 10)]


@pytest.mark.parametrize(
    ("shown", "level", "text", "remedy"),
    [
        (None, "ok", "has not saved its status yet", ""),
        (STATUS, "ok", "82 nodes over IPv4, 0 over IPv6", ""),
        (status(last_answer=None), "warning", "since its start", "open its UDP port in the firewall"),
        (status(last_answer=START - 290), "warning", "for 5 minutes", "connection and firewall"),
        (status(buckets={4: {}}), "warning", "it knows none", "TRACKER_DHT__PRIVATE_ADDRESSES=true"),
        (status(saved=START - 7200), "warning", "last ran 2 hours ago", "start the tracker"),
    ],
)
async def test_the_state_of_the_node_is_named(
    store: Store, shown: NodeStatus | None, level: str, text: str, remedy: str
) -> None:
    found = (await node_findings(store, shown))[0]
    assert (found.level, found.subject) == (level, "dht")
    assert text in found.text and remedy in found.remedy


async def test_torrents_that_take_part_are_counted(store: Store) -> None:
    assert (await node_findings(store, STATUS))[1] == Finding(
        "warning",
        "dht torrents",
        "1 of 40 registered torrents take part",
        "set TRACKER_DHT__TORRENTS=all to include torrents of unknown privacy",
    )
    found = await node_findings(store, status(participation=Participation(40, 40, 30)))
    assert (found[1].level, found[1].remedy) == ("ok", "")
    assert len(await node_findings(store, status(participation=None))) == 1


async def test_without_a_node_nothing_is_checked(store: Store) -> None:
    assert await node_findings(store, STATUS, Settings()) == []
    assert list(check_dht_settings(Settings())) == []


def test_required_users_and_all_ipv6_addresses_and_no_nodes_to_begin_with_are_named() -> None:
    settings = Settings(dht=DhtSettings(enabled=True), users=UserSettings(private="required"))
    assert [finding.text.split(":")[0] for finding in check_dht_settings(settings)] == [
        "the node of the DHT runs while users are required",
        "the node of the DHT listens on all IPv6 addresses",
        "no node of the DHT to begin with is named",
    ]
    dht = DhtSettings(enabled=True, listen=("[2001:db8::1]:6881",), bootstrap=("192.0.2.1:6881",))
    assert list(check_dht_settings(Settings(dht=dht))) == []


def test_handing_out_peers_that_may_not_be_checked_is_named() -> None:
    def texts(**changes: Any) -> list[str]:
        dht = DhtSettings(enabled=True, give_peers=True)
        settings = Settings(dht=dht).model_copy(update=changes)
        return [finding.text for finding in check_dht_settings(settings) if finding.level == "warning"]

    assert any("no peer of the DHT is handed out" in text for text in texts())
    for changes in (
        {"probe": ProbeSettings(enabled=True)},
        {"dht": DhtSettings(enabled=True, give_peers=True, verify_peers=False)},
    ):
        assert not any("handed out" in text for text in texts(**changes))
