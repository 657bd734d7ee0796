"""All metrics: name, kind, labels, help text and scope. The table of docs/metrics.md is made from this."""

from tracker.admin.metrics.sources import Metric

_TRACKER = (
    Metric(
        "tracker_build_info",
        "info",
        "Versions of the tracker, Python and the store server",
        ("version", "python", "store"),
    ),
    Metric("tracker_start_time_seconds", "gauge", "Start time of this tracker, in epoch seconds"),
    Metric("tracker_ready", "gauge", "1 if the tracker is ready, like /ready; else 0"),
    Metric("tracker_processes", "gauge", "Running processes of this tracker"),
    Metric(
        "tracker_requests_total",
        "counter",
        "Announces and scrapes by result; kind other: refused before the kind was known",
        ("kind", "result"),
    ),
    Metric("tracker_announces_total", "counter", "Answered announces, by address family", ("family",)),
    Metric("tracker_announce_events_total", "counter", "Answered announces, by event", ("event",)),
    Metric("tracker_scrapes_total", "counter", "Answered scrapes, by address family", ("family",)),
    Metric("tracker_udp_answered_total", "counter", "Requests answered over UDP, by kind", ("kind",)),
    Metric(
        "tracker_udp_ignored_total",
        "counter",
        "UDP packets without a regular answer, by reason; senders with an invalid connection id get an error",
        ("reason",),
    ),
    Metric(
        "tracker_udp_dropped_total",
        "counter",
        "UDP packets that the system dropped because the receive buffer was full",
    ),
    Metric("tracker_udp_unsent_total", "counter", "UDP replies that the system did not send"),
    Metric("tracker_websockets", "gauge", "Open WebSockets"),
    Metric("tracker_websocket_announces_total", "counter", "Announces answered over WebSockets"),
    Metric(
        "tracker_relays_total",
        "counter",
        "Offers and answers delivered, answers without an open offer (unasked), and messages to closed WebSockets "
        "(lost)",
        ("outcome",),
    ),
    Metric("tracker_websockets_stuck_total", "counter", "WebSockets closed because their clients did not read"),
    Metric("tracker_dht_up", "gauge", "0 if no DHT node has answered for 60 s, or within 30 s of the start"),
    Metric("tracker_dht_answer_timestamp_seconds", "gauge", "Last answer of a DHT node, in epoch seconds"),
    Metric("tracker_dht_torrents", "gauge", "Registered torrents that take part in the DHT, estimated"),
    Metric("tracker_dht_ktable_nodes_count", "gauge", "Nodes in the routing tables of the DHT"),
    Metric("tracker_dht_ktable_nodes_added_total", "counter", "Nodes added to the routing tables"),
    Metric("tracker_dht_ktable_nodes_dropped_total", "counter", "Nodes removed from the routing tables"),
    Metric("tracker_dht_ktable_hashes_count", "gauge", "Info hashes announced by DHT nodes"),
    Metric("tracker_dht_ktable_hashes_added_total", "counter", "Announced info hashes added"),
    Metric("tracker_dht_ktable_hashes_dropped_total", "counter", "Announced info hashes removed"),
    Metric("tracker_dht_peers", "gauge", "Peers announced by DHT nodes"),
    Metric("tracker_dht_queries_in_total", "counter", "Queries of DHT nodes", ("query", "outcome")),
    Metric("tracker_dht_queries_out_total", "counter", "Queries to DHT nodes", ("query", "outcome")),
    Metric("tracker_dht_query_seconds", "histogram", "Time until DHT nodes answered", ("query",)),
    Metric("tracker_dht_dropped_total", "counter", "Datagrams of the DHT without an answer", ("reason",)),
    Metric("tracker_dht_packets_total", "counter", "Packets of the DHT node", ("direction",)),
    Metric("tracker_dht_bytes_total", "counter", "Bytes of the DHT node", ("direction",)),
    Metric("tracker_dht_lookups_total", "counter", "Lookups of thin torrents in the DHT", ("outcome",)),
    Metric("tracker_dht_given_peers_total", "counter", "Peers found in the DHT that announces got"),
    Metric("tracker_failures_total", "counter", "Refused requests, by reason (troubleshooting.md)", ("reason",)),
    Metric("tracker_limited_total", "counter", "Rate-limited requests, by limit and action", ("limit", "action")),
    Metric("tracker_joins_total", "counter", "Peers that joined a swarm, by address family", ("family",)),
    Metric("tracker_udp_joins_total", "counter", "Those of them that joined over UDP", ("family",)),
    Metric("tracker_websocket_joins_total", "counter", "Those of them that joined over a WebSocket", ("family",)),
    Metric(
        "tracker_reported_bytes_total", "counter", "Bytes transferred, as reported by peers", ("direction", "family")
    ),
    Metric(
        "tracker_udp_reported_bytes_total",
        "counter",
        "Those of them that were reported over UDP",
        ("direction", "family"),
    ),
    Metric(
        "tracker_websocket_reported_bytes_total",
        "counter",
        "Those of them that were reported over WebSockets",
        ("direction", "family"),
    ),
    Metric("tracker_announce_seconds", "histogram", "Announce latency: time from request read to reply ready"),
    Metric("tracker_announce_batch_size", "histogram", "Announces per store call"),
    Metric("tracker_announces_in_flight", "gauge", "Announces waiting for the store or being processed by it"),
    Metric("tracker_announces_waiting", "gauge", "Announces waiting for the next store call"),
    Metric("tracker_http_connections", "gauge", "Open connections of peers and proxies"),
    Metric("tracker_asyncio_tasks", "gauge", "Tasks of the event loops; steady growth indicates a leak"),
    Metric("tracker_reaps_total", "counter", "Timed-out peers removed, by trigger", ("cause",)),
    Metric("tracker_reap_lag_seconds", "histogram", "Time from timeout to removal of peers found by a due list"),
    Metric("tracker_reap_behind_seconds", "gauge", "Age of the oldest unprocessed due list"),
    Metric("tracker_reap_interval_seconds", "gauge", "Configured reap interval; a sweep round should not take longer"),
    Metric("tracker_sweep_repairs_total", "counter", "Repairs made by the sweep; 0 expected"),
    Metric("tracker_sweep_last_seconds", "gauge", "Duration of the last complete sweep round"),
    Metric(
        "tracker_sweep_end_timestamp_seconds",
        "gauge",
        "End of the last complete sweep round, in epoch seconds; missing before the first",
    ),
    Metric("tracker_torrents_forgotten_total", "counter", "Empty torrents removed in open mode"),
    Metric("tracker_torrents_forgotten_full_total", "counter", "Empty torrents removed to make room for a new torrent"),
    Metric("tracker_torrents_scored_total", "counter", "Scored torrents, each at most once an hour"),
    Metric("tracker_new_unique_users_total", "counter", "New unique users: addresses new to a torrent"),
    Metric(
        "tracker_unique_users_skipped_total",
        "counter",
        "Joins of new unique users not counted because the store was more than 80 % full",
    ),
    Metric(
        "tracker_unique_markers_deleted_total",
        "counter",
        "Unique-user markers deleted because the store was short of memory",
    ),
    Metric("tracker_joins_waiting", "gauge", "Joins queued for the unique-user count"),
    Metric(
        "tracker_joins_dropped_total", "counter", "Joins missing from the unique-user count because its queue was full"
    ),
    Metric("tracker_software_waiting", "gauge", "Joins and refusals queued for the client-software count"),
    Metric(
        "tracker_software_dropped_total",
        "counter",
        "Joins and refusals missing from the client-software count because of too many distinct clients",
    ),
    Metric("tracker_geoip_misses_total", "counter", "GeoIP lookups of unknown addresses"),
    Metric("tracker_geoip_usable", "gauge", "1 if the configured GeoIP database is in use, else 0"),
    Metric("tracker_geoip_build_timestamp_seconds", "gauge", "Build time of the GeoIP database, in epoch seconds"),
    Metric("tracker_job_changes_total", "counter", "Job status changes, by queue and new status", ("queue", "status")),
    Metric(
        "tracker_figures_total",
        "counter",
        "Samples for StatHat or StatsD: sent, or dropped because the receiver refused them",
        ("receiver", "outcome"),
    ),
    Metric("tracker_figure_requests_failed_total", "counter", "Failed requests to StatHat or StatsD", ("receiver",)),
    Metric(
        "tracker_webhook_deliveries_total",
        "counter",
        "Batches posted to webhooks, by outcome; failed ones are posted again",
        ("outcome",),
    ),
    Metric("tracker_webhook_changes_total", "counter", "Changes delivered to webhooks"),
    Metric(
        "tracker_webhook_lag_seconds",
        "gauge",
        "Age of the oldest change that this tracker still has to deliver; 0 if there is none",
    ),
    Metric(
        "tracker_site_calls_total",
        "counter",
        "Calls of a site's own code: done, refused, or failed because of the tracker or its store",
        ("call", "outcome"),
    ),
    Metric(
        "tracker_site_rows_total",
        "counter",
        "Rows of the site's own tables: written, repaired by the daily comparison, or refused because they do not fit",
        ("outcome",),
    ),
    Metric("tracker_site_errors_total", "counter", "Rounds of the site sync that failed; the next one repeats them"),
    Metric(
        "tracker_site_lag_seconds",
        "gauge",
        "How far the site's own tables are behind; 0 where this tracker does not keep them",
    ),
    Metric("tracker_store_round_trips_total", "counter", "Round trips to the store, by outcome", ("outcome",)),
    Metric("tracker_store_round_trip_seconds", "histogram", "Duration of a round trip to the store"),
    Metric("tracker_processes_without_store", "gauge", "Processes of this tracker waiting for the store"),
    Metric(
        "tracker_shards_unavailable",
        "gauge",
        "Shards of the store that do not answer, so that their torrents are refused; /ready names them",
    ),
    Metric("tracker_geoip_updates_failed_total", "counter", "Failed updates of the GeoIP database"),
    Metric(
        "tracker_store_refuses_writes",
        "gauge",
        "1 while the store, or a shard of it, refuses writes, so that announces are refused; /ready names the reason",
    ),
    Metric(
        "tracker_store_up",
        "gauge",
        "1 if the store (with several shards: the main store) answered this scrape; else its metrics are missing",
    ),
)

