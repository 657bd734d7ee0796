"""The metrics of unique users that an event counts in, as the script builds their names."""

from collections.abc import Iterator

from tracker.bittorrent import InfoHash
from tracker.store.schema.keys import SCOPES
from tracker.store.stats.metric_names import PlaceNames


def metrics(info_hash: InfoHash, place: PlaceNames) -> Iterator[str]:
    """Yields the metrics that count an event: seven at most."""
    torrent = f"torrents.{info_hash.hex()}"
    yield f"{torrent}.users"
    if not place.country:
        return
    country = f"countries.{place.country}"
    yield from (f"{country}.users", f"{torrent}.{country}.users")
    for scope, name in zip(SCOPES[1:], place[1:], strict=True):
        if name:
            yield f"{country}.{scope}.{name}.users"
            yield f"{torrent}.{country}.{scope}.{name}.users"
