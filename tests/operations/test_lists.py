"""Lists of torrents."""

import pytest

from tests.store.harness import Store, info_hash
from tracker.operations import lists
from tracker.operations.lists import find_torrents, listed_torrents
from tracker.store.torrents.filter import TorrentFilter


@pytest.fixture
async def filled(store: Store) -> Store:
    for number in range(1, 6):
        await store.torrents.add(info_hash(number), {"name": f"film {number}", "private": str(number % 2)})
        await store.users.add(str(number))
    return store


async def test_a_text_is_part_of_a_name_or_without_a_filter_the_start_of_an_info_hash(filled: Store) -> None:
    async def numbers(wanted: TorrentFilter, text: str) -> list[str]:
        return [each.name[-1] for each in (await find_torrents(filled, wanted, text)).torrents]

    assert await numbers(TorrentFilter(), info_hash(3).hex()) == ["3"]
    assert await numbers(TorrentFilter(private=True), info_hash(3).hex()) == []
    assert await numbers(TorrentFilter(private=True), "FILM") == ["1", "3", "5"]
    assert await numbers(TorrentFilter("added", private=False), "") == ["4", "2"]


@pytest.mark.parametrize("page", [1, 2, 500])
async def test_a_list_is_read_in_pages_up_to_a_limit(filled: Store, monkeypatch: pytest.MonkeyPatch, page: int) -> None:
    monkeypatch.setattr(lists, "_PAGE", page)
    for bound in (100, 3):
        wanted = TorrentFilter("name", descending=False)
        pages = [each.torrents async for each in listed_torrents(filled, wanted, "", bound)]
        assert [each.name[-1] for some in pages for each in some] == ["1", "2", "3", "4", "5"][:bound]
