"""All metrics: name, kind, labels, help text, scope, what tracker/runtime/telemetry.py counts for them. The table of
docs/metrics.md is made from this."""

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
    source: str = ""
    """What it shows in the telemetry; empty for a metric of the store, or if the labels decide."""
    scope: Scope = "tracker"
    """``tracker``: sum over the processes of this tracker; ``store``: equal on every tracker of the store."""


def counter(name: str, text: str, *labels: str, source: str = "") -> Metric:
    return Metric(name, "counter", text, labels, source)


def gauge(name: str, text: str, *labels: str, source: str = "") -> Metric:
    return Metric(name, "gauge", text, labels, source)


def histogram(name: str, text: str, *labels: str, source: str = "") -> Metric:
    return Metric(name, "histogram", text, labels, source)


_TRACKER = (
    Metric(
        "tracker_build_info",
        "info",
        "Versions of the tracker, Python and the store server",
        ("version", "python", "store"),
    ),
    gauge("tracker_start_time_seconds", "Start time of this tracker, in epoch seconds"),
    gauge("tracker_ready", "1 if the tracker is ready, like /ready; else 0"),
    gauge("tracker_processes", "Running processes of this tracker", source="processes"),
    counter(
        "tracker_requests_total",
        "Announces and scrapes by result; kind other: refused before the kind was known",
        "kind",
        "result",
    ),
    counter("tracker_announces_total", "Answered announces, by address family", "family"),
    counter("tracker_announce_events_total", "Answered announces, by event", "event"),
    counter("tracker_scrapes_total", "Answered scrapes, by address family", "family"),
    counter("tracker_udp_answered_total", "Requests answered over UDP, by kind", "kind"),
    counter(
        "tracker_udp_ignored_total",
        "UDP packets without a regular answer, by reason; senders with an invalid connection id get an error",
        "reason",
    ),
    counter(
        "tracker_udp_dropped_total",
        "UDP packets that the system dropped because the receive buffer was full",
        source="udp.dropped",
    ),
    counter("tracker_udp_unsent_total", "UDP replies that the system did not send", source="udp.unsent"),
    gauge("tracker_websockets", "Open WebSockets", source="sockets"),
    counter("tracker_websocket_announces_total", "Announces answered over WebSockets", source="announces.ws"),
    counter(
        "tracker_relays_total",
        "Offers and answers delivered, answers without an open offer (unasked), and messages to closed WebSockets "
        "(lost)",
        "outcome",
    ),
    counter(
        "tracker_websockets_stuck_total", "WebSockets closed because their clients did not read", source="sockets.stuck"
    ),
    gauge("tracker_dht_up", "0 if no DHT node has answered for 60 s, or within 30 s of the start", source="dht_up"),
    gauge(
        "tracker_dht_answer_timestamp_seconds", "Last answer of a DHT node, in epoch seconds", source="dht_answered_at"
    ),
    gauge("tracker_dht_torrents", "Registered torrents that take part in the DHT, estimated", source="dht_torrents"),
    gauge("tracker_dht_ktable_nodes_count", "Nodes in the routing tables of the DHT", source="dht_nodes"),
    counter("tracker_dht_ktable_nodes_added_total", "Nodes added to the routing tables"),
    counter("tracker_dht_ktable_nodes_dropped_total", "Nodes removed from the routing tables"),
    gauge("tracker_dht_ktable_hashes_count", "Info hashes announced by DHT nodes", source="dht_hashes"),
    counter("tracker_dht_ktable_hashes_added_total", "Announced info hashes added"),
    counter("tracker_dht_ktable_hashes_dropped_total", "Announced info hashes removed"),
    gauge("tracker_dht_peers", "Peers announced by DHT nodes", source="dht_peers"),
    counter("tracker_dht_queries_in_total", "Queries of DHT nodes", "query", "outcome"),
    counter("tracker_dht_queries_out_total", "Queries to DHT nodes", "query", "outcome"),
    histogram("tracker_dht_query_seconds", "Time until DHT nodes answered", "query"),
    counter("tracker_dht_dropped_total", "Datagrams of the DHT without an answer", "reason"),
    counter("tracker_dht_packets_total", "Packets of the DHT node", "direction"),
    counter("tracker_dht_bytes_total", "Bytes of the DHT node", "direction"),
    counter("tracker_dht_lookups_total", "Lookups of thin torrents in the DHT", "outcome"),
    counter("tracker_dht_given_peers_total", "Peers found in the DHT that announces got", source="dht_given"),
    counter("tracker_failures_total", "Refused requests, by reason (troubleshooting.md)", "reason"),
    counter("tracker_limited_total", "Rate-limited requests, by limit and action", "limit", "action"),
    counter("tracker_joins_total", "Peers that joined a swarm, by address family", "family"),
    counter("tracker_udp_joins_total", "Those of them that joined over UDP", "family"),
    counter("tracker_websocket_joins_total", "Those of them that joined over a WebSocket", "family"),
    counter("tracker_reported_bytes_total", "Bytes transferred, as reported by peers", "direction", "family"),
    counter("tracker_udp_reported_bytes_total", "Those of them that were reported over UDP", "direction", "family"),
    counter(
        "tracker_websocket_reported_bytes_total",
        "Those of them that were reported over WebSockets",
        "direction",
        "family",
    ),
    histogram(
        "tracker_announce_seconds", "Announce latency: time from request read to reply ready", source="announce_seconds"
    ),
    histogram("tracker_announce_batch_size", "Announces per store call", source="announce_batch"),
    gauge(
        "tracker_announces_in_flight",
        "Announces waiting for the store or being processed by it",
        source="announces_in_flight",
    ),
    gauge("tracker_announces_waiting", "Announces waiting for the next store call", source="announces_waiting"),
    gauge("tracker_http_connections", "Open connections of peers and proxies", source="connections"),
    gauge("tracker_asyncio_tasks", "Tasks of the event loops; steady growth indicates a leak", source="asyncio_tasks"),
    counter("tracker_reaps_total", "Timed-out peers removed, by trigger", "cause"),
    histogram(
        "tracker_reap_lag_seconds",
        "Time from timeout to removal of peers found by a due list",
        source="reap_lag_seconds",
    ),
    gauge("tracker_reap_behind_seconds", "Age of the oldest unprocessed due list", source="due_behind_seconds"),
    gauge("tracker_reap_interval_seconds", "Configured reap interval; a sweep round should not take longer"),
    counter("tracker_sweep_repairs_total", "Repairs made by the sweep; 0 expected", source="repairs"),
    gauge("tracker_sweep_last_seconds", "Duration of the last complete sweep round", source="sweep_seconds"),
    gauge(
        "tracker_sweep_end_timestamp_seconds",
        "End of the last complete sweep round, in epoch seconds; missing before the first",
        source="swept_at",
    ),
    counter("tracker_torrents_forgotten_total", "Empty torrents removed in open mode", source="forgotten"),
    counter(
        "tracker_torrents_forgotten_full_total",
        "Empty torrents removed to make room for a new torrent",
        source="forgotten.full",
    ),
    counter("tracker_torrents_scored_total", "Scored torrents, each at most once an hour", source="torrents.processed"),
    counter("tracker_new_unique_users_total", "New unique users: addresses new to a torrent", source="unique.new"),
    counter(
        "tracker_unique_users_skipped_total",
        "Joins of new unique users not counted because the store was more than 80 % full",
        source="unique_skipped",
    ),
    counter(
        "tracker_unique_markers_deleted_total",
        "Unique-user markers deleted because the store was short of memory",
        source="unique_forgotten",
    ),
    gauge("tracker_joins_waiting", "Joins queued for the unique-user count", source="joins_waiting"),
    counter(
        "tracker_joins_dropped_total",
        "Joins missing from the unique-user count because its queue was full",
        source="tally_dropped",
    ),
    gauge(
        "tracker_software_waiting", "Joins and refusals queued for the client-software count", source="software_waiting"
    ),
    counter(
        "tracker_software_dropped_total",
        "Joins and refusals missing from the client-software count because of too many distinct clients",
        source="software_dropped",
    ),
    counter("tracker_geoip_misses_total", "GeoIP lookups of unknown addresses"),
    gauge("tracker_geoip_usable", "1 if the configured GeoIP database is in use, else 0"),
    gauge("tracker_geoip_build_timestamp_seconds", "Build time of the GeoIP database, in epoch seconds"),
    counter("tracker_job_changes_total", "Job status changes, by queue and new status", "queue", "status"),
    counter(
        "tracker_figures_total",
        "Samples for StatHat or StatsD: sent, or dropped because the receiver refused them",
        "receiver",
        "outcome",
    ),
    counter("tracker_figure_requests_failed_total", "Failed requests to StatHat or StatsD", "receiver"),
    counter(
        "tracker_webhook_deliveries_total",
        "Batches posted to webhooks, by outcome; failed ones are posted again",
        "outcome",
    ),
    counter("tracker_webhook_changes_total", "Changes delivered to webhooks", source="webhooks.changes"),
    gauge(
        "tracker_webhook_lag_seconds",
        "Age of the oldest change that this tracker still has to deliver; 0 if there is none",
        source="webhook_lag_seconds",
    ),
    counter(
        "tracker_site_calls_total",
        "Calls of a site's own code: done, refused, or failed because of the tracker or its store",
        "call",
        "outcome",
    ),
    counter(
        "tracker_site_rows_total",
        "Rows of the site's own tables: written, repaired by the daily comparison, or refused because they do not fit",
        "outcome",
    ),
    counter(
        "tracker_site_errors_total",
        "Rounds of the site sync that failed; the next one repeats them",
        source="site_sync.errors",
    ),
    gauge(
        "tracker_site_lag_seconds",
        "How far the site's own tables are behind; 0 where this tracker does not keep them",
        source="site_lag_seconds",
    ),
    counter("tracker_store_round_trips_total", "Round trips to the store, by outcome", "outcome"),
    histogram("tracker_store_round_trip_seconds", "Duration of a round trip to the store", source="store_seconds"),
    gauge(
        "tracker_processes_without_store",
        "Processes of this tracker waiting for the store",
        source="processes_without_store",
    ),
    gauge(
        "tracker_shards_unavailable",
        "Shards of the store that do not answer, so that their torrents are refused; /ready names them",
    ),
    counter("tracker_geoip_updates_failed_total", "Failed updates of the GeoIP database", source="geoip.failed"),
    gauge(
        "tracker_store_refuses_writes",
        "1 while the store, or a shard of it, refuses writes, so that announces are refused; /ready names the reason",
    ),
    gauge(
        "tracker_store_up",
        "1 if the store (with several shards: the main store) answered this scrape; else its metrics are missing",
    ),
)

