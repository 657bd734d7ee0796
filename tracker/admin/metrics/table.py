"""All metrics: name, kind, labels, help text, scope, what tracker/runtime/telemetry.py counts for them. The table of
docs/metrics.md is made from this."""

import re
from collections.abc import Iterator
from itertools import product
from typing import Literal, NamedTuple, cast

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
    """What it shows of the telemetry; empty for a metric of the store, and for those that COUNTED names."""
    scope: Scope = "tracker"
    """``tracker``: sum over the processes of this tracker; ``store``: equal on every tracker of the store."""


# Each row has the kind, the name, labels, after = what it shows of the telemetry, and the help text. ``x.{a,b}`` stands
# for ``x.a`` and ``x.b``, by the values of the labels; ``x.*`` for any value.
_TRACKER = """\
info tracker_build_info{version, python, store}: Versions of the tracker, Python and the store server
gauge tracker_start_time_seconds: Start time of this tracker, in epoch seconds
gauge tracker_ready: 1 if the tracker is ready, like /ready; else 0
gauge tracker_processes = processes: Running processes of this tracker
counter tracker_requests_total{kind, result}: Announces and scrapes by result; kind other: refused before the kind was
    known
counter tracker_announces_total{family} = announces.{v4,v6}: Answered announces, by address family
counter tracker_announce_events_total{event} = announces.{started,completed,stopped}: Answered announces, by event
counter tracker_scrapes_total{family} = scrapes.{v4,v6}: Answered scrapes, by address family
counter tracker_udp_answered_total{kind}: Requests answered over UDP, by kind
counter tracker_udp_ignored_total{reason} = udp.ignored.{short,action,magic,port,id,budget,late,limit,socket}: UDP
    packets without a regular answer, by reason; senders with an invalid connection id get an error
counter tracker_udp_dropped_total = udp.dropped: UDP packets that the system dropped because the receive buffer was full
counter tracker_udp_unsent_total = udp.unsent: UDP replies that the system did not send
gauge tracker_websockets = sockets: Open WebSockets
counter tracker_websocket_announces_total = announces.ws: Announces answered over WebSockets
counter tracker_relays_total{outcome} = relays.{offers,answers,unasked,lost}: Offers and answers delivered, answers
    without an open offer (unasked), and messages to closed WebSockets (lost)
counter tracker_websockets_stuck_total = sockets.stuck: WebSockets closed because their clients did not read
gauge tracker_dht_up = dht_up: 0 if no DHT node has answered for 60 s, or within 30 s of the start
gauge tracker_dht_answer_timestamp_seconds = dht_answered_at: Last answer of a DHT node, in epoch seconds
gauge tracker_dht_torrents = dht_torrents: Registered torrents that take part in the DHT, estimated
gauge tracker_dht_ktable_nodes_count = dht_nodes: Nodes in the routing tables of the DHT
counter tracker_dht_ktable_nodes_added_total: Nodes added to the routing tables
counter tracker_dht_ktable_nodes_dropped_total: Nodes removed from the routing tables
gauge tracker_dht_ktable_hashes_count = dht_hashes: Info hashes announced by DHT nodes
counter tracker_dht_ktable_hashes_added_total: Announced info hashes added
counter tracker_dht_ktable_hashes_dropped_total: Announced info hashes removed
gauge tracker_dht_peers = dht_peers: Peers announced by DHT nodes
counter tracker_dht_queries_in_total{query, outcome} = dht.in.*.*: Queries of DHT nodes
counter tracker_dht_queries_out_total{query, outcome} = dht.out.*.*: Queries to DHT nodes
histogram tracker_dht_query_seconds{query}: Time until DHT nodes answered
counter tracker_dht_dropped_total{reason} = dht.dropped.*: Datagrams of the DHT without an answer
counter tracker_dht_packets_total{direction} = dht.packets.*: Packets of the DHT node
counter tracker_dht_bytes_total{direction} = dht.bytes.*: Bytes of the DHT node
counter tracker_dht_lookups_total{outcome} = dht.lookups.*: Lookups of thin torrents in the DHT
counter tracker_dht_given_peers_total = dht_given: Peers found in the DHT that announces got
counter tracker_failures_total{reason} = failures.*: Refused requests, by reason (troubleshooting.md)
counter tracker_limited_total{limit, action} = limited.{peer,torrent,joins,address}.{softened,refused,dropped}:
    Rate-limited requests, by limit and action
counter tracker_joins_total{family} = joins.{v4,v6}: Peers that joined a swarm, by address family
counter tracker_udp_joins_total{family} = joins.udp.{v4,v6}: Those of them that joined over UDP
counter tracker_websocket_joins_total{family} = joins.ws.{v4,v6}: Those of them that joined over a WebSocket
counter tracker_reported_bytes_total{direction, family} = bytes.{up,down}.{v4,v6}: Bytes transferred, as reported by
    peers
counter tracker_udp_reported_bytes_total{direction, family} = bytes.{up,down}.udp.{v4,v6}: Those of them that were
    reported over UDP
counter tracker_websocket_reported_bytes_total{direction, family} = bytes.{up,down}.ws.{v4,v6}: Those of them that were
    reported over WebSockets
histogram tracker_announce_seconds = announce_seconds: Announce latency: time from request read to reply ready
histogram tracker_announce_batch_size = announce_batch: Announces per store call
gauge tracker_announces_in_flight = announces_in_flight: Announces waiting for the store or being processed by it
gauge tracker_announces_waiting = announces_waiting: Announces waiting for the next store call
gauge tracker_http_connections = connections: Open connections of peers and proxies
gauge tracker_asyncio_tasks = asyncio_tasks: Tasks of the event loops; steady growth indicates a leak
counter tracker_reaps_total{cause} = reaps.{event,due,sweep}: Timed-out peers removed, by trigger
histogram tracker_reap_lag_seconds = reap_lag_seconds: Time from timeout to removal of peers found by a due list
gauge tracker_reap_behind_seconds = due_behind_seconds: Age of the oldest unprocessed due list
gauge tracker_reap_interval_seconds: Configured reap interval; a sweep round should not take longer
counter tracker_sweep_repairs_total = repairs: Repairs made by the sweep; 0 expected
gauge tracker_sweep_last_seconds = sweep_seconds: Duration of the last complete sweep round
gauge tracker_sweep_end_timestamp_seconds = swept_at: End of the last complete sweep round, in epoch seconds; missing
    before the first
counter tracker_torrents_forgotten_total = forgotten: Empty torrents removed in open mode
counter tracker_torrents_forgotten_full_total = forgotten.full: Empty torrents removed to make room for a new torrent
counter tracker_torrents_scored_total = torrents.processed: Scored torrents, each at most once an hour
counter tracker_new_unique_users_total = unique.new: New unique users: addresses new to a torrent
counter tracker_unique_users_skipped_total = unique_skipped: Joins of new unique users not counted because the store was
    more than 80 % full
counter tracker_unique_markers_deleted_total = unique_forgotten: Unique-user markers deleted because the store was short
    of memory
gauge tracker_joins_waiting = joins_waiting: Joins queued for the unique-user count
counter tracker_joins_dropped_total = tally_dropped: Joins missing from the unique-user count because its queue was full
gauge tracker_software_waiting = software_waiting: Joins and refusals queued for the client-software count
counter tracker_software_dropped_total = software_dropped: Joins and refusals missing from the client-software count
    because of too many distinct clients
counter tracker_geoip_misses_total: GeoIP lookups of unknown addresses
gauge tracker_geoip_usable: 1 if the configured GeoIP database is in use, else 0
gauge tracker_geoip_build_timestamp_seconds: Build time of the GeoIP database, in epoch seconds
counter tracker_job_changes_total{queue, status} = jobs.*.*: Job status changes, by queue and new status
counter tracker_figures_total{receiver, outcome} = {stathat,statsd}.{sent,dropped}: Samples for StatHat or StatsD: sent,
    or dropped because the receiver refused them
counter tracker_figure_requests_failed_total{receiver} = {stathat,statsd}.failed: Failed requests to StatHat or StatsD
counter tracker_webhook_deliveries_total{outcome} = webhooks.{delivered,failed}: Batches posted to webhooks, by outcome;
    failed ones are posted again
counter tracker_webhook_changes_total = webhooks.changes: Changes delivered to webhooks
gauge tracker_webhook_lag_seconds = webhook_lag_seconds: Age of the oldest change that this tracker still has to
    deliver; 0 if there is none
counter tracker_site_calls_total{call, outcome} = site_call.*.*: Calls of a site's own code: done, refused, or failed
    because of the tracker or its store
counter tracker_site_rows_total{outcome} = site_sync.{written,repaired,refused}: Rows of the site's own tables: written,
    repaired by the daily comparison, or refused because they do not fit
counter tracker_site_errors_total = site_sync.errors: Rounds of the site sync that failed; the next one repeats them
gauge tracker_site_lag_seconds = site_lag_seconds: How far the site's own tables are behind; 0 where this tracker does
    not keep them
counter tracker_store_round_trips_total{outcome} = store.{answered,error,refused,timeout,unreachable}: Round trips to
    the store, by outcome
histogram tracker_store_round_trip_seconds = store_seconds: Duration of a round trip to the store
gauge tracker_processes_without_store = processes_without_store: Processes of this tracker waiting for the store
gauge tracker_shards_unavailable: Shards of the store that do not answer, so that their torrents are refused; /ready
    names them
counter tracker_geoip_updates_failed_total = geoip.failed: Failed updates of the GeoIP database
gauge tracker_store_refuses_writes: 1 while the store, or a shard of it, refuses writes, so that announces are refused;
    /ready names the reason
gauge tracker_store_up: 1 if the store (with several shards: the main store) answered this scrape; else its metrics are
    missing
"""
_STORE = """\
gauge tracker_torrents: Registered torrents
gauge tracker_peers{state}: Active peers, by state
gauge tracker_peers_by_family{state, family}: Active peers as the last sweep round counted them, by address family; a
    peer on both counts in each
gauge tracker_peers_by_protocol{state, protocol}: Active peers as the last sweep round counted them, by the protocol of
    their last join
gauge tracker_limited_subjects: Subjects over a rate limit: addresses, and their torrents and peers
gauge tracker_users: Users
gauge tracker_scored_torrents: Torrents in the ranking
gauge tracker_scores_due: Torrents due for scoring
gauge tracker_scores_late: Torrents overdue for scoring by more than one interval
gauge tracker_scores_oldest_seconds: Time since the oldest scoring
gauge tracker_jobs{queue, status}: Jobs, by queue and status
gauge tracker_figures_waiting: Samples waiting to be sent to StatHat or StatsD
gauge tracker_changes: Changes in the change feed
gauge tracker_work_items{project, state}: Items of work distribution, by queue; out: claims; done: finished items that
    are kept
counter tracker_work_claims_total{project, outcome}: Claims given out, and how they ended; repaired: their record was
    overwritten
counter tracker_work_reported_bytes_total{project}: Bytes reported by claimants
counter tracker_work_verified_seconds_total{project}: Verified seed time of claims
counter tracker_work_unverified_done_total{project}: Finished claims that nothing verified
gauge tracker_work_bytes{seeders}: Bytes of registered torrents of known size, by number of seeders; updated every 6
    hours
histogram tracker_work_claim_seconds: Time from claim to done
counter tracker_store_events_total{event}: Events on all trackers of the store, since its creation
counter tracker_store_credit_cut_bytes_total: Bytes not credited because the rate exceeded the limit
gauge tracker_store_memory_bytes{node}: Memory used by the store; missing if INFO is forbidden. node: with several
    nodes, the address of each
gauge tracker_store_memory_limit_bytes{node}: Memory limit of the store, also by node; missing if unlimited
"""
_ROW = re.compile(r"(\w+) (\w+)(?:{(.*?)})?(?: = (\S+))?: (.*)")


