"""Counters, rankings, scores, and figures on their way out."""

from tracker.store.schema.table.row import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:stats:<figure>",
        "STRING",
        "global figures: leechers, seeders (at once); announces, scrapes, requests (at most 1 s late); "
        "credit_cut (bytes), "
        "reaped, repairs (must stay 0), forgotten, outbox_dropped, tally_dropped, software_dropped, unique_skipped",
        "for ever",
        "the scripts; count.lua",
    ),
    KeySpec("t:stats:failures", "HASH", "refused requests by reason", "for ever", "count.lua"),
    KeySpec(
        "t:counted:<process>",
        "STRING",
        "number of the last batch of counts that this process wrote: sent twice it counts once",
        "1 day",
        "count.lua, software.lua",
    ),
    KeySpec(
        "t:i:<figure>",
        "ZSET",
        "`<tid>` of every torrent by leechers, seeders or snatches; in score those whose score is 0.005 or more",
        "with the torrent",
        "the scripts, command line",
    ),
    KeySpec(
        "t:i:empty",
        "ZSET",
        "`<tid>` of every torrent that registered itself and has no peer, by when it became empty (epoch s): "
        "the first makes room when the "
        "register is full; without those that are disabled",
        "while the torrent is empty; one of an older store is listed by the sweep",
        "announce.lua, reap.lua, due.lua, sweep.lua, index.lua, add.lua",
    ),
    KeySpec(
        "t:i:processed",
        "ZSET",
        "every `<tid>` in `t:i:score` by when it was last scored or entered (epoch s)",
        "as long as it is in `t:i:score`",
        "the scripts",
    ),
    KeySpec(
        "t:history:<tid>",
        "LIST",
        "`time seeders leechers snatches score` at each of the last scorings (epoch s), oldest first; score "
        "0: it left the ranking; "
        "`TRACKER_SCORING__HISTORY` points, 72 of them take about 1.9 kB",
        "with the torrent; 7 days once it left `t:i:score`",
        "score.lua",
    ),
    KeySpec(
        "t:leases:<kind>",
        "ZSET",
        "what somebody works on just now, by when the lease ends; `<kind>` is torrents (being scored, epoch "
        "s), outbox (minutes being sent, epoch s)",
        "while it is worked on; a lease that ended is taken over",
        "lease.lua",
    ),
    KeySpec(
        "t:leases:<kind>:tokens",
        "HASH",
        "the token of whoever holds each lease: a result with another one is void",
        "with the lease",
        "lease.lua",
    ),
    KeySpec("t:lease", "STRING", "the number of the last token given out", "for ever", "lease.lua"),
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
        "start of the slice (epoch s) -> count; `<precision>` is its length: 1, 5, 60, 300, 3600, 18000 or 86400 s",
        "the last 120 slices",
        "count.lua, clean.lua",
    ),
    KeySpec(
        "t:dist:<precision>:<name>",
        "HASH",
        "start of the slice (epoch s) -> `count mean m2 min max` of what was measured in it (m2: the sum of "
        "squared differences from the mean)",
        "the last 120 slices",
        "count.lua, clean.lua",
    ),
    KeySpec(
        "t:outbox:<minute>",
        "HASH",
        "statistic -> count, on its way to StatHat or StatsD; `<minute>` is its start (epoch s)",
        "until sent",
        "count.lua, count_unique.lua, estimate_unique.lua; acknowledge.lua",
    ),
    KeySpec(
        "t:outbox",
        "ZSET",
        "the minutes that have something to send",
        "while something waits",
        "outbox.lua; acknowledge.lua, collect.lua",
    ),
    KeySpec(
        "t:outbox:waiting",
        "STRING",
        "how many statistics wait in all minutes",
        "while something waits",
        "outbox.lua; acknowledge.lua, collect.lua",
    ),
)
