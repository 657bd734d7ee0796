"""Torrents, swarms, peers, and limits on addresses."""

from tracker.store.schema.keys import KeySpec

_SWARM_SCRIPTS = "announce.lua, reap.lua, due.lua, sweep.lua"

ROWS: tuple[KeySpec, ...] = (
    KeySpec(
        "t:info_hash:<ih>",
        "STRING",
        "`<tid>`. The torrent is registered while this key exists",
        "until deleted. In open mode until the torrent has had no peer for `forget_after_seconds` (1 hour if only one "
        "address ever joined), or until it makes room for a new torrent",
        "site, command line; in open mode also announce.lua and sweep.lua",
    ),
    KeySpec(
        "t:torrent_id:<tid>",
        "STRING",
        "`<ih>`. The reaper finds the info hash of an id here",
        "until the torrent is deleted and its swarm is empty",
        "command line; announce.lua if it is missing or wrong",
    ),
    KeySpec(
        "t:torrent_id",
        "STRING",
        "the last torrent id assigned; ids in use are skipped. A site that assigns ids itself takes them from here "
        "(`INCR`), or uses numbers that the tracker will never reach",
        "permanent",
        "announce.lua, command line",
    ),
    KeySpec("t:deny:<ih>", "STRING", "the reason that clients show", "until deleted", "site, command line"),
    KeySpec(
        "t:denied",
        "ZSET",
        "`<ih>` of every denied torrent; score: the time of the denial (epoch s). A denial written by a site applies "
        "at once. It is listed here after a sweep if the torrent is known, else after `tracker reindex`",
        "until the denial is deleted",
        "deny.lua, index.lua",
    ),
    KeySpec(
        "t:i:name",
        "ZSET",
        "`<name><tab><ih>` of every torrent with a name; score 0. The name is folded: lower case, single spaces, at "
        "most 255 characters",
        "until the torrent is deleted. A name written by a site is listed after a sweep",
        "add.lua, edit.lua, index.lua, sweep.lua, remove.lua",
    ),
    KeySpec(
        "t:i:info_hash",
        "ZSET",
        "`<tid>` of every torrent; score: the first 13 hex digits of its info hash, as a number",
        "until the torrent is deleted",
        "announce.lua in open mode, add.lua, index.lua, sweep.lua, remove.lua",
    ),
    KeySpec(
        "t:i:torrent_<value>",
        "ZSET",
        "`<tid>` of every torrent; score by `<value>`: added (epoch s, 0: unknown), active (when its last peer left, "
        "epoch s; inf while it has peers, 0: it never had one), size (bytes; without torrents of unknown size). "
        "disabled, pending and private list only those that are so; score: as of added. Written when a program "
        "changes the torrent, and by a job some minutes after announces and a site's own writes",
        "until the torrent is deleted",
        "rank_torrents.lua, add.lua, edit.lua, and scripts that delete torrents",
    ),
    KeySpec(
        "t:indexed",
        "HASH",
        "versions of the indexes of lists, `t:i:torrent_<value>` and `t:i:user_<total>`, that have all torrents and "
        "users: torrents, users. If one is missing, or is not the tracker's, a job lists all of them",
        "permanent",
        "a job, `tracker reindex`",
    ),
    KeySpec(
        "t:t:<ih>",
        "HASH",
        "a torrent. announces, leechers, seeders, snatches: counts (a process adds regular announces every 10 s and "
        "when it stops; those of the last 20 s are lost when it is killed, or when the store does not answer the "
        "call); paused: partial seeds among the leechers; new: addresses first seen since the last scoring; s4, l4, "
        "s6, l6: lengths of the arrays (a dual-stack peer is in "
        "two arrays and counts once); tid: the id that its peers use; empty_since (epoch s); auto: 1 if it registered "
        "itself; completions: the last 64 within a day, of anonymous peers (28 hex digits each: digest of the peer id, "
        "digest of the endpoint, time); sole: the only address (IPv6: /64) that ever joined a torrent that registered "
        "itself; by: the network that registered it then, as in `t:registered_by:<address>`; added: when it was "
        "registered (epoch s); scored_at: the last scoring that counted as processed "
        "(epoch s); elsewhere: the largest number of "
        "peers that another tracker reported then; crowded: number of networks with more than 3 endpoints in "
        "`t:addresses:<ih>`, or with several users on one endpoint; derived: 1 if a peer ever had a derived id; "
        "listed: its name in `t:i:name`; user_downloaded: bytes that users downloaded since work distribution first "
        "gave the torrent to a claimant; dht_seeds, dht_peers, dht_at: what the last lookup in the DHT found, and when "
        "(epoch s); dht: until when `t:dht:peers:<ih>` exists in one of the families (epoch s). If set: name, "
        "private, enabled (1, 0, or pending: it waits for approval), reason, multi_up, multi_dn (as "
        "`t:upload_multiplier`), size (bytes; empty: unknown), labels (up to 20 of 1 to 32 characters of a-z, 0-9, "
        "`-`, `_` and `.`, separated by spaces). Of a hybrid torrent: hybrid_of of the v2 half: `<ih>` of the v1 half, "
        "which counts for users; hybrid of the v1 half: `<ih>` of the v2 half",
        "until the torrent is deleted",
        f"{_SWARM_SCRIPTS}, count_announces.lua, count_unique.lua, estimate_unique.lua, work_claim.lua, "
        "dht_found.lua, dht_give.lua, link.lua, unlink.lua, command line",
    ),
    KeySpec(
        "t:p:<tid>:<pid>",
        "HASH",
        "a peer. speed_up, speed_dn (bytes/s); completed (0/1); leeched: 1 if it was a leecher that has not sent "
        "`completed` (anonymous peers); user_id; first_announce, last_announce (epoch s); rejoined: the last join of a "
        "remembered peer (epoch s); total_time (s); active (0/1); uploaded, downloaded, left (bytes; left is empty if "
        "not sent); lower: when its last counters were lower than these, `UP DOWN TIME` of those that were, either may "
        "be empty; it holds while TIME (epoch s) is last_announce; paused (0/1); endpoints (packed, 6, 18 or 24 "
        "bytes); key: 8 bytes of a keyed hash of the client's "
        "`key` at the join; peer_id: the announced id, if `<pid>` is a derived one because another client owns the "
        "announced id; udp: 1 if its last join was over UDP; n4, n6: its slots in the arrays. endpoints, n4 and n6 "
        "exist while it is active. An absent field is "
        "empty or 0; both speeds are stored, or neither",
        "while the peer is active; a user's peer `peer_memory_seconds` longer",
        _SWARM_SCRIPTS,
    ),
    KeySpec(
        "t:connectable:<endpoint>",
        "STRING",
        "whether a peer at the endpoint (packed, in hex) accepted a connection, if `TRACKER_PROBE__CONNECTABLE` is on: "
        "1, 0, or ? if the check showed neither; a space; when (epoch s)",
        "a day",
        "note_connectable.lua",
    ),
    KeySpec(
        "t:ptimeout:<tid>:<pid>",
        "STRING",
        "the due list that contains the peer: the last four digits of (deadline / 2); empty for none. When this key "
        "expires, the peer is reaped",
        "1.5 times the interval of the last reply, at least the reap interval; deleted by `stopped`",
        "announce.lua, due.lua, shorten_timeouts.lua",
    ),
    KeySpec(
        "t:due:<deadline>",
        "LIST",
        "peers to check at the deadline, each as peer id (20 bytes) and torrent id. The deadline is an even number "
        "(epoch s)",
        "until it is processed; active peers then move to a later list. Expires a day after the deadline",
        "announce.lua, due.lua",
    ),
    KeySpec("t:due", "STRING", "the last deadline processed (epoch s)", "permanent", "reaper"),
    KeySpec(
        "t:tpeers:<ih>", "SET", "`<pid>` of every active peer", "while the swarm has peers", _SWARM_SCRIPTS
    ),
    KeySpec(
        "t:p:<pid>:torrents",
        "SET",
        "`<tid>` of every torrent where the peer is active",
        "while there is one",
        _SWARM_SCRIPTS,
    ),
    KeySpec(
        "t:swarm:<ih>:<array>",
        "STRING",
        "packed endpoints. `<array>` is s4, l4, s6 or l6: seeders or leechers, IPv4 (6 bytes each) or IPv6 (18 bytes "
        "each). `t:t:<ih>` holds the number of valid slots; later bytes are unused",
        "while the swarm has peers",
        _SWARM_SCRIPTS,
    ),
    KeySpec(
        "t:swarm:<ih>:<array>i",
        "STRING",
        "the 20-byte peer ids of the same slots",
        "while the swarm has peers",
        _SWARM_SCRIPTS,
    ),
    KeySpec(
        "t:addresses:<ih>",
        "HASH",
        "the swarm's endpoints by network. Field: the packed network (IPv4: the address; IPv6: the /64). Value: for "
        "each endpoint its remaining 2 or 10 bytes and the 20-byte peer id. A client that returns under a new peer id "
        "is recognised here, and endpoints per network are limited by it",
        "while the swarm has peers",
        _SWARM_SCRIPTS,
    ),
    KeySpec(
        "t:addresses",
        "HASH",
        "number of endpoints in all swarms by network: as above, and by /24 (3 bytes) and /48 (6 bytes). If it is "
        "deleted, counting restarts from 0",
        "while there are endpoints",
        _SWARM_SCRIPTS,
    ),
    KeySpec(
        "t:addresses:full",
        "STRING",
        "networks at their maximum number of endpoints, in hex, separated by spaces. A network below the maximum is "
        "removed when one of its peers joins",
        "while there is one",
        "announce.lua",
    ),
    KeySpec(
        "t:removing",
        "STRING",
        "whose peers are being removed, between spaces: `user:<uid>`, `client:<peer-id prefix in hex>`, and `user:*` "
        "for all users beyond a hundred. Replies to announces do not contain these peers",
        "some seconds, until the peers are removed",
        "edit_user.lua, save_users.lua, add_user.lua, delete_user.lua, copy_users.lua, begin_removal.lua, "
        "end_removal.lua",
    ),
    KeySpec(
        "t:removing:torrents",
        "SET",
        "`<ih>` of torrents that were disabled, denied or removed while they had peers, and of v2 halves of hybrid "
        "torrents with peers of a refused user, when the v1 half is in another shard",
        "some seconds, until the peers are removed",
        "edit.lua, add.lua, deny.lua, remove.lua, end_removal.lua, a process that removes peers",
    ),
    KeySpec(
        "t:registered_by:<address>",
        "STRING",
        "number of torrents registered in the current hour, in open mode, by this address (IPv6: its /64, "
        "`2001:0db8:0000:0001::`) or network (`192.0.2.0/24`, `2001:0db8:0000::/48`)",
        "1 hour",
        "announce.lua",
    ),
    KeySpec(
        "t:limits",
        "ZSET",
        "`<stage> <limit> <subject>` of the subjects over a rate limit; score: when the stage ends (epoch s). Stage 1 "
        "is throttled, 2 refused, 3 dropped. A subject is an address (IPv6: its /64), followed by `<ih>`, or by `<ih>` "
        "and `<pid>`, if the limit is per torrent or peer. At most 4,096",
        "2 minutes after the last request over the limit",
        "count_hits.lua",
    ),
    KeySpec(
        "t:limits:<window>",
        "HASH",
        "`<limit> <subject>` -> number of requests, only for heavy subjects. `<window>` is the start of a minute "
        "(epoch s). At most 20,000 subjects",
        "3 minutes",
        "count_hits.lua",
    ),
    KeySpec("t:heartbeat", "STRING", "when a tracker last ran (epoch s)", "permanent", "heartbeat.lua"),
    KeySpec(
        "t:gap",
        "STRING",
        "the last interruption, an outage or a step of a clock: what the tracker's clock showed before and after it "
        "(epoch s); by how much that clock has run ahead of the steady clock, which never steps and stands still "
        "during outages, and by how much it was set back in all (s). Separated by spaces",
        "permanent",
        "heartbeat.lua, due.lua, reap.lua, sweep.lua",
    ),
    KeySpec(
        "t:secret",
        "STRING",
        "32 random bytes: the key for hashes of clients' `key`, and of addresses in mode `hashed`",
        "permanent",
        "the first tracker",
    ),
    KeySpec(
        "t:copies",
        "ZSET",
        "with several shards, under the main prefix: passkeys, and `deleted:<uid>` for each deleted user; "
        "score: the number of the last change",
        "permanent",
        "scripts of users",
    ),
    KeySpec(
        "t:copies:version", "STRING", "the last number of a change in `t:copies`", "permanent", "the same"
    ),
    KeySpec(
        "t:copied",
        "STRING",
        "in a shard: up to which number it has the changes",
        "permanent",
        "copy_users.lua",
    ),
    KeySpec(
        "t:changed",
        "SET",
        "in a shard: users whose sums have changed, until they are written under the main prefix",
        "for seconds",
        "announce.lua and other scripts of swarms",
    ),
    KeySpec(
        "t:shards",
        "STRING",
        "with several shards, under the main prefix: their number. The main prefix is `t:{main}:`, that "
        "of shard 7 `t:{07}:`",
        "permanent",
        "the first tracker",
    ),
    KeySpec(
        "t:reshard",
        "HASH",
        "in a store that `tracker reshard` fills: how far it is. No tracker starts on such a store",
        "until it is full",
        "store/resharding",
    ),
)
