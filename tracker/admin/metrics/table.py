"""Every metric: its name, kind and labels, what it says, and whose figure it is. docs/metrics.md is made from this.

``COUNTED`` and ``GAUGES`` say which of them carry what a process counts under which name (tracker/telemetry.py).
"""

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram", "info"]
Whose = Literal["tracker", "store"]


class Metric(NamedTuple):
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    whose: Whose = "tracker"
    """``tracker``: of this tracker, all of its processes together; ``store``: the same on every tracker of one store."""


_TRACKER = (
    Metric(
        "tracker_build_info",
        "info",
        "Versions: of the tracker, of Python, and of the store's server",
        ("version", "python", "store"),
    ),
    Metric("tracker_start_time_seconds", "gauge", "When this tracker started, in seconds since 1970"),
    Metric("tracker_ready", "gauge", "1 when the tracker is ready to serve, as /ready says"),
    Metric("tracker_processes", "gauge", "Processes of this tracker that are at work"),
    Metric(
        "tracker_requests_total",
        "counter",
        "Announces and scrapes, answered or refused; other was refused before it was known to be either",
        ("kind", "result"),
    ),
    Metric("tracker_announces_total", "counter", "Announces answered, by the address family", ("family",)),
    Metric("tracker_announce_events_total", "counter", "Announces answered, by their event", ("event",)),
    Metric("tracker_scrapes_total", "counter", "Scrapes answered, by the address family", ("family",)),
    Metric("tracker_failures_total", "counter", "Requests refused, by reason", ("reason",)),
    Metric(
        "tracker_limited_total",
        "counter",
        "Requests that a limit on addresses made a difference to, by what it counts and what was done",
        ("limit", "action"),
    ),
    Metric("tracker_joins_total", "counter", "Peers that joined a swarm, by the address family", ("family",)),
    Metric(
        "tracker_reported_bytes_total",
        "counter",
        "Bytes that peers say they have moved",
        ("direction", "family"),
    ),
    Metric("tracker_announce_seconds", "histogram", "Time from an announce read to its answer ready"),
    Metric("tracker_announce_batch_size", "histogram", "Announces that shared one call of the store"),
    Metric("tracker_announces_in_flight", "gauge", "Announces that wait for the store or are with it"),
    Metric("tracker_announces_waiting", "gauge", "Announces that wait for the next call of the store"),
    Metric("tracker_http_connections", "gauge", "Connections of peers and proxies that are open"),
    Metric("tracker_asyncio_tasks", "gauge", "Tasks of the event loops: a number that only grows is a leak"),
    Metric("tracker_reaps_total", "counter", "Silent peers removed, by what found them", ("cause",)),
    Metric(
        "tracker_reap_lag_seconds",
        "histogram",
        "Time from the timeout of a peer to its removal, where a due list found it",
    ),
    Metric(
        "tracker_reap_behind_seconds", "gauge", "How long ago the next due list to be worked through was due"
    ),
    Metric(
        "tracker_reap_interval_seconds", "gauge", "The reap interval, as set: a sweep takes about as long"
    ),
    Metric("tracker_sweep_repairs_total", "counter", "What the sweep had to repair; must stay 0"),
    Metric("tracker_sweep_last_seconds", "gauge", "How long the last whole round of the sweep took"),
    Metric(
        "tracker_sweep_end_timestamp_seconds",
        "gauge",
        "When the last whole round of the sweep ended, in seconds since 1970; missing before the first",
    ),
    Metric("tracker_torrents_forgotten_total", "counter", "Empty torrents forgotten in open mode"),
    Metric("tracker_torrents_scored_total", "counter", "Torrents scored, each at most once an hour"),
    Metric("tracker_new_unique_users_total", "counter", "Addresses that were new to a torrent"),
    Metric("tracker_joins_waiting", "gauge", "Joins that unique users have yet to hear of"),
    Metric(
        "tracker_joins_dropped_total", "counter", "Joins that unique users did not hear of: too many waited"
    ),
    Metric("tracker_software_waiting", "gauge", "Joins and refusals that the counts of programs lack so far"),
    Metric(
        "tracker_software_dropped_total",
        "counter",
        "Joins and refusals whose client program was not counted: too many different ones",
    ),
    Metric(
        "tracker_geoip_misses_total", "counter", "Lookups of addresses that the GeoIP database does not know"
    ),
    Metric(
        "tracker_geoip_usable", "gauge", "1 when the GeoIP database that is set is in use, 0 when it is not"
    ),
    Metric("tracker_geoip_build_timestamp_seconds", "gauge", "When the GeoIP database was made"),
    Metric("tracker_job_changes_total", "counter", "Jobs that got a status, by queue", ("queue", "status")),
    Metric(
        "tracker_figures_total",
        "counter",
        "Figures for StatHat or StatsD that were sent, or refused there and dropped",
        ("receiver", "outcome"),
    ),
    Metric(
        "tracker_figure_requests_failed_total",
        "counter",
        "Requests to StatHat or StatsD that failed",
        ("receiver",),
    ),
    Metric(
        "tracker_store_round_trips_total",
        "counter",
        "Round trips to the store, by how they ended",
        ("outcome",),
    ),
    Metric("tracker_store_round_trip_seconds", "histogram", "Time of a round trip to the store"),
    Metric(
        "tracker_processes_without_store",
        "gauge",
        "Processes of this tracker that wait for the store to come back",
    ),
    Metric(
        "tracker_store_up",
        "gauge",
        "1 when the store answered this scrape; the figures of the store need that",
    ),
)