_STORE = (
    gauge("tracker_torrents", "Registered torrents"),
    gauge("tracker_peers", "Active peers, by state", "state"),
    gauge(
        "tracker_peers_by_family",
        "Active peers as the last sweep round counted them, by address family; a peer on both counts in each",
        "state",
        "family",
    ),
    gauge(
        "tracker_peers_by_protocol",
        "Active peers as the last sweep round counted them, by the protocol of their last join",
        "state",
        "protocol",
    ),
    gauge("tracker_limited_subjects", "Subjects over a rate limit: addresses, and their torrents and peers"),
    gauge("tracker_users", "Users"),
    gauge("tracker_scored_torrents", "Torrents in the ranking"),
    gauge("tracker_scores_due", "Torrents due for scoring"),
    gauge("tracker_scores_late", "Torrents overdue for scoring by more than one interval"),
    gauge("tracker_scores_oldest_seconds", "Time since the oldest scoring"),
    gauge("tracker_jobs", "Jobs, by queue and status", "queue", "status"),
    gauge("tracker_figures_waiting", "Samples waiting to be sent to StatHat or StatsD"),
    gauge("tracker_changes", "Changes in the change feed"),
    gauge(
        "tracker_work_items",
        "Items of work distribution, by queue; out: claims; done: finished items that are kept",
        "project",
        "state",
    ),
    counter(
        "tracker_work_claims_total",
        "Claims given out, and how they ended; repaired: their record was overwritten",
        "project",
        "outcome",
    ),
    counter("tracker_work_reported_bytes_total", "Bytes reported by claimants", "project"),
    counter("tracker_work_verified_seconds_total", "Verified seed time of claims", "project"),
    counter("tracker_work_unverified_done_total", "Finished claims that nothing verified", "project"),
    gauge(
        "tracker_work_bytes",
        "Bytes of registered torrents of known size, by number of seeders; updated every 6 hours",
        "seeders",
    ),
    histogram("tracker_work_claim_seconds", "Time from claim to done"),
    counter("tracker_store_events_total", "Events on all trackers of the store, since its creation", "event"),
    counter("tracker_store_credit_cut_bytes_total", "Bytes not credited because the rate exceeded the limit"),
    gauge(
        "tracker_store_memory_bytes",
        "Memory used by the store; missing if INFO is forbidden. node: with several nodes, the address of each",
        "node",
    ),
    gauge("tracker_store_memory_limit_bytes", "Memory limit of the store, also by node; missing if unlimited", "node"),
)

