"""Counters, rankings, scores, and the outbox of statistics."""

from tracker.store.schema.keys import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:stats:<counter>",
        "STRING",
        "a global counter: leechers, seeders (current); announces, scrapes, requests (at most 1 s late); credit_cut "
        "(bytes), reaped, repairs (0 expected), forgotten, outbox_dropped, tally_dropped, software_dropped, "
        "unique_skipped",
        "permanent",
        "several scripts",
    ),
    KeySpec(
        "t:stats:peers",
        "STRING",
        "what the last round of the sweep has counted, separated by spaces: seeders, leechers, those on IPv4 (two "
        "numbers), on IPv6, and those whose last join was over UDP",
        "three reap intervals after that round, at least 10 minutes",
        "sweep of the reaper",
    ),
    KeySpec("t:stats:failures", "HASH", "refused requests by reason", "permanent", "count.lua"),
    KeySpec(
        "t:refused:<reason>",
        "LIST",
        "`time info_hash uid client` of refused announces, newest first (epoch s, hex, `-` where no user is known, "
        "the program that the peer id names): a sample, the last 50 of each reason",
        "7 days after the last one",
        "store/stats/refusal_samples.py",
    ),
    KeySpec(
        "t:counted:<process>",
        "STRING",
        "number of the last batch of counts written by this process, so that a repeated batch counts once",
        "1 day",
        "count.lua, software.lua",
    ),
    KeySpec(
        "t:i:<ranking>",
        "ZSET",
        "`<tid>` of every torrent; score: its leechers, seeders or snatches. In `t:i:score`: torrents with a score "
        "of at least 0.005, by that score",
        "until the torrent is deleted",
        "several scripts, command line",
    ),
    KeySpec(
        "t:i:empty",
        "ZSET",
        "`<tid>` of every enabled torrent that registered itself and has no peer; score: when it became empty "
        "(epoch s). At the maximum number of torrents, the first one is removed for a new torrent, unless a "
        "network registered more than a tenth of all: then its first one",
        "while the torrent is empty. The sweep adds torrents that are not listed",
        "announce.lua, reap.lua, due.lua, sweep.lua, index.lua, add.lua",
    ),
    KeySpec(
        "t:i:processed",
        "ZSET",
        "every `<tid>` of `t:i:score`; score: when it was last scored, or entered the ranking (epoch s)",
        "while it is in `t:i:score`",
        "several scripts",
    ),
    KeySpec(
        "t:history:<tid>",
        "LIST",
        "`time seeders leechers snatches score` of the last scorings, oldest first (epoch s; score 0: the torrent "
        "left the ranking). At most `TRACKER_SCORING__HISTORY` points; 72 take about 1.9 kB",
        "until the torrent is deleted, or 7 days after it left `t:i:score`",
        "score.lua, work_note.lua",
    ),
    KeySpec(
        "t:leases:<kind>",
        "ZSET",
        "work in progress; score: end of the lease (epoch s). `<kind>` is torrents (being scored), outbox "
        "(minutes being sent), dht (nodes of the DHT that run, by name), shard (background work of a shard), "
        "trackers (those that share shards), samples (of the sizes of the store) or webhook (deliveries to a URL)",
        "until the work is done. Another worker may take over an ended lease",
        "leases.lua",
    ),
    KeySpec(
        "t:leases:<kind>:tokens",
        "HASH",
        "the current token of each lease. Results with another token are ignored",
        "as long as the lease",
        "leases.lua",
    ),
    KeySpec("t:lease", "STRING", "the last token assigned", "permanent", "take_lease.lua"),
    KeySpec(
        "t:known:",
        "ZSET",
        "`<precision>:<name>` of every sliced counter, all with score 0",
        "while it has slices",
        "count.lua, clean.lua",
    ),
    KeySpec(
        "t:known:dist",
        "ZSET",
        "`<precision>:<name>` of every sliced distribution, all with score 0",
        "while it has slices",
        "count.lua, clean.lua",
    ),
    KeySpec(
        "t:count:<precision>:<name>",
        "HASH",
        "start of the slice (epoch s) -> count. `<precision>` is the length of a slice: 1, 5, 60, 300, 900, 3600, "
        "7200, 18000, 28800 or 86400 s",
        "the last 120 slices",
        "count.lua, clean.lua",
    ),
    KeySpec(
        "t:dist:<precision>:<name>",
        "HASH",
        "start of the slice (epoch s) -> `count mean m2 min max` of the measured values (m2: sum of squared "
        "differences from the mean)",
        "the last 120 slices",
        "count.lua, clean.lua",
    ),
    KeySpec(
        "t:outbox:<minute>",
        "HASH",
        "statistic -> count, waiting for StatHat or StatsD. `<minute>` is the start of the minute (epoch s)",
        "until sent",
        "count.lua, count_unique.lua, estimate_unique.lua; acknowledge.lua deletes",
    ),
    KeySpec(
        "t:outbox",
        "ZSET",
        "the minutes with statistics to send",
        "while statistics wait",
        "count.lua, count_unique.lua, estimate_unique.lua; acknowledge.lua, collect.lua delete",
    ),
    KeySpec(
        "t:outbox:waiting",
        "STRING",
        "number of waiting statistics, over all minutes",
        "while statistics wait",
        "count.lua, count_unique.lua, estimate_unique.lua; acknowledge.lua, collect.lua delete",
    ),
)
