"""What a metric is, and which one shows what tracker/runtime/telemetry.py counts and measures, by its names there."""

from typing import Literal, NamedTuple

from tracker.runtime.telemetry import DHT_QUERIES

Source = tuple[str, tuple[str, ...]]
"""(metric, values of its labels)"""

Kind = Literal["counter", "gauge", "histogram", "info"]
Scope = Literal["tracker", "store"]


class Metric(NamedTuple):
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    scope: Scope = "tracker"
    """``tracker``: sum over the processes of this tracker; ``store``: equal on every tracker of the store."""


def _each(counters: str, metric: str, *labels: str) -> dict[str, Source]:
    """The counter of each label, whose name has the label for the ``*``."""
    return {counters.replace("*", label): (metric, (label,)) for label in labels}


COUNTED: dict[str, Source] = {
    "announces": ("tracker_requests_total", ("announce", "answered")),
    "scrapes": ("tracker_requests_total", ("scrape", "answered")),
    "refused.announces": ("tracker_requests_total", ("announce", "refused")),
    "refused.scrapes": ("tracker_requests_total", ("scrape", "refused")),
    "refused.other": ("tracker_requests_total", ("other", "refused")),
    "geoip.failed": ("tracker_geoip_updates_failed_total", ()),
    **_each("announces.*", "tracker_announces_total", "v4", "v6"),
    **_each("announces.*", "tracker_announce_events_total", "started", "completed", "stopped"),
    **_each("scrapes.*", "tracker_scrapes_total", "v4", "v6"),
    "udp.connects": ("tracker_udp_answered_total", ("connect",)),
    "announces.udp": ("tracker_udp_answered_total", ("announce",)),
    "scrapes.udp": ("tracker_udp_answered_total", ("scrape",)),
    **_each("udp.ignored.*", "tracker_udp_ignored_total", "short", "action", "magic", "port", "id", "budget"),
    **_each("udp.ignored.*", "tracker_udp_ignored_total", "late", "limit", "socket"),
    "udp.dropped": ("tracker_udp_dropped_total", ()),
    "udp.unsent": ("tracker_udp_unsent_total", ()),
    **_each("joins.*", "tracker_joins_total", "v4", "v6"),
    **_each("joins.udp.*", "tracker_udp_joins_total", "v4", "v6"),
    **_each("joins.ws.*", "tracker_websocket_joins_total", "v4", "v6"),
    "announces.ws": ("tracker_websocket_announces_total", ()),
    **_each("relays.*", "tracker_relays_total", "offers", "answers", "unasked", "lost"),
    "sockets.stuck": ("tracker_websockets_stuck_total", ()),
    **{
        f"bytes.{way}{over}.{family}": (f"tracker{protocol}_reported_bytes_total", (way, family))
        for over, protocol in (("", ""), (".udp", "_udp"), (".ws", "_websocket"))
        for way in ("up", "down")
        for family in ("v4", "v6")
    },
    **_each("reaps.*", "tracker_reaps_total", "event", "due", "sweep"),
    **{
        f"limited.{limit}.{action}": ("tracker_limited_total", (limit, action))
        for limit in ("peer", "torrent", "joins", "address", "passkeys")
        for action in ("softened", "refused", "dropped")
        if (limit, action) != ("passkeys", "softened")
    },
    "repairs": ("tracker_sweep_repairs_total", ()),
    "forgotten": ("tracker_torrents_forgotten_total", ()),
    "forgotten.full": ("tracker_torrents_forgotten_full_total", ()),
    "torrents.processed": ("tracker_torrents_scored_total", ()),
    "dht_given": ("tracker_dht_given_peers_total", ()),
    "unique.new": ("tracker_new_unique_users_total", ()),
    "unique_forgotten": ("tracker_unique_markers_deleted_total", ()),
    "unique_skipped": ("tracker_unique_users_skipped_total", ()),
    "tally_dropped": ("tracker_joins_dropped_total", ()),
    "software_dropped": ("tracker_software_dropped_total", ()),
    **{
        f"{receiver}.{outcome}": ("tracker_figures_total", (receiver, outcome))
        for receiver in ("stathat", "statsd")
        for outcome in ("sent", "dropped")
    },
    **_each("*.failed", "tracker_figure_requests_failed_total", "stathat", "statsd"),
    **_each("webhooks.*", "tracker_webhook_deliveries_total", "delivered", "failed"),
    "webhooks.changes": ("tracker_webhook_changes_total", ()),
    **_each("site_sync.*", "tracker_site_rows_total", "written", "repaired", "refused"),
    "site_sync.errors": ("tracker_site_errors_total", ()),
    "site_call.unknown.refused": ("tracker_site_calls_total", ("unknown", "refused")),
    **_each("store.*", "tracker_store_round_trips_total", "answered", "error", "refused", "timeout", "unreachable"),
}
"""Exposed as 0 from the start, so that the first event shows as an increase."""

HISTOGRAMS: dict[str, Source] = {
    "announce_seconds": ("tracker_announce_seconds", ()),
    "announce_batch": ("tracker_announce_batch_size", ()),
    "reap_lag_seconds": ("tracker_reap_lag_seconds", ()),
    "store_seconds": ("tracker_store_round_trip_seconds", ()),
    **_each("dht_query_seconds.*", "tracker_dht_query_seconds", *DHT_QUERIES),
}

GAUGES = {
    "sockets": "tracker_websockets",
    "dht_up": "tracker_dht_up",
    "dht_answered_at": "tracker_dht_answer_timestamp_seconds",
    "dht_torrents": "tracker_dht_torrents",
    "dht_nodes": "tracker_dht_ktable_nodes_count",
    "dht_hashes": "tracker_dht_ktable_hashes_count",
    "dht_peers": "tracker_dht_peers",
    "processes": "tracker_processes",
    "processes_without_store": "tracker_processes_without_store",
    "announces_in_flight": "tracker_announces_in_flight",
    "announces_waiting": "tracker_announces_waiting",
    "connections": "tracker_http_connections",
    "asyncio_tasks": "tracker_asyncio_tasks",
    "due_behind_seconds": "tracker_reap_behind_seconds",
    "sweep_seconds": "tracker_sweep_last_seconds",
    "swept_at": "tracker_sweep_end_timestamp_seconds",
    "webhook_lag_seconds": "tracker_webhook_lag_seconds",
    "site_lag_seconds": "tracker_site_lag_seconds",
    "joins_waiting": "tracker_joins_waiting",
    "software_waiting": "tracker_software_waiting",
    "geoip_misses": "tracker_geoip_misses_total",
}
