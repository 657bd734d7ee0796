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


COUNTED: dict[str, Source] = {
    "announces": ("tracker_requests_total", ("announce", "answered")),
    "scrapes": ("tracker_requests_total", ("scrape", "answered")),
    "refused.announces": ("tracker_requests_total", ("announce", "refused")),
    "refused.scrapes": ("tracker_requests_total", ("scrape", "refused")),
    "refused.other": ("tracker_requests_total", ("other", "refused")),
    "geoip.failed": ("tracker_geoip_updates_failed_total", ()),
    **{f"announces.{family}": ("tracker_announces_total", (family,)) for family in ("v4", "v6")},
    **{
        f"announces.{event}": ("tracker_announce_events_total", (event,))
        for event in ("started", "completed", "stopped")
    },
    **{f"scrapes.{family}": ("tracker_scrapes_total", (family,)) for family in ("v4", "v6")},
    "udp.connects": ("tracker_udp_answered_total", ("connect",)),
    "announces.udp": ("tracker_udp_answered_total", ("announce",)),
    "scrapes.udp": ("tracker_udp_answered_total", ("scrape",)),
    **{
        f"udp.ignored.{reason}": ("tracker_udp_ignored_total", (reason,))
        for reason in ("short", "action", "magic", "port", "id", "budget", "late", "limit", "socket")
    },
    "udp.dropped": ("tracker_udp_dropped_total", ()),
    "udp.unsent": ("tracker_udp_unsent_total", ()),
    **{f"joins.{family}": ("tracker_joins_total", (family,)) for family in ("v4", "v6")},
    **{f"joins.udp.{family}": ("tracker_udp_joins_total", (family,)) for family in ("v4", "v6")},
    **{f"joins.ws.{family}": ("tracker_websocket_joins_total", (family,)) for family in ("v4", "v6")},
    "announces.ws": ("tracker_websocket_announces_total", ()),
    **{
        f"relays.{outcome}": ("tracker_relays_total", (outcome,))
        for outcome in ("offers", "answers", "unasked", "lost")
    },
    "sockets.stuck": ("tracker_websockets_stuck_total", ()),
    **{
        f"bytes.{way}{over}.{family}": (f"tracker{protocol}_reported_bytes_total", (way, family))
        for over, protocol in (("", ""), (".udp", "_udp"), (".ws", "_websocket"))
        for way in ("up", "down")
        for family in ("v4", "v6")
    },
    **{f"reaps.{cause}": ("tracker_reaps_total", (cause,)) for cause in ("event", "due", "sweep")},
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
    **{
        f"{receiver}.failed": ("tracker_figure_requests_failed_total", (receiver,))
        for receiver in ("stathat", "statsd")
    },
    "webhooks.delivered": ("tracker_webhook_deliveries_total", ("delivered",)),
    "webhooks.failed": ("tracker_webhook_deliveries_total", ("failed",)),
    "webhooks.changes": ("tracker_webhook_changes_total", ()),
    **{
        f"site_sync.{outcome}": ("tracker_site_rows_total", (outcome,))
        for outcome in ("written", "repaired", "refused")
    },
    "site_sync.errors": ("tracker_site_errors_total", ()),
    "site_call.unknown.refused": ("tracker_site_calls_total", ("unknown", "refused")),
    **{
        f"store.{outcome}": ("tracker_store_round_trips_total", (outcome,))
        for outcome in ("answered", "error", "refused", "timeout", "unreachable")
    },
}
"""Exposed as 0 from the start, so that the first event shows as an increase."""

HISTOGRAMS: dict[str, Source] = {
    "announce_seconds": ("tracker_announce_seconds", ()),
    "announce_batch": ("tracker_announce_batch_size", ()),
    "reap_lag_seconds": ("tracker_reap_lag_seconds", ()),
    "store_seconds": ("tracker_store_round_trip_seconds", ()),
    **{f"dht_query_seconds.{query}": ("tracker_dht_query_seconds", (query,)) for query in DHT_QUERIES},
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