_STORE = (
    Metric("tracker_torrents", "gauge", "Registered torrents", (), "store"),
    Metric("tracker_peers", "gauge", "Active peers, by state", ("state",), "store"),
    Metric(
        "tracker_peers_by_family",
        "gauge",
        "Active peers as the last sweep round counted them, by address family; a peer on both counts in each",
        ("state", "family"),
        "store",
    ),
    Metric(
        "tracker_peers_by_protocol",
        "gauge",
        "Active peers as the last sweep round counted them, by the protocol of their last join",
        ("state", "protocol"),
        "store",
    ),
    Metric(
        "tracker_limited_subjects",
        "gauge",
        "Subjects over a rate limit: addresses, and their torrents and peers",
        (),
        "store",
    ),
    Metric("tracker_users", "gauge", "Users", (), "store"),
    Metric("tracker_scored_torrents", "gauge", "Torrents in the ranking", (), "store"),
    Metric("tracker_scores_due", "gauge", "Torrents due for scoring", (), "store"),
    Metric("tracker_scores_late", "gauge", "Torrents overdue for scoring by more than one interval", (), "store"),
    Metric("tracker_scores_oldest_seconds", "gauge", "Time since the oldest scoring", (), "store"),
    Metric("tracker_jobs", "gauge", "Jobs, by queue and status", ("queue", "status"), "store"),
    Metric("tracker_figures_waiting", "gauge", "Samples waiting to be sent to StatHat or StatsD", (), "store"),
    Metric("tracker_changes", "gauge", "Changes in the change feed", (), "store"),
    Metric(
        "tracker_work_items",
        "gauge",
        "Items of work distribution, by queue; out: claims; done: finished items that are kept",
        ("project", "state"),
        "store",
    ),
    Metric(
        "tracker_work_claims_total",
        "counter",
        "Claims given out, and how they ended; repaired: their record was overwritten",
        ("project", "outcome"),
        "store",
    ),
    Metric("tracker_work_reported_bytes_total", "counter", "Bytes reported by claimants", ("project",), "store"),
    Metric("tracker_work_verified_seconds_total", "counter", "Verified seed time of claims", ("project",), "store"),
    Metric(
        "tracker_work_unverified_done_total", "counter", "Finished claims that nothing verified", ("project",), "store"
    ),
    Metric(
        "tracker_work_bytes",
        "gauge",
        "Bytes of registered torrents of known size, by number of seeders; updated every 6 hours",
        ("seeders",),
        "store",
    ),
    Metric("tracker_work_claim_seconds", "histogram", "Time from claim to done", (), "store"),
    Metric(
        "tracker_store_events_total",
        "counter",
        "Events on all trackers of the store, since its creation",
        ("event",),
        "store",
    ),
    Metric(
        "tracker_store_credit_cut_bytes_total",
        "counter",
        "Bytes not credited because the rate exceeded the limit",
        (),
        "store",
    ),
    Metric(
        "tracker_store_memory_bytes",
        "gauge",
        "Memory used by the store; missing if INFO is forbidden. node: with several nodes, the address of each",
        ("node",),
        "store",
    ),
    Metric(
        "tracker_store_memory_limit_bytes",
        "gauge",
        "Memory limit of the store, also by node; missing if unlimited",
        ("node",),
        "store",
    ),
)

METRICS = (*_TRACKER, *_STORE)

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
