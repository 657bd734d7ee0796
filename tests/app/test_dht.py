"""D14, D15, D18: the node of the DHT of a whole tracker."""

import re
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests import commands
from tests.app.conftest import StartTracker
from tests.app.test_udp import Client, udp_address
from tests.frontends.udp.harness import announce_packet
from tests.store.harness import Store, running
from tests.waiting import until
from tracker.app.dht import DhtRuntime, build_nodes, resolve
from tracker.bittorrent import Address, Endpoint, InfoHash
from tracker.dht.node_id import fits_address
from tracker.errors import Postponed
from tracker.settings.background import DhtSettings
from tracker.store.dht.nodes import SavedNode
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.wire.krpc import (
    AnnouncePeer,
    Answer,
    GetPeers,
    NodeId,
    Ping,
    Query,
    SampleInfohashes,
    encode_query,
    parse_message,
)

ON = {"TRACKER_DHT__ENABLED": "true", "TRACKER_DHT__LISTEN": "127.0.0.1:0"}
ASKER = NodeId(b"a" * 20)
HASH = InfoHash(b"\x01" * 20)


@contextmanager
def asker(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        found.settimeout(20)
        found.connect((host, int(port)))
        yield found


def asked(to: socket.socket, arguments: Ping | GetPeers | SampleInfohashes | AnnouncePeer) -> Answer:
    to.send(encode_query(Query(b"tt", ASKER, arguments)))
    answer = parse_message(to.recv(2048))
    assert isinstance(answer, Answer) and answer.transaction == b"tt"
    return answer


def dht_address(banner: str) -> str:
    found = re.search(r"^ +dht +(127\.0\.0\.1:\d+)$", banner, re.MULTILINE)
    assert found, banner
    return found[1]


@pytest.mark.parametrize(("torrents", "values"), [("all", 1), ("public", 0)])
def test_a_tracker_answers_from_its_swarms(start_tracker: StartTracker, torrents: str, values: int) -> None:
    """A torrent that registered itself is of unknown privacy."""
    tracker = start_tracker(**ON, TRACKER_DHT__TORRENTS=torrents)
    tracker.announce()
    with asker(dht_address(tracker.banner)) as to:
        assert asked(to, Ping()).external is not None
        answer = asked(to, GetPeers(HASH))
        assert len(answer.values) == values and bool(answer.token) == (torrents == "all")
    assert tracker.end() == 0


def test_any_hash_that_is_not_known_as_private_is_kept_within_bounds(
    start_tracker: StartTracker, tmp_path: Path
) -> None:
    tracker = start_tracker(
        **ON, TRACKER_DHT__TORRENTS="any", TRACKER_DHT__ADDRESS_BURST="1000", TRACKER_DHT__BUCKET_HASHES="8"
    )
    assert commands.run(tmp_path, "torrent", "add", HASH.hex()).returncode == 0
    assert commands.run(tmp_path, "torrent", "edit", HASH.hex(), "--private").returncode == 0
    with asker(dht_address(tracker.banner)) as to:
        own = asked(to, Ping()).id
        assert asked(to, GetPeers(HASH)).token is None
        far = [InfoHash(bytes((own[0] ^ 0x80, number)) + bytes(18)) for number in range(9)]
        for each in far[:8]:
            token = asked(to, GetPeers(each)).token
            assert token
            asked(to, AnnouncePeer(each, 6881, token))
            assert len(asked(to, GetPeers(each)).values) == 1
        # Farther than all of a full bucket.
        farthest = InfoHash(bytes(each ^ 0xFF for each in own))
        assert asked(to, GetPeers(farthest)).token is None
    assert tracker.end() == 0


def test_a_killed_node_answers_again_within_ten_seconds(start_tracker: StartTracker, tmp_path: Path) -> None:
    """``kill -9`` leaves its lease behind. The tracker that is started on the same host has the same name and id."""
    killed = start_tracker(**ON)
    address = dht_address(killed.banner)
    with asker(address) as to:
        own = asked(to, Ping()).id
        until(lambda: own.hex() in commands.run(tmp_path, "dht", "status").stdout)
        assert killed.end(signal.SIGKILL) == -signal.SIGKILL
        to.settimeout(0.5)

        def answers() -> bool:
            with suppress(OSError):
                return asked(to, Ping()).id == own
            return False

        assert not answers()
        start_tracker(**ON | {"TRACKER_DHT__LISTEN": address})
        until(answers, seconds=10)


def test_a_torrent_marked_private_is_hidden_within_ten_seconds(start_tracker: StartTracker, tmp_path: Path) -> None:
    """It then looks like an unknown one."""
    tracker = start_tracker(**ON, TRACKER_DHT__ADDRESS_QUERIES_SECOND="1000")
    for words in (("torrent", "add", HASH.hex()), ("torrent", "edit", HASH.hex(), "--public")):
        assert commands.run(tmp_path, *words).returncode == 0
    tracker.announce()
    with asker(dht_address(tracker.banner)) as to:
        until(lambda: len(asked(to, GetPeers(HASH)).values) == 1, poll_seconds=0.1)
        assert commands.run(tmp_path, "torrent", "edit", HASH.hex(), "--private").returncode == 0
        until(lambda: asked(to, GetPeers(HASH)).values == (), 10, poll_seconds=0.1)
        hidden, unknown = (asked(to, GetPeers(each)) for each in (HASH, InfoHash(b"\x02" * 20)))
    assert hidden == unknown and hidden.token is None
    assert tracker.end() == 0


async def test_announces_over_http_and_udp_get_peers_of_the_dht(
    start_tracker: StartTracker, redis_url: str, prefix: str
) -> None:
    """D18: and none after the switch is off again."""
    settings = {"TRACKER_REDIS__URL": redis_url, "TRACKER_REDIS__PREFIX": prefix}
    now, info_hash, given = (int(time.time()), InfoHash(bytes(range(1, 21))), Endpoint(b"\x08\x08\x08\x08\x1a\xe1"))
    query = {"info_hash": "".join(f"%{byte:02x}" for byte in info_hash), "compact": "1", "left": "5"}
    async with running(Store(redis_url, Keys(prefix), SwarmRules())) as store:
        await store.torrents.add(info_hash, {"private": "0"})
        await store.dht_torrents.give(info_hash, [given], now, now, all_torrents=False)
    for switch, incomplete in (("true", 1), ("false", 2)):
        tracker = start_tracker(**settings, TRACKER_DHT__GIVE_PEERS=switch)
        reply = tracker.announce(**query)
        assert (reply[b"complete"], reply[b"incomplete"]) == (0, incomplete)
        client = Client(udp_address(tracker))
        answer = client.ask(announce_packet(client.connect(), event=0, port=6882))
        client.close()
        handed_out = [given in endpoints(each) for each in (reply[b"peers"], answer[20:])]
        assert handed_out == [switch == "true"] * 2
        assert tracker.end() == 0


async def test_public_torrents_are_shown_to_indexers_where_a_setting_says_so(
    start_tracker: StartTracker, redis_url: str, prefix: str
) -> None:
    """D9, D15"""
    async with running(Store(redis_url, Keys(prefix), SwarmRules())) as store:
        await store.torrents.add(HASH, {"private": "0"})
        await store.torrents.add(InfoHash(b"\x02" * 20), {"private": "1"})
    tracker = start_tracker(
        **ON,
        TRACKER_REDIS__URL=redis_url,
        TRACKER_REDIS__PREFIX=prefix,
        TRACKER_DHT__SAMPLES="public",
        TRACKER_DHT__ADDRESS_QUERIES_SECOND="1000",
    )
    with asker(dht_address(tracker.banner)) as to:

        def shown() -> tuple[bytes, int]:
            samples = asked(to, SampleInfohashes(HASH)).samples
            assert samples is not None
            return samples.info_hashes, samples.total

        until(lambda: shown() != (b"", 0), poll_seconds=0.1)
        assert shown() == (HASH, 1)
    assert tracker.end() == 0


def endpoints(packed: bytes) -> list[bytes]:
    return [packed[at : at + 6] for at in range(0, len(packed), 6)]


def test_over_restarts_a_node_keeps_its_id_and_the_start_says_how_many_torrents_take_part(
    start_tracker: StartTracker,
) -> None:
    ids = []
    for settings, says in (
        (ON, "0 of 0 registered torrents take part\n"),
        (ON, "0 of 1 registered torrents take part: set TRACKER_DHT__TORRENTS=all"),
        (ON | {"TRACKER_DHT__TORRENTS": "all"}, "1 of 1 registered torrents take part\n"),
    ):
        tracker = start_tracker(**settings)
        assert says in tracker.banner
        with asker(dht_address(tracker.banner)) as to:
            ids.append(asked(to, Ping()).id)
        tracker.announce()
        assert tracker.end() == 0
    assert len(set(ids)) == 1


async def test_a_lookup_waits_while_another_tracker_runs_the_node() -> None:
    with pytest.raises(Postponed):
        await DhtRuntime().look_up({"info_hash": HASH.hex()})


def test_without_the_setting_no_node_runs(start_tracker: StartTracker) -> None:
    tracker = start_tracker(TRACKER_DHT__LISTEN="127.0.0.1:0")
    assert "dht" not in tracker.banner
    assert tracker.end() == 0


def test_the_id_of_the_last_run_is_kept_while_it_fits_the_external_address() -> None:
    saved = SavedNode({4: b"x" * 20}, {4: "192.0.2.1"})
    assert build_nodes(DhtSettings(), [4], saved, 0)[4].id == b"x" * 20
    own = build_nodes(DhtSettings(external_address=("124.31.75.21",)), [4], saved, 0)[4].id
    assert own != b"x" * 20 and fits_address(own, Address(bytes([124, 31, 75, 21])))
    assert build_nodes(DhtSettings(external_address=("124.31.75.21",)), [4], SavedNode({4: own}), 0)[4].id == own
    assert build_nodes(DhtSettings(), [4, 6], SavedNode(), 0)[6].id != own


async def test_bootstrap_nodes_are_resolved_by_family() -> None:
    assert await resolve("127.0.0.1:6881", 4) == [Endpoint(b"\x7f\0\0\1\x1a\xe1")]
    assert await resolve("127.0.0.1:6881", 6) == []
    assert await resolve("[::1]:6881", 6) == [Endpoint(bytes(15) + b"\1\x1a\xe1")]
    for no_host in ("nothing.invalid:1", "a..b:1", f"{'x' * 70}.org:1"):
        assert await resolve(no_host, 4) == []
