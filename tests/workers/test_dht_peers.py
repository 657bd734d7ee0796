"""D18: which peers of the DHT are stored to be handed out, and how they are checked."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import pytest

from tests.dht.test_node import made
from tests.store.harness import START, Store, dht_peers_key, info_hash, update
from tests.workers.prober.peers import greet, loopback, peer
from tests.workers.test_prober import Probes
from tracker.bittorrent import Endpoint, InfoHash
from tracker.dht.lookup import LookupResult
from tracker.settings.background import DhtSettings
from tracker.store.dht.torrents import GIVE_SECONDS
from tracker.wire.endpoint import pack_address, pack_endpoint
from tracker.workers.dht_lookups import MAX_GIVEN, MAX_PROBED, LookupWorker
from tracker.workers.prober import is_target

TORRENT = info_hash(1)
ONE, TWO = frozenset({b"\x0b\x01"}), frozenset({b"\x0b\x01", b"\x0b\x02"})
"""Networks of the nodes that named a peer."""
VERIFIED = DhtSettings(give_peers=True)
UNVERIFIED = DhtSettings(give_peers=True, verify_peers=False)


def routable(number: int, port: int = 6881) -> Endpoint:
    return Endpoint(b"\x08\x08" + number.to_bytes(2, "big") + port.to_bytes(2, "big"))


class Collector(LookupWorker):
    """Its lookups in the DHT find what ``found`` says."""

    found: Callable[[int, InfoHash], Awaitable[LookupResult | None]]

    async def find(self, family: int, info_hash: InfoHash, *, scrape: bool = False) -> LookupResult | None:
        assert not scrape
        return await self.found(family, info_hash)


def collector(store: Store, settings: DhtSettings, probes: Probes, families: Sequence[int] = ()) -> Collector:
    return Collector(
        store.dht_torrents,
        {family: made(family) for family in families},
        probes.prober,
        lambda: settings,
        count=lambda outcome: None,
        clock=lambda: START + probes.clock.now,
        timer=probes.clock,
        rng=random.Random(1),
    )


async def stored(
    store: Store,
    found: dict[Endpoint, frozenset[bytes]],
    settings: DhtSettings = UNVERIFIED,
    probes: Probes | None = None,
    families: Sequence[int] = (4,),
) -> list[Endpoint]:
    """What announces may get after a lookup found these peers."""

    async def find(family: int, torrent: InfoHash) -> LookupResult:
        del torrent
        length = 6 if family == 4 else 18
        peers = {endpoint: networks for endpoint, networks in found.items() if len(endpoint) == length}
        return LookupResult(peers, 0.0, 0.0, 8, ())

    collects = collector(store, settings, probes or Probes(targets=is_target), families)
    collects.found = find
    await collects.collect(TORRENT)
    packed = [await store.redis.get(dht_peers_key(store.keys, TORRENT, family)) or b"" for family in (4, 6)]
    return [
        Endpoint(each[at : at + length])
        for each, length in zip(packed, (6, 18), strict=True)
        for at in range(0, len(each), length)
    ]


@pytest.fixture(autouse=True)
async def public_torrent(store: Store) -> None:
    await store.torrents.add(TORRENT, {"private": "0"})


async def test_only_peers_that_answer_a_handshake_for_the_torrent_are_handed_out(store: Store) -> None:
    async def honest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await greet(reader, writer)

    async def of_another_torrent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await reader.readexactly(68)
        writer.write(received[:28] + bytes(20) + b"-XX0001-another peer")

    async def no_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(68)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(68)

    for behave, handed_out in ((honest, True), (of_another_torrent, False), (no_client, False), (silent, False)):
        await store.redis.delete(dht_peers_key(store.keys, TORRENT, 4))
        async with peer(behave) as endpoint:
            expected = [endpoint] if handed_out else []
            assert await stored(store, {endpoint: ONE}, VERIFIED, Probes()) == expected
    assert await stored(store, {loopback(1024): TWO}, VERIFIED, Probes()) == []  # nobody is there


async def test_without_probes_two_networks_must_name_a_peer(store: Store) -> None:
    """A single node may name a victim."""
    found = {routable(1): ONE, routable(2): TWO, routable(3): frozenset[bytes]()}
    assert await stored(store, found) == [routable(2)]


@pytest.mark.parametrize("settings", [VERIFIED, UNVERIFIED])
@pytest.mark.parametrize(
    ("address", "port"),
    [
        *((text, 6881) for text in ("10.0.0.1", "127.0.0.1", "0.0.0.0", "192.0.2.1", "224.0.0.1", "100.64.0.1")),
        *((text, 6881) for text in ("::1", "fe80::1", "fc00::1", "2001:db8::1", "ff02::1", "2002:808:808::1")),
        *(("8.8.8.8", port) for port in (0, 22, 53, 80, 443, 1023)),
        ("2a00::1", 53),
    ],
)
async def test_poison_is_neither_contacted_nor_handed_out(
    store: Store, settings: DhtSettings, address: str, port: int
) -> None:
    packed = pack_address(address)
    assert packed is not None
    probes = Probes(targets=is_target)
    found = {pack_endpoint(packed, port): TWO}
    assert await stored(store, found, settings, probes, (4, 6)) == []
    assert probes.counted == []


async def test_peers_of_both_families_are_kept_apart(store: Store) -> None:
    six = pack_address("2a00::1")
    assert six is not None
    found = {routable(1): TWO, pack_endpoint(six, 6881): TWO}
    assert await stored(store, found, families=(4, 6)) == list(found)


async def test_one_peer_of_an_address_and_first_those_that_most_networks_named(store: Store) -> None:
    """So that nobody makes the tracker connect to all ports of a host."""
    found = {routable(1, port): TWO for port in range(2000, 2100)}
    assert len(await stored(store, found)) == 1
    many = {routable(number): ONE for number in range(100)}
    first = {routable(number): TWO for number in (7, 77)}
    picked = collector(store, VERIFIED, Probes(targets=is_target)).candidates(many | first, ())
    assert set(picked[:2]) == set(first) and set(picked) == set(many)


async def test_no_more_than_20_are_stored_and_no_more_than_40_probed(store: Store) -> None:
    assert len(await stored(store, {routable(number): TWO for number in range(100)})) == MAX_GIVEN
    probes = Probes()
    began = probes.clock.now
    nobody = {Endpoint(b"\x7f\x01" + number.to_bytes(2, "big") + b"\x04\x00"): TWO for number in range(100)}
    await store.redis.delete(dht_peers_key(store.keys, TORRENT, 4))
    assert await stored(store, nobody, VERIFIED, probes) == []
    assert probes.counted == ["probes.unreachable"] * MAX_PROBED
    assert probes.clock.now - began >= (MAX_PROBED - 1) / 2, "two a second"


async def test_nothing_is_sought_for_a_swarm_with_enough_peers_or_a_torrent_without_part(store: Store) -> None:
    for number in range(UNVERIFIED.give_below - 1):
        await store.announce(update(number, "s"))
    assert await stored(store, {routable(1): TWO}) == [routable(1)]
    asked = Counter[int]()

    async def find(family: int, torrent: InfoHash) -> None:
        assert torrent == TORRENT
        asked.update([family])

    collects = collector(store, UNVERIFIED, Probes(), (4, 6))
    collects.found = find
    await collects.collect(TORRENT)
    assert asked == {4: 1, 6: 1}
    await store.announce(update(50, "s"))
    await collects.collect(TORRENT)
    await store.announce(update(50, "x"))
    await store.torrents.edit(TORRENT, {"private": "1"})
    await collects.collect(TORRENT)
    assert asked == {4: 1, 6: 1}


async def test_a_torrent_made_private_meanwhile_is_probed_for_no_longer(store: Store) -> None:
    """It is made private by the first one that is probed; at most ten are probed at once."""
    probes = Probes()

    async def honest(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await store.torrents.edit(TORRENT, {"private": "1"})
        await greet(reader, writer)

    async with peer(honest) as endpoint:
        found = {endpoint: TWO}
        found |= {Endpoint(b"\x7f\x01\1" + bytes((number,)) + b"\x04\0"): ONE for number in range(1, 40)}
        assert await stored(store, found, VERIFIED, probes) == []
    assert 0 < len(probes.counted) <= 10


async def test_peers_of_the_swarm_are_not_probed(store: Store) -> None:
    await store.announce(update(1, "s", endpoint=routable(1)))
    assert await stored(store, {routable(1): TWO, routable(2): TWO}) == [routable(2)]


async def test_the_time_of_the_check_counts(store: Store) -> None:
    """They are handed out for 30 minutes after the lookup, not after the check."""
    probes = Probes()
    began = int(START + probes.clock.now)

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        probes.clock.now += 600
        await greet(reader, writer)

    async with peer(slow) as endpoint:
        assert await stored(store, {endpoint: ONE}, VERIFIED, probes) == [endpoint]
    assert int((await store.torrent(TORRENT))["dht"]) == began + GIVE_SECONDS
    assert 0 < await store.redis.ttl(dht_peers_key(store.keys, TORRENT, 4)) <= GIVE_SECONDS - 599


async def test_peers_are_collected_only_where_they_can_be_checked(store: Store) -> None:
    on, off = Probes(), Probes(lambda: False)
    assert collector(store, VERIFIED, on).gives_peers
    assert not collector(store, VERIFIED, off).gives_peers
    assert collector(store, UNVERIFIED, off).gives_peers
    assert not collector(store, DhtSettings(), on).gives_peers
