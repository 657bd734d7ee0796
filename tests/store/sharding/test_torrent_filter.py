"""Filters of lists of torrents: which torrents fit, and which indexes have them."""

from dataclasses import replace
from itertools import product

import pytest

from tests.store.harness import info_hash
from tracker.store.torrents.listing import TorrentFilter
from tracker.store.torrents.records import Enabled, StoredTorrent
from tracker.store.torrents.torrents import Torrent


def torrent(**fields: str) -> Torrent:
    pairs = [text.encode() for pair in fields.items() for text in pair]
    return StoredTorrent(info_hash(1), b"1", None, pairs).read()


@pytest.mark.parametrize(
    ("wanted", "fitting", "other"),
    [
        (TorrentFilter(enabled=False), torrent(enabled="0"), torrent()),
        (TorrentFilter(enabled=True), torrent(), torrent(enabled="0")),
        (TorrentFilter(enabled=True), torrent(), torrent(enabled="pending")),
        (TorrentFilter(enabled=False), torrent(enabled="0"), torrent(enabled="pending")),
        (TorrentFilter(enabled="pending"), torrent(enabled="pending"), torrent(enabled="0")),
        (TorrentFilter(private=True), torrent(private="1"), torrent()),
        (TorrentFilter(seeded=False), torrent(seeders="0"), torrent(seeders="1")),
        (TorrentFilter(name="ÉT"), torrent(name="Été 7"), torrent(name="et")),
        (TorrentFilter(name="7", private=True), torrent(name="7", private="1"), torrent(name="7")),
    ],
)
def test_a_torrent_fits_if_it_has_all_that_is_wanted(wanted: TorrentFilter, fitting: Torrent, other: Torrent) -> None:
    assert wanted.is_selective and wanted.fits(fitting) and not wanted.fits(other)
    assert TorrentFilter().fits(fitting) and TorrentFilter().fits(other)


def test_a_search_is_ordered_by_name_upwards() -> None:
    wanted = TorrentFilter(descending=True)
    assert wanted.is_descending and not replace(wanted, name="a").is_descending
    assert not wanted.is_selective and wanted.flags == 0


def test_no_index_has_enabled_or_public_torrents() -> None:
    """Each other property has one."""
    both: tuple[bool | None, ...] = (None, False, True)
    states: tuple[Enabled | None, ...] = (*both, "pending")
    for enabled, private, seeded in product(states, both, both):
        wanted = TorrentFilter(enabled=enabled, private=private, seeded=seeded)
        orders = [each.order for each in wanted.conditions if each.listed]
        assert orders == ["added"] * ((enabled in (False, "pending")) + (private is True)) + ["seeders"] * (
            seeded is not None
        )
        assert wanted.flags == sum(flag is not None for flag in (enabled, private, seeded))
