import pytest

from tests.store.harness import Store, info_hash, update
from tracker.bittorrent import Endpoint, PeerId
from tracker.geoip import GeoIP
from tracker.operations.peers import format_prefix, parse_prefix, peer_view, peer_views
from tracker.store.swarms.connect_checks import ConnectCheck
from tracker.store.torrents.torrents import Peer


async def test_a_peer_view_has_readable_fields(store: Store) -> None:
    peer_id = PeerId(b"-qB5020-" + bytes(12))
    await store.announce(update(1, peer_id=peer_id, uploaded=7, bytes_left=2**53 - 1))
    torrent = await store.torrents.get(info_hash(1))
    assert torrent is not None
    _, (peer,) = await store.torrents.peers(torrent)
    (view,) = await peer_views(store, [peer], GeoIP(None))
    assert view.peer_id == peer_id.hex() and view.client == "qBittorrent 5.0.2"
    assert view.endpoints == ("11.0.0.1:6881",)
    assert (view.country, view.user_id, view.seeding, view.bytes_left) == ("", "", False, 2**53 - 1)
    assert view.last_announce == int(store.clock.now) and view.connectable is None


@pytest.mark.parametrize(
    ("results", "connectable"),
    [((True, False), True), ((False, True), True), ((None, False), False), ((None, None), None), ((), None)],
)
def test_a_peer_is_connectable_at_any_of_its_endpoints(
    results: tuple[bool | None, ...], connectable: bool | None
) -> None:
    endpoints = tuple(Endpoint(bytes(size)) for size in (6, 18))
    checks = {endpoint: ConnectCheck(result, 5) for endpoint, result in zip(endpoints, results, strict=False)}
    view = peer_view(Peer(PeerId(bytes(20)), endpoints, False, {}), GeoIP(None), checks)
    assert view.connectable is connectable


def test_invalid_numbers_in_the_store_count_as_0() -> None:
    fields = {"uploaded": "9" * 5000, "downloaded": "nan", "left": "x", "speed_up": "inf", "user_id": "7"}
    peer = Peer(PeerId(bytes(20)), (Endpoint(b"\x01\x02\x03\x04\0\x05"),), False, fields)
    view = peer_view(peer, GeoIP(None), {})
    assert (view.uploaded, view.downloaded, view.bytes_left, view.upload_speed) == (0, 0, 0, 0)


@pytest.mark.parametrize("prefix", [b"-TR40", b"\0\xff%41 /", bytes(range(20))])
def test_a_formatted_prefix_parses_to_the_same_bytes(prefix: bytes) -> None:
    assert parse_prefix(format_prefix(prefix)) == prefix