_STORE = (
    Metric("tracker_torrents", "gauge", "Torrents known", (), "store"),
    Metric("tracker_peers", "gauge", "Active peers, by what they are", ("state",), "store"),
    Metric(
        "tracker_limited_subjects",
        "gauge",
        "Addresses, and their torrents and peers, that are over a limit",
        (),
        "store",
    ),
    Metric("tracker_users", "gauge", "Users (private mode)", (), "store"),
    Metric("tracker_scored_torrents", "gauge", "Torrents in the ranking", (), "store"),
    Metric("tracker_scores_due", "gauge", "Torrents whose turn to be scored has come", (), "store"),
    Metric("tracker_scores_late", "gauge", "Torrents whose turn came more than an interval ago", (), "store"),
    Metric(
        "tracker_scores_oldest_seconds", "gauge", "Time since the scoring that is longest ago", (), "store"
    ),
    Metric("tracker_jobs", "gauge", "Jobs there are, by queue and status", ("queue", "status"), "store"),
    Metric(
        "tracker_figures_waiting", "gauge", "Figures that wait to be sent to StatHat or StatsD", (), "store"
    ),
    Metric(
        "tracker_store_events_total",
        "counter",
        "What happened on all trackers of the store together, since its beginning",
        ("event",),
        "store",
    ),
    Metric(
        "tracker_store_credit_cut_bytes_total",
        "counter",
        "Bytes not credited: moved faster than allowed",
        (),
        "store",
    ),
    Metric(
        "tracker_store_memory_bytes",
        "gauge",
        "Memory that the store uses (missing where INFO is forbidden)",
        (),
        "store",
    ),
    Metric(
        "tracker_store_memory_limit_bytes",
        "gauge",
        "Memory that the store may use, where there is a limit",
        (),
        "store",
    ),
)

METRICS = (*_TRACKER, *_STORE)

Source = tuple[str, tuple[str, ...]]
"""(metric, values of its labels)"""

COUNTED: dict[str, Source] = {
    "announces": ("tracker_requests_total", ("announce", "answered")),
    "scrapes": ("tracker_requests_total", ("scrape", "answered")),
    "refused.announces": ("tracker_requests_total", ("announce", "refused")),
    "refused.scrapes": ("tracker_requests_total", ("scrape", "refused")),
    "refused.other": ("tracker_requests_total", ("other", "refused")),
    **{f"announces.{family}": ("tracker_announces_total", (family,)) for family in ("v4", "v6")},
    **{
        f"announces.{event}": ("tracker_announce_events_total", (event,))
        for event in ("started", "completed", "stopped")
    },
    **{f"scrapes.{family}": ("tracker_scrapes_total", (family,)) for family in ("v4", "v6")},
    **{f"joins.{family}": ("tracker_joins_total", (family,)) for family in ("v4", "v6")},
    **{
        f"bytes.{way}.{family}": ("tracker_reported_bytes_total", (way, family))
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
    "torrents.processed": ("tracker_torrents_scored_total", ()),
    "unique.new": ("tracker_new_unique_users_total", ()),
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
    **{
        f"store.{outcome}": ("tracker_store_round_trips_total", (outcome,))
        for outcome in ("answered", "error", "refused", "timeout", "unreachable")
    },
}
"""Counted from the start, so that the first of a kind is seen as a rise from 0."""

HISTOGRAMS = {
    "announce_seconds": "tracker_announce_seconds",
    "announce_batch": "tracker_announce_batch_size",
    "reap_lag_seconds": "tracker_reap_lag_seconds",
    "store_seconds": "tracker_store_round_trip_seconds",
}

GAUGES = {
    "processes": "tracker_processes",
    "processes_without_store": "tracker_processes_without_store",
    "announces_in_flight": "tracker_announces_in_flight",
    "announces_waiting": "tracker_announces_waiting",
    "connections": "tracker_http_connections",
    "asyncio_tasks": "tracker_asyncio_tasks",
    "due_behind_seconds": "tracker_reap_behind_seconds",
    "sweep_seconds": "tracker_sweep_last_seconds",
    "swept_at": "tracker_sweep_end_timestamp_seconds",
    "joins_waiting": "tracker_joins_waiting",
    "software_waiting": "tracker_software_waiting",
    "geoip_misses": "tracker_geoip_misses_total",
}

EVENTS = (
    "announces",
    "scrapes",
    "requests",
    "reaped",
    "repairs",
    "forgotten",
    "tally_dropped",
    "software_dropped",
    "outbox_dropped",
)
"""Global figures of the store that only ever grow, unless somebody wipes them."""


def as_markdown() -> str:
    """The table of docs/metrics.md."""
    lines = ["| metric | kind | labels | whose | what it says |", "|---|---|---|---|---|"]
    for metric in METRICS:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.whose} | {metric.help} |")
    return "\n".join(lines) + "\n"
