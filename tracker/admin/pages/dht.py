"""The page of the DHT: the nodes of all trackers on the store, and the torrents that were looked up last."""

from typing import Any

from aiohttp import web

from tracker.admin.pages.rendering import Pages, get
from tracker.store.dht.nodes import FAMILIES, NodeStatus

LOOKUPS, HASHES = 30, 30
"""Torrents shown of those that were looked up last, and of those that other nodes announced."""
_TONES = {"up": "good", "down": "bad", "starting": "warn", "stopped": ""}


class DhtPage(Pages):
    @get("/dht", "dht.html", part="parts/dht.html")
    async def show(self, request: web.Request) -> dict[str, Any]:
        """htmx gets only the part that changes."""
        now, store, settings = self._clock(), self._store, self._context.settings.dht
        statuses = await store.dht_nodes.statuses()
        announced, hashes = await store.dht_nodes.hashes(None, 0, HASHES)
        known = {each.info_hash: each for each in await store.torrents.get_all([row.info_hash for row in hashes])}
        found = await store.dht_torrents.last_lookups(0, LOOKUPS)
        times = dict(found)
        torrents = await store.torrents.by_ids([torrent_id for torrent_id, _ in found])
        return {
            "is_here": any(status.name == settings.node_name for status in statuses),
            "nodes": [_view(status, now) for status in statuses],
            "families": FAMILIES,
            "hashes": [(row, known.get(row.info_hash)) for row in hashes],
            "announced": announced,
            "lookups": [(torrent, times.get(torrent.torrent_id)) for torrent in torrents],
            "looked_up": await store.dht_torrents.looked_up_count(),
            "now": now,
        }


def _view(status: NodeStatus, now: float) -> dict[str, Any]:
    """``buckets``: each with its nodes by family, None for a family without one. ``largest``: nodes of the largest."""
    state = status.state(now)
    buckets = sorted({bucket for family in status.buckets.values() for bucket in family})
    sizes = [
        (bucket, [status.buckets[family].get(bucket, 0) if family in status.ids else None for family in FAMILIES])
        for bucket in buckets
    ]
    largest = max((size for _, row in sizes for size in row if size is not None), default=0)
    return {"status": status, "state": state, "tone": _TONES[state], "buckets": sizes, "largest": largest}
