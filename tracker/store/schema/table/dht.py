"""Nodes of the DHT."""

from tracker.store.schema.keys import KeySpec

ROWS: tuple[KeySpec, ...] = (
    KeySpec("t:dht", "SET", "names of the nodes of the DHT that used this store", "permanent", "tracker"),
    KeySpec(
        "t:dht:<node>",
        "HASH",
        "a node of the DHT, for people and for its next start. id4, id6 (40 hex digits); external4, external6 (its "
        "addresses as others see them); nodes4, nodes6 (how many it knows); buckets4, buckets6 (bucket:nodes, with "
        "spaces between); hashes, peers (announced by other nodes); packets_in, packets_out, bytes_in, bytes_out; "
        "dropped, lookups (JSON: packets by reason, lookups by outcome); mode (public, all or any); registered, "
        "looked_at, part, unknown (torrents: registered; looked at to count those that take part; of these taking "
        "part; of unknown privacy); started, saved, last_answer (epoch s). A field that does not apply is absent",
        "7 days after it was last saved",
        "tracker, every 5 seconds and at the stop",
    ),
    KeySpec(
        "t:dht:<node>:nodes<family>",
        "STRING",
        "packed nodes that it knew when it last knew any, nearest first, at most 2,000 of 26 bytes (IPv4) or 38 "
        "(IPv6). `<family>` is 4 or 6",
        "7 days after it was last saved",
        "tracker, soon after the first answer, every 5 minutes and at the stop",
    ),
    KeySpec(
        "t:dht:peers:<ih>",
        "STRING",
        "packed IPv4 endpoints that a lookup in the DHT found, checked, at most 20. Announces that find few peers get "
        "them (`TRACKER_DHT__GIVE_PEERS`)",
        "30 minutes after the lookup",
        "dht_give.lua",
    ),
    KeySpec(
        "t:dht:peers:<ih>:6", "STRING", "the same of IPv6", "30 minutes after the lookup", "dht_give.lua"
    ),
    KeySpec(
        "t:i:dht",
        "ZSET",
        "`<tid>` of every torrent that was looked up in the DHT; score: when (epoch s)",
        "until the torrent is deleted",
        "dht_claim.lua, dht_found.lua, remove.lua, sweep.lua",
    ),
)
