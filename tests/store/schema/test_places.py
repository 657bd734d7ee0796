"""The places of keys in a store with several shards."""

import pytest

from tracker.store.schema.table import KEYS, row_of
from tracker.store.schema.table.places import NAMED_BY, PLACES, Named, Place, place_of, torrent_in, torrent_of

HASH = "ab" * 20


def test_every_row_of_the_key_table_has_a_place() -> None:
    """A new key has to be listed in places.py. tests/store/resharding copies a sample of it."""
    assert set(PLACES) == {row.pattern for row in KEYS}
    assert set(NAMED_BY) == {pattern for pattern, place in PLACES.items() if place is Place.SPLIT}


@pytest.mark.parametrize(
    ("name", "place", "torrent"),
    [
        (f"t:{HASH}", Place.TORRENT, ("ih", HASH)),
        (f"swarm:{HASH}:s4i", Place.TORRENT, ("ih", HASH)),
        (f"p:7:{HASH}", Place.TORRENT, ("tid", "7")),
        ("u:8:t:7", Place.TORRENT, ("tid", "7")),
        (f"torrents.{HASH}.countries.France.users.2026-11", Place.TORRENT, ("ih", HASH)),
        (f"hll:torrents.{HASH}.users", Place.TORRENT, ("ih", HASH)),
        ("countries.France.users", Place.TORRENT, ("", "")),
        ("countries.France.cities.torrents.users", Place.TORRENT, ("", "")),
        (f"i:unique:torrents.{HASH}", Place.TORRENT, ("ih", HASH)),
        ("i:unique:torrents:all", Place.SPLIT, None),
        ("i:unique:countries:all", Place.MAIN, None),
        ("w:proj:log", Place.MAIN, None),
    ],
)
def test_a_key_is_in_its_place(name: str, place: Place, torrent: tuple[str, str] | None) -> None:
    row = row_of(name)
    assert row is not None
    assert place_of(row, name.encode()) is place
    if torrent is not None:
        kind, found = torrent_in(row, name.encode())
        assert (kind, found.decode()) == torrent


@pytest.mark.parametrize(
    ("named", "entry", "torrent"),
    [
        ("tid", b"7", ("tid", b"7")),
        ("ih", b"name\t" + HASH.encode(), ("ih", HASH.encode())),
        ("uid:tid", b"8:7", ("tid", b"7")),
        ("due", b":" * 20 + b"7", ("tid", b"7")),
    ],
)
def test_an_entry_names_its_torrent(named: Named, entry: bytes, torrent: tuple[str, bytes]) -> None:
    assert torrent_of(named, entry) == torrent
