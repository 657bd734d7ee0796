"""Every key of the store: how it is built, its type, what it holds, how long it lives and who writes it.

No key is built anywhere else, but for the scripts in lua/, which get the prefix and follow this table.
``<ih>`` is an info hash and ``<pid>`` a peer id, each as 40 lowercase hex digits (raw ids may contain ``:``);
``<tid>`` is a decimal torrent id, ``<uid>`` a decimal user id. docs/keys.md is made from this table.
"""

from dataclasses import dataclass

from tracker.bittorrent import InfoHash, PeerId


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
        "announces, leechers, seeders, snatches, paused (partial seeds among the leechers); s4, l4, s6, l6: lengths of the "
        "arrays (a dual-stack peer is in two and counts once); tid: the id its peers go by; empty_since (epoch s); auto: 1 when it "
        "registered itself; name, private, enabled, reason, multi_up, multi_dn where somebody set them",
        "with the torrent",
        "announce.lua, reap.lua, due.lua, sweep.lua, command line",
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
        "reaped, repairs (must stay 0), forgotten",
        "for ever",
        "the scripts; stats",
    ),
    KeySpec("t:stats:failures", "HASH", "refused requests by reason", "for ever", "stats"),
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
        "`<tid>` of every torrent by leechers, seeders or snatches",
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
)

CHANGES = ("torrents", "users", "whitelist")
"""Channels (after the prefix) a site may publish on when it changed the store by itself."""


class Keys:
    """Builds the keys of one prefix."""

    __slots__ = ("prefix",)

    def __init__(self, prefix: str = "t:") -> None:
        self.prefix = prefix

    def info_hash(self, info_hash: InfoHash) -> str:
        return f"{self.prefix}info_hash:{info_hash.hex()}"

    def torrent_id(self, torrent_id: int | str) -> str:
        return f"{self.prefix}torrent_id:{torrent_id}"

    def last_torrent_id(self) -> str:
        return f"{self.prefix}torrent_id"

    def deny(self, info_hash: InfoHash) -> str:
        return f"{self.prefix}deny:{info_hash.hex()}"

    def torrent(self, info_hash: InfoHash) -> str:
        return f"{self.prefix}t:{info_hash.hex()}"

    def peer(self, torrent_id: int | str, peer_id: PeerId) -> str:
        return f"{self.prefix}p:{torrent_id}:{peer_id.hex()}"

    def timeout(self, torrent_id: int | str, peer_id: PeerId) -> str:
        return f"{self.prefix}ptimeout:{torrent_id}:{peer_id.hex()}"

    def timeouts(self) -> str:
        """What all timeout keys begin with."""
        return f"{self.prefix}ptimeout:"

    def due(self, deadline: int) -> str:
        return f"{self.prefix}due:{deadline}"

    def due_cursor(self) -> str:
        return f"{self.prefix}due"

    def swarm_peers(self, info_hash: InfoHash) -> str:
        return f"{self.prefix}tpeers:{info_hash.hex()}"

    def peer_torrents(self, peer_id: PeerId) -> str:
        return f"{self.prefix}p:{peer_id.hex()}:torrents"

    def swarm_array(self, info_hash: InfoHash, array: str) -> str:
        return f"{self.prefix}swarm:{info_hash.hex()}:{array}"

    def swarm_array_ids(self, info_hash: InfoHash, array: str) -> str:
        return f"{self.prefix}swarm:{info_hash.hex()}:{array}i"

    def allowed_client(self, prefix: bytes) -> bytes:
        """A peer id prefix is bytes, and stands in the key as it is."""
        return f"{self.prefix}whitelist:".encode() + prefix

    def allowed_clients(self) -> str:
        return f"{self.prefix}whitelist"

    def passkey(self, passkey: str) -> str:
        return f"{self.prefix}user:{passkey}"

    def users(self) -> str:
        return f"{self.prefix}users"

    def last_user_id(self) -> str:
        return f"{self.prefix}user_id"

    def user(self, user_id: int | str) -> str:
        return f"{self.prefix}u:{user_id}"

    def user_torrent(self, user_id: int | str, torrent_id: int | str) -> str:
        return f"{self.prefix}u:{user_id}:t:{torrent_id}"

    def user_set(self, user_id: int | str, name: str) -> str:
        return f"{self.prefix}u:{user_id}:{name}"

    def stat(self, figure: str) -> str:
        return f"{self.prefix}stats:{figure}"

    def failures(self) -> str:
        return f"{self.prefix}stats:failures"

    def counted(self, process: str) -> str:
        return f"{self.prefix}counted:{process}"

    def index(self, figure: str) -> str:
        return f"{self.prefix}i:{figure}"

    def registered_by(self, address: str) -> str:
        return f"{self.prefix}registered_by:{address}"

    def heartbeat(self) -> str:
        return f"{self.prefix}heartbeat"

    def gap(self) -> str:
        return f"{self.prefix}gap"

    def secret(self) -> str:
        return f"{self.prefix}secret"

    def channel(self, name: str) -> str:
        return f"{self.prefix}{name}"


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
