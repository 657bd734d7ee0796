"""The key table: what is in the store, key by key. docs/keys.md is made from it, and a test holds the store against it.

``<ih>`` is an info hash and ``<pid>`` a peer id, each as 40 lowercase hex digits (raw ids may contain ``:``);
``<tid>`` is a decimal torrent id, ``<uid>`` a decimal user id.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeySpec:
    """One row of the key table."""

    pattern: str
    type: str
    holds: str
    lifetime: str
    writer: str


KEYS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:info_hash:<ih>",
        "STRING",
        "`<tid>`; its existence is what makes an info hash valid",
        "until deleted; in open mode, until the torrent had no peer for `forget_after_seconds`",
        "site, command line; announce.lua in open mode, sweep.lua forgets",
    ),
    KeySpec(
        "t:torrent_id:<tid>",
        "STRING",
        "`<ih>`, the way back (the reaper needs it)",
        "with the torrent; kept until the swarm is empty even when `t:info_hash` is deleted",
        "announce.lua when missing or different, command line",
    ),
    KeySpec(
        "t:torrent_id",
        "STRING",
        "the last torrent id given out (ids in use are skipped); a site that numbers torrents itself takes its ids from here (`INCR`), or numbers beyond all it may give out",
        "for ever",
        "announce.lua, command line",
    ),
    KeySpec("t:deny:<ih>", "STRING", "the reason shown to the peer", "until deleted", "site, command line"),
    KeySpec(
        "t:t:<ih>",
        "HASH",
        "announces, leechers, seeders, snatches, paused (partial seeds among the leechers), new (addresses first seen since the last "
        "scoring); s4, l4, s6, l6: lengths of the "
        "arrays (a dual-stack peer is in two and counts once); tid: the id its peers go by; empty_since (epoch s); auto: 1 when it "
        "registered itself; scored_at (epoch s): when a scoring of it last counted as processed; elsewhere: the peers another tracker "
        "knew then, the most of them; name, private, enabled, reason, multi_up, multi_dn where somebody set them",
        "with the torrent",
        "announce.lua, reap.lua, due.lua, sweep.lua, sight.lua, estimate.lua, command line",
    ),
    KeySpec(
        "t:p:<tid>:<pid>",
        "HASH",
        "speed_up, speed_dn (bytes/s), completed (0/1), user_id, first_announce, last_announce (epoch s), total_time (s), "
        "active (0/1), uploaded, downloaded, left (bytes; empty when unsaid), paused (0/1), endpoints (packed, 6, 18 or 24 bytes), "
        "key (8 bytes of a keyed hash of the client's `key`, taken at the join), n4, n6 (its slot per family). Absent: empty or 0",
        "while the peer is active; then `peer_memory_seconds` in private mode, not at all in public mode",
        "announce.lua; reap.lua, due.lua, sweep.lua",
    ),
    KeySpec(
        "t:ptimeout:<tid>:<pid>",
        "STRING",
        "`1`; its expiry reaps the peer",
        "1.5 times the interval of the last answer, at least the reap interval; deleted by `stopped`",
        "announce.lua",
    ),
    KeySpec(
        "t:due:<deadline>",
        "STRING",
        "28 bytes for each timeout due then: torrent id (8 bytes, big-endian) and peer id; the deadline is epoch s rounded up to 2",
        "deleted when worked through; expires a day after its deadline",
        "announce.lua; due.lua deletes",
    ),
    KeySpec("t:due", "STRING", "the last deadline worked through (epoch s)", "for ever", "reaper"),
    KeySpec(
        "t:tpeers:<ih>",
        "SET",
        "`<pid>` of every active peer",
        "while the swarm lives",
        "announce.lua, reap.lua, due.lua, sweep.lua",
    ),
    KeySpec(
        "t:p:<pid>:torrents",
        "SET",
        "`<tid>` that the peer is in now",
        "while it is in one",
        "announce.lua, reap.lua, due.lua, sweep.lua",
    ),
    KeySpec(
        "t:swarm:<ih>:<array>",
        "STRING",
        "packed endpoints; `<array>` is s4, l4, s6 or l6: seeders or leechers, IPv4 (6 bytes) or IPv6 (18 bytes). Only the first "
        "n slots (n from `t:t:<ih>`) are valid, what follows is slack",
        "with the swarm",
        "announce.lua, reap.lua, due.lua, sweep.lua",
    ),
    KeySpec(
        "t:swarm:<ih>:<array>i",
        "STRING",
        "the 20-byte peer ids of the same slots",
        "with the swarm",
        "announce.lua, reap.lua, due.lua, sweep.lua",
    ),
    KeySpec(
        "t:whitelist:<prefix>",
        "HASH",
        "name: long client name; `<prefix>` begins the peer ids allowed when the allow-list is switched on",
        "until deleted",
        "site, command line",
    ),
    KeySpec("t:whitelist", "SET", "the prefixes", "for ever", "site, command line"),
    KeySpec(
        "t:user:<passkey>",
        "HASH",
        "user_id, enabled (0/1), can_leech (0/1)",
        "until deleted",
        "site, command line",
    ),
    KeySpec("t:users", "ZSET", "passkey by user_id", "for ever", "site, command line"),
    KeySpec(
        "t:user_id",
        "STRING",
        "the last user id given out (ids in use are skipped)",
        "for ever",
        "command line",
    ),
    KeySpec(
        "t:u:<uid>",
        "HASH",
        "uploaded, downloaded (credited bytes), snatches, announces, passkey",
        "with the user",
        "announce.lua, command line",
    ),
    KeySpec(
        "t:u:<uid>:t:<tid>",
        "HASH",
        "uploaded, downloaded (bytes as reported, without multipliers), total_time, seed_time (s), completed_at (epoch s), peers "
        "(active now); from, until: the stretch of time counted last. Adds up over all peer ids of the user there",
        "with the user",
        "announce.lua, reap.lua, due.lua, sweep.lua",
    ),
    KeySpec(
        "t:u:<uid>:<set>",
        "SET",
        "`<tid>`; `<set>` is active, complete, incomplete or hnr (hit and run)",
        "with the user",
        "announce.lua, reap.lua, due.lua, sweep.lua",
    ),
    KeySpec(
        "t:stats:<figure>",
        "STRING",
        "global figures: leechers, seeders (at once); announces, scrapes, requests (at most 1 s late); credit_cut (bytes), "
        "reaped, repairs (must stay 0), forgotten, outbox_dropped, tally_dropped",
        "for ever",
        "the scripts; count.lua",
    ),
    KeySpec("t:stats:failures", "HASH", "refused requests by reason", "for ever", "count.lua"),
    KeySpec(
        "t:counted:<process>",
        "STRING",
        "number of the last batch of counts that this process wrote: sent twice it counts once",
        "1 day",
        "count.lua",
    ),
    KeySpec(
        "t:i:<figure>",
        "ZSET",
        "`<tid>` of every torrent by leechers, seeders or snatches; in score those whose score is 0.005 or more",
        "with the torrent",
        "the scripts, command line",
    ),
    KeySpec(
        "t:registered_by:<address>",
        "STRING",
        "torrents this address (IPv6: its /64) registered in the current hour, open mode",
        "1 hour",
        "announce.lua",
    ),
    KeySpec("t:heartbeat", "STRING", "when a tracker was last here (epoch s)", "for ever", "heartbeat.lua"),
    KeySpec(
        "t:gap",
        "STRING",
        "the last outage, `from until` (epoch s): nobody could announce then",
        "for ever",
        "heartbeat.lua",
    ),
    KeySpec(
        "t:secret",
        "STRING",
        "32 random bytes that key the hash of the clients' `key`",
        "for ever",
        "the first tracker",
    ),
    KeySpec(
        "t:<metric>",
        "STRING",
        "unique users of all time; `<metric>` is `countries.<country>.users`, `cities.<city>.users`, "
        "`postcodes.<postcode>.users`, `torrents.<ih>.users` or `torrents.<ih>.` and one of the first three",
        "for ever; those of a torrent with the torrent",
        "sight.lua, estimate.lua",
    ),
    KeySpec(
        "t:<metric>.<month>",
        "STRING",
        "unique users of one month (UTC, `YYYY-MM`)",
        "13 months after its end; those of a torrent at most with the torrent",
        "sight.lua, estimate.lua",
    ),
    KeySpec(
        "t:<metric>.<seen>",
        "STRING",
        "when (epoch s) the metric counted this address: `<seen>` is an IPv4 address, an IPv6 /64, or in mode `hashed` 32 hex digits",
        "30 days; the script compares the time it holds, expiry only cleans up",
        "sight.lua, modes exact and hashed",
    ),
    KeySpec(
        "t:hll:<metric>",
        "STRING",
        "HyperLogLog of the addresses of all time",
        "as the figure it estimates",
        "estimate.lua, mode hyperloglog",
    ),
    KeySpec(
        "t:hll:<metric>.<month>",
        "STRING",
        "HyperLogLog of the addresses of one month",
        "as the figure it estimates",
        "estimate.lua, mode hyperloglog",
    ),
    KeySpec(
        "t:i:unique:<scope>:<period>",
        "ZSET",
        "leaderboard of unique users: `<scope>` is countries, cities, postcodes or torrents, `<period>` is all or `YYYY-MM`",
        "all: for ever; a month: 13 months after its end",
        "sight.lua, estimate.lua",
    ),
    KeySpec(
        "t:i:unique:torrents.<ih>",
        "ZSET",
        "the places a torrent was seen in, such as `countries.GB`, by unique users of all time",
        "with the torrent",
        "sight.lua, estimate.lua",
    ),
    KeySpec(
        "t:i:processed",
        "ZSET",
        "every `<tid>` in `t:i:score` by when it was last scored or entered (epoch s)",
        "as long as it is in `t:i:score`",
        "the scripts",
    ),
    KeySpec(
        "t:leases:<kind>",
        "ZSET",
        "what somebody works on just now, by when the lease ends; `<kind>` is torrents (being scored, epoch s), outbox (minutes being sent, epoch s)",
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
        "start of the slice (epoch s) -> `count mean m2 min max` of what was measured in it (m2: the sum of squared differences from the mean)",
        "the last 120 slices",
        "count.lua, clean.lua",
    ),
    KeySpec(
        "t:outbox:<minute>",
        "HASH",
        "statistic -> count, on its way to StatHat or StatsD; `<minute>` is its start (epoch s)",
        "until sent",
        "count.lua, sight.lua, estimate.lua; sent.lua",
    ),
    KeySpec(
        "t:outbox",
        "ZSET",
        "the minutes that have something to send",
        "while something waits",
        "outbox.lua; sent.lua, collect.lua",
    ),
    KeySpec(
        "t:outbox:waiting",
        "STRING",
        "how many statistics wait in all minutes",
        "while something waits",
        "outbox.lua; sent.lua, collect.lua",
    ),
    KeySpec("t:job", "STRING", "the last job id given out", "for ever", "enqueue.lua"),
    KeySpec(
        "t:job:<id>",
        "HASH",
        "a job: id, queue, status, fingerprint (of queue and payload), payload (JSON), retries, max_retries, priority (-10 to 10), run_after, "
        "deadline, created, started, finished (epoch ms; empty when there is none), error (of its last run), cursor (how far it came)",
        "until `keep_seconds` after it finished, and among the newest 10,000 of its queue and status",
        "enqueue.lua, claim.lua, finish.lua, retry.lua; purge.lua deletes",
    ),
    KeySpec("t:q", "SET", "the queues that ever had a job", "for ever", "enqueue.lua"),
    KeySpec(
        "t:q:<queue>:<status>",
        "ZSET",
        "the ids of a queue's jobs by status: pending and retry by when they may run, running by when the lease ends, "
        "completed and failed by when they finished (epoch ms)",
        "with the jobs",
        "enqueue.lua, claim.lua, extend.lua, finish.lua, retry.lua, purge.lua",
    ),
    KeySpec(
        "t:q:<queue>:running:tokens",
        "HASH",
        "the token of whoever runs each job: a result with another one is void",
        "with the lease",
        "lease.lua",
    ),
    KeySpec(
        "t:q:<queue>:ready",
        "ZSET",
        "jobs that may run, the next one first: by when they may (epoch ms), 60,000 earlier for each point of priority, "
        "1,260,000 later for a retry",
        "until claimed",
        "enqueue.lua, claim.lua, finish.lua, retry.lua",
    ),
    KeySpec(
        "t:q:<queue>:delayed",
        "ZSET",
        "jobs that may not run yet, by when they may (epoch ms)",
        "until then",
        "enqueue.lua, finish.lua; claim.lua",
    ),
    KeySpec(
        "t:q:<queue>:deadlines",
        "ZSET",
        "jobs that wait and have a deadline, by it (epoch ms)",
        "until claimed",
        "enqueue.lua, finish.lua, retry.lua; claim.lua",
    ),
    KeySpec(
        "t:q:<queue>:fingerprints",
        "HASH",
        "fingerprint -> id of the jobs that wait or run: the same payload is one job",
        "until the job finishes",
        "enqueue.lua, retry.lua; claim.lua, finish.lua",
    ),
    KeySpec(
        "t:q:<queue>:slot",
        "STRING",
        "start (epoch ms) of the last slot of time whose periodic job was enqueued",
        "for ever",
        "enqueue_slot.lua",
    ),
)


def as_markdown() -> str:
    """docs/keys.md: the key table."""
    rows = "\n".join(f"| `{k.pattern}` | {k.type} | {k.holds} | {k.lifetime} | {k.writer} |" for k in KEYS)
    return f"""# Keys

What the tracker keeps in its store, key by key. The prefix `t:` is the setting `TRACKER_REDIS__PREFIX`. `<ih>` is an info hash and
`<pid>` a peer id, each as 40 lowercase hex digits; `<tid>` is a decimal torrent id, `<uid>` a decimal user id.

| key | type | holds | lifetime | written by |
|---|---|---|---|---|
{rows}

A site may change `t:info_hash`, `t:deny`, `t:t`, `t:user` and `t:whitelist` by itself: all but the allow-list hold from the very next
announce. After a change of the allow-list, publish anything on `t:whitelist` and it holds at once; without, within 5 seconds. Messages on
`t:torrents` and `t:users` are welcome too; nothing is cached that they would have to clear.
"""
