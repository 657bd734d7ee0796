"""The sentence about how many torrents take part in the DHT."""

import pytest

from tracker.store.dht.torrents import Participation


@pytest.mark.parametrize(
    ("counted", "text", "advised"),
    [
        (Participation(0, 0, 0), "0 of 0 registered torrents take part", False),
        (Participation(1200, 1200, 3, 5), "3 of 1,200 registered torrents take part", True),
        (Participation(20, 20, 1, 5), "1 of 20 registered torrents take part", False),
        (Participation(20, 20, 0, 0), "0 of 20 registered torrents take part", False),
        (
            Participation(1_000_000, 4000, 12, 3000),
            "about 3,000 of 1,000,000 registered torrents take part (estimated from 4,000)",
            True,
        ),
    ],
)
def test_all_is_named_where_nearly_no_torrent_takes_part_and_more_could(
    counted: Participation, text: str, advised: bool
) -> None:
    assert counted.text == text
    assert counted.sentence.startswith(text)
    assert ("TRACKER_DHT__TORRENTS=all" in counted.sentence) == advised
