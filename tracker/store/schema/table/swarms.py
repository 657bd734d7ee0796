"""Torrents, the swarms of their peers, and what keeps those true."""

from tracker.store.schema.table.row import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:info_hash:<ih>",
        "STRING",
        "`<tid>`; its existence is what makes an info hash valid",
        "until deleted; in open mode, until the torrent had no peer for `forget_after_seconds` (for an hour "
        "if only one address ever joined), "
        "or makes room for a new one",
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
        "the last torrent id given out (ids in use are skipped); a site that numbers torrents itself takes "
        "its ids from here (`INCR`), or numbers beyond all it may give out",
        "for ever",
        "announce.lua, command line",
    ),
    KeySpec("t:deny:<ih>", "STRING", "the reason shown to the peer", "until deleted", "site, command line"),
    KeySpec(
        "t:denied",
        "ZSET",
        "`<ih>` of every denied torrent, by when it was denied (epoch s); a denial that a site wrote holds at "
        "once, and is listed "
        "here after a sweep if the torrent is known, else after `tracker reindex`",
        "until allowed",
        "deny.lua, index.lua",
    ),
    KeySpec(
        "t:i:name",
        "ZSET",
        "`<name><tab><ih>` of every torrent that has a name, all with score 0; the name is folded (one case, "
        "one space between "
        "words, 255 characters at most)",
        "with the torrent; a name that a site wrote is listed after a sweep",
        "add.lua, edit.lua, index.lua, sweep.lua, remove.lua",
    ),
    KeySpec(
        "t:i:info_hash",
        "ZSET",
        "`<tid>` of every torrent, by the first 13 digits of its info hash as a number",
        "with the torrent",
        "announce.lua in open mode, add.lua, index.lua, sweep.lua, remove.lua",
    ),
    KeySpec(
        "t:t:<ih>",
        "HASH",
        "announces, leechers, seeders, snatches, paused (partial seeds among the leechers), new (addresses "
        "first seen since the last "
        "scoring); s4, l4, s6, l6: the lengths of the arrays "
        "(a dual-stack peer is in two and counts once); tid: the id its peers go by; empty_since (epoch s); "
        "auto: 1 when it "
        "registered itself; completions: the last 64 of the last day in public mode, 28 hex digits each "
        "(digests of peer id and of endpoint, time); sole: the address (IPv6: its /64) that alone has joined "
        "such a torrent so far; scored_at (epoch s): when a scoring of it last counted as processed; "
        "elsewhere: the peers another tracker "
        "knew then, the most of them; crowded: networks with more than 3 endpoints in `t:addresses:<ih>`, or "
        "with one endpoint of several users; "
        "derived: 1 when peers have had derived ids; listed: its name as it stands in `t:i:name`; name, "
        "private, enabled, reason, multi_up, multi_dn where somebody set them",
        "with the torrent",
        "announce.lua, reap.lua, due.lua, sweep.lua, count_unique.lua, estimate_unique.lua, command line",
    ),
    KeySpec(
        "t:p:<tid>:<pid>",
        "HASH",
        "speed_up, speed_dn (bytes/s), completed (0/1), leeched (1: it was a leecher and did not say "
        "`completed`; public mode), user_id, first_announce, last_announce (epoch s), rejoined "
        "(epoch s; the last join of a remembered peer), total_time (s), "
        "active (0/1), uploaded, downloaded, left (bytes; empty when unsaid), paused (0/1), endpoints "
        "(packed, 6, 18 or 24 bytes), "
        "key (8 bytes of a keyed hash of the client's `key`, taken at the join), peer_id (the announced one, "
        "where `<pid>` was derived because it was another client's already), n4, n6 (its slot per family); "
        "endpoints, n4 and n6 while it is active. Absent: empty or 0 (both speeds or none)",
        "while the peer is active; then `peer_memory_seconds` in private mode, not at all in public mode",
        "announce.lua; reap.lua, due.lua, sweep.lua",
    ),
    KeySpec(
        "t:ptimeout:<tid>:<pid>",
        "STRING",
        "which due list the peer stands in: half its deadline, the last four digits; empty for none. Its "
        "expiry reaps the peer",
        "1.5 times the interval of the last answer, at least the reap interval; deleted by `stopped`",
        "announce.lua, due.lua",
    ),
    KeySpec(
        "t:due:<deadline>",
        "LIST",
        "each peer to be looked at then: peer id (20 bytes) and torrent id; the deadline is epoch s rounded up to 2",
        "deleted when worked through, and who is still there put into a later one; expires a day after its deadline",
        "announce.lua, due.lua",
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
        "packed endpoints; `<array>` is s4, l4, s6 or l6: seeders or leechers, IPv4 (6 bytes) or IPv6 (18 "
        "bytes). Only the first "
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
        "t:addresses:<ih>",
        "HASH",
        "the endpoints in the swarm by network (packed: an IPv4 address, or the /64 of an IPv6 one): the rest "
        "of each endpoint (2 or "
        "10 bytes) and its 20-byte peer id. By it a client that comes back under a new peer id takes its "
        "endpoint over, and no network "
        "has more endpoints than it may",
        "with the swarm",
        "announce.lua, reap.lua, due.lua, sweep.lua",
    ),
    KeySpec(
        "t:addresses",
        "HASH",
        "endpoints in all swarms, by network as above, and by /24 (3 bytes) and /48 (6 bytes)",
        "while there are any; it may be deleted at any time, and counts anew from then on",
        "announce.lua, reap.lua, due.lua, sweep.lua",
    ),
    KeySpec(
        "t:addresses:full",
        "STRING",
        "networks that have as many endpoints as they may, in hex between spaces; one that has fewer again is "
        "taken out when a peer of it "
        "joins",
        "while there are any",
        "announce.lua",
    ),
    KeySpec(
        "t:registered_by:<address>",
        "STRING",
        "torrents that this address (IPv6: its /64, `2001:0db8:0000:0001::`) or network (`192.0.2.0/24`, "
        "`2001:0db8:0000::/48`) registered in "
        "the current hour, open mode",
        "1 hour",
        "announce.lua",
    ),
    KeySpec(
        "t:limits",
        "ZSET",
        "`<stage> <limit> <subject>` of who is over a limit, by when that is over (epoch s): stage 1 is "
        "throttled, 2 refused, 3 dropped; "
        "the subject is an address (IPv6: its /64), with `<ih>`, or `<ih>` and `<pid>`, behind it where it "
        "goes by torrent or peer. At most 4096",
        "2 minutes after the last excess",
        "count_hits.lua",
    ),
    KeySpec(
        "t:limits:<window>",
        "HASH",
        "how often, by `<limit> <subject>`, of those who do much; the window is the minute that begins then "
        "(epoch s). At most 20,000 subjects",
        "3 minutes",
        "count_hits.lua",
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
)