def _parsed(table: str, scope: Scope) -> Iterator[Metric]:
    for row in table.replace("\n    ", " ").splitlines():
        found = _ROW.fullmatch(row)
        assert found is not None, row
        kind, name, labels, source, text = found.groups()
        yield Metric(name, cast("Kind", kind), text, tuple(labels.split(", ")) if labels else (), source or "", scope)


METRICS = (*_parsed(_TRACKER, "tracker"), *_parsed(_STORE, "store"))


def _sources(kind: Kind) -> dict[str, Source]:
    """By name in the telemetry: braces hold the values of labels."""
    found: dict[str, Source] = {}
    for metric in METRICS:
        if metric.source and metric.kind == kind and "*" not in metric.source:
            pattern = re.sub("{.*?}", "{}", metric.source)
            values = (each.split(",") for each in re.findall("{(.*?)}", metric.source))
            found |= {pattern.format(*labels): (metric.name, labels) for labels in product(*values)}
    return found


COUNTED: dict[str, Source] = {
    **_sources("counter"),
    "announces": ("tracker_requests_total", ("announce", "answered")),
    "scrapes": ("tracker_requests_total", ("scrape", "answered")),
    "refused.announces": ("tracker_requests_total", ("announce", "refused")),
    "refused.scrapes": ("tracker_requests_total", ("scrape", "refused")),
    "refused.other": ("tracker_requests_total", ("other", "refused")),
    "udp.connects": ("tracker_udp_answered_total", ("connect",)),
    "announces.udp": ("tracker_udp_answered_total", ("announce",)),
    "scrapes.udp": ("tracker_udp_answered_total", ("scrape",)),
    "limited.passkeys.refused": ("tracker_limited_total", ("passkeys", "refused")),
    "limited.passkeys.dropped": ("tracker_limited_total", ("passkeys", "dropped")),
    "site_call.unknown.refused": ("tracker_site_calls_total", ("unknown", "refused")),
}
"""Exposed as 0 from the start, so that the first event shows as an increase."""

WITH_LABELS = {
    metric.source.replace(".", r"\.").replace("*", "(.*?)"): metric.name for metric in METRICS if "*" in metric.source
}
"""Patterns of names that have any labels -> metric."""
HISTOGRAMS: dict[str, Source] = {
    **_sources("histogram"),
    **{f"dht_query_seconds.{query}": ("tracker_dht_query_seconds", (query,)) for query in DHT_QUERIES},
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
    lines = ["| metric | kind | labels | scope | meaning |", "|---|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.scope} | {metric.help} |")
    return "\n".join(lines) + "\n"