METRICS = (*_TRACKER, *(metric._replace(scope="store") for metric in _STORE))


def _sources(kind: Kind) -> dict[str, Source]:
    return {metric.source: (metric.name, ()) for metric in METRICS if metric.source and metric.kind == kind}


def _each(counters: str, metric: str, *labels: str) -> dict[str, Source]:
    """The counter of each label, whose name has the label for the ``*``."""
    return {counters.replace("*", label): (metric, (label,)) for label in labels}


COUNTED: dict[str, Source] = {
    **_sources("counter"),
    "announces": ("tracker_requests_total", ("announce", "answered")),
    "scrapes": ("tracker_requests_total", ("scrape", "answered")),
    "refused.announces": ("tracker_requests_total", ("announce", "refused")),
    "refused.scrapes": ("tracker_requests_total", ("scrape", "refused")),
    "refused.other": ("tracker_requests_total", ("other", "refused")),
    **_each("announces.*", "tracker_announces_total", "v4", "v6"),
    **_each("announces.*", "tracker_announce_events_total", "started", "completed", "stopped"),
    **_each("scrapes.*", "tracker_scrapes_total", "v4", "v6"),
    "udp.connects": ("tracker_udp_answered_total", ("connect",)),
    "announces.udp": ("tracker_udp_answered_total", ("announce",)),
    "scrapes.udp": ("tracker_udp_answered_total", ("scrape",)),
    **_each("udp.ignored.*", "tracker_udp_ignored_total", "short", "action", "magic", "port", "id", "budget"),
    **_each("udp.ignored.*", "tracker_udp_ignored_total", "late", "limit", "socket"),
    **_each("joins.*", "tracker_joins_total", "v4", "v6"),
    **_each("joins.udp.*", "tracker_udp_joins_total", "v4", "v6"),
    **_each("joins.ws.*", "tracker_websocket_joins_total", "v4", "v6"),
    **_each("relays.*", "tracker_relays_total", "offers", "answers", "unasked", "lost"),
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
    **{
        f"{receiver}.{outcome}": ("tracker_figures_total", (receiver, outcome))
        for receiver in ("stathat", "statsd")
        for outcome in ("sent", "dropped")
    },
    **_each("*.failed", "tracker_figure_requests_failed_total", "stathat", "statsd"),
    **_each("webhooks.*", "tracker_webhook_deliveries_total", "delivered", "failed"),
    **_each("site_sync.*", "tracker_site_rows_total", "written", "repaired", "refused"),
    "site_call.unknown.refused": ("tracker_site_calls_total", ("unknown", "refused")),
    **_each("store.*", "tracker_store_round_trips_total", "answered", "error", "refused", "timeout", "unreachable"),
}
"""Exposed as 0 from the start, so that the first event shows as an increase."""

HISTOGRAMS: dict[str, Source] = {
    **_sources("histogram"),
    **_each("dht_query_seconds.*", "tracker_dht_query_seconds", *DHT_QUERIES),
}
GAUGES = {**_sources("gauge"), "geoip_misses": ("tracker_geoip_misses_total", ())}

EVENTS = (
    "announces",
    "scrapes",
    "requests",
    "reaped",
    "repairs",
    "forgotten",
    "tally_dropped",
    "software_dropped",
    "unique_skipped",
    "outbox_dropped",
)
"""All-time totals of the store; they only grow, except on a reset."""


def as_markdown() -> str:
    """The table of docs/metrics.md."""
    lines = ["| metric | kind | labels | scope | meaning |", "|---|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.scope} | {metric.help} |")
    return "\n".join(lines) + "\n"
