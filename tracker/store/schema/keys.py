"""Builds all keys of the store. table/ lists the type, content, lifetime and writers of each key.

The scripts in lua/ build keys as well: they receive the prefix and follow the same table.
"""

from binascii import crc_hqx
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from string import ascii_lowercase
from typing import Literal, get_args

from tracker.bittorrent import Endpoint, InfoHash, PeerId

Scope = Literal["countries", "cities", "postcodes"]
Board = Literal[Scope, "torrents"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""The kinds of places in which unique users are counted. All but the first are places in a country."""
BOARDS: tuple[Board, ...] = get_args(Board)
"""The leaderboards of unique users."""
MAX_SHARDS = 256
_SLOTS, _ENDING = 16384, 4
"""Slots of a cluster (https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/), and the number of
letters at the end of a shard's hash tag."""


def main_prefix_of(prefix: str, shards: int) -> str:
    """The prefix of all keys that belong to no torrent: the configured one if there is one shard."""
    return prefix if shards == 1 else f"{prefix}{{main}}:"


def shard_prefixes(prefix: str, shards: int) -> tuple[str, ...]:
    """The prefix of each shard, by its number. On a cluster the hash tag, which is the part in braces, decides where
    its keys are: their slots are evenly spaced, so that nodes with equally many slots have equally many shards."""
    if shards == 1:
        return (prefix,)
    return tuple(f"{prefix}{{{_hash_tag(number, shards)}}}:" for number in range(shards))


def _hash_tag(number: int, shards: int) -> str:
    """The number, and the first four letters with which the slot is ``number / shards`` of all."""
    head = f"{number:0{2 if shards <= 100 else 3}}"
    slot = number * _SLOTS // shards ^ crc_hqx(bytes(_ENDING), crc_hqx(head.encode(), 0)) % _SLOTS
    return head + _endings()[slot]


@cache
def _endings() -> Mapping[int, str]:
    """By slot the first four letters that are in it. A CRC is linear: what comes before only changes bits of it."""
    found: dict[int, str] = {}
    for letters in map("".join, product(ascii_lowercase, repeat=_ENDING)):
        found.setdefault(crc_hqx(letters.encode(), 0) % _SLOTS, letters)
        if len(found) == _SLOTS:
            break
    return found


def pattern_of(prefix: str) -> str:
    """The prefix with glob characters escaped: ``t:{07mopd}:`` is unchanged, ``t[x]:`` is not."""
    return "".join(f"\\{char}" if char in "*?[]\\^-" else char for char in prefix)


class Keys:
    """Builds the keys under one prefix."""

    __slots__ = ("prefix",)

    def __init__(self, prefix: str = "t:") -> None:
        self.prefix = prefix

    def info_hash(self, info_hash: InfoHash) -> str:
        return f"{self.prefix}info_hash:{info_hash.hex()}"

    def torrent_id(self, torrent_id: int | str) -> str:
        return f"{self.prefix}torrent_id:{torrent_id}"

    def deny(self, info_hash: InfoHash) -> str:
        return f"{self.prefix}deny:{info_hash.hex()}"

    def denied(self) -> str:
        return f"{self.prefix}denied"

    def info_hashes(self) -> str:
        return f"{self.prefix}i:info_hash"

    def torrent(self, info_hash: InfoHash) -> str:
        return f"{self.prefix}t:{info_hash.hex()}"

    def peer(self, torrent_id: int | str, peer_id: PeerId) -> str:
        return f"{self.prefix}p:{torrent_id}:{peer_id.hex()}"

    def timeouts(self) -> str:
        """The prefix of all timeout keys."""
        return f"{self.prefix}ptimeout:"

    def due(self, deadline: int) -> str:
        return f"{self.prefix}due:{deadline}"

    def due_cursor(self) -> str:
        return f"{self.prefix}due"

    def swarm_peers(self, info_hash: InfoHash) -> str:
        return f"{self.prefix}tpeers:{info_hash.hex()}"

    def addresses(self) -> str:
        """Number of endpoints in all swarms, by network."""
        return f"{self.prefix}addresses"

    def allowed_client(self, prefix: bytes) -> bytes:
        """A peer-id prefix is raw bytes, which the key contains unchanged."""
        return f"{self.prefix}whitelist:".encode() + prefix

    def allowed_clients(self) -> str:
        return f"{self.prefix}whitelist"

    def denied_clients(self) -> str:
        return f"{self.prefix}denied_clients"

    def connectable(self, endpoint: Endpoint) -> str:
        return f"{self.prefix}connectable:{endpoint.hex()}"

    def passkey(self, passkey: str) -> str:
        return f"{self.prefix}user:{passkey}"

    def users(self) -> str:
        return f"{self.prefix}users"

    def upload_multiplier(self) -> str:
        """The multiplier for all users."""
        return f"{self.prefix}upload_multiplier"

    def download_multiplier(self) -> str:
        return f"{self.prefix}download_multiplier"

    def groups(self) -> str:
        return f"{self.prefix}groups"

    def once(self, digest: str) -> str:
        """A request that may be repeated."""
        return f"{self.prefix}once:{digest}"

    def deleting(self) -> str:
        """Users whose deletion may be incomplete."""
        return f"{self.prefix}deleting"

    def user(self, user_id: int | str) -> str:
        return f"{self.prefix}u:{user_id}"

    def user_torrent(self, user_id: int | str, torrent_id: int | str) -> str:
        return f"{self.prefix}u:{user_id}:t:{torrent_id}"

    def user_set(self, user_id: int | str, name: str) -> str:
        return f"{self.prefix}u:{user_id}:{name}"

    def user_freeleech(self, user_id: int | str) -> str:
        return f"{self.prefix}u:{user_id}:freeleech"

    def user_unregistered(self, user_id: int | str) -> str:
        return f"{self.prefix}u:{user_id}:unregistered"

    def user_index(self, order: str) -> str:
        """Users by name, uploaded, downloaded or ratio, and those that are disabled or blocked from downloading."""
        return f"{self.prefix}i:user_{order}"

    def hit_and_runs(self) -> str:
        """Users with hit-and-runs, by their number."""
        return f"{self.prefix}i:hnr"

    def pending_hit_and_runs(self) -> str:
        """Torrents of users in the grace period, by its end."""
        return f"{self.prefix}i:hnr_pending"

    def client_software(self, outcome: str, period: str) -> str:
        return f"{self.prefix}i:client:{outcome}:{period}"

    def stat(self, counter: str) -> str:
        return f"{self.prefix}stats:{counter}"

    def removed_torrents(self) -> str:
        """Torrents from which peers are to be removed."""
        return f"{self.prefix}removing:torrents"

    def peer_counts(self) -> str:
        """What the last round of the sweep has counted."""
        return f"{self.prefix}stats:peers"

    def failures(self) -> str:
        return f"{self.prefix}stats:failures"

    def refused(self, reason: str) -> str:
        """Samples of refused announces."""
        return f"{self.prefix}refused:{reason}"

    def index(self, ranking: str) -> str:
        return f"{self.prefix}i:{ranking}"

    def torrent_list(self, value: str) -> str:
        """Torrents by added, active or size, and those that are disabled, pending or private."""
        return f"{self.prefix}i:torrent_{value}"

    def indexed(self) -> str:
        """The versions of the indexes of lists that are complete."""
        return f"{self.prefix}indexed"

    def audit(self) -> str:
        """The audit log."""
        return f"{self.prefix}audit"

    def audit_rows(self) -> str:
        """Further entries of the audit log, with the objects of calls that change many."""
        return f"{self.prefix}audit:rows"

    def copies(self) -> str:
        """Changed passkeys, under the main prefix of several shards."""
        return f"{self.prefix}copies"

    def copies_version(self) -> str:
        return f"{self.prefix}copies:version"

    def copied(self) -> str:
        """The number of the last change that a shard has."""
        return f"{self.prefix}copied"

    def changed(self) -> str:
        """Users whose sums have changed, in a shard."""
        return f"{self.prefix}changed"

    def shards(self) -> str:
        """The number of shards, under the main prefix."""
        return f"{self.prefix}shards"

    def layout(self) -> str:
        """The layout of the store, under the main prefix."""
        return f"{self.prefix}layout"

    def reshard(self) -> str:
        """The progress of `tracker reshard`, under the main prefix of a store that it fills."""
        return f"{self.prefix}reshard"

    def renumber(self) -> str:
        """The progress of `tracker torrent renumber`, under the main prefix."""
        return f"{self.prefix}renumber"

    def renumbered_changes(self) -> str:
        """A copy of the change feed that takes its place."""
        return f"{self.prefix}renumber:changes"

    def changes(self) -> str:
        """The change feed."""
        return f"{self.prefix}changes"

    def updated(self) -> str:
        """Peers that announced since ``updated`` was last recorded."""
        return f"{self.prefix}updated"

    def edits(self) -> str:
        """Users and torrents that programs changed."""
        return f"{self.prefix}edits"

    def webhook(self, url_id: str) -> str:
        """The state of deliveries to one URL."""
        return f"{self.prefix}webhook:{url_id}"

    def site(self) -> str:
        """The state of the site sync."""
        return f"{self.prefix}site"

    def limits(self) -> str:
        """Sources over a rate limit."""
        return f"{self.prefix}limits"

    def gap(self) -> str:
        return f"{self.prefix}gap"

    def heartbeat(self) -> str:
        return f"{self.prefix}heartbeat"

    def secret(self) -> str:
        return f"{self.prefix}secret"

    def unique(self, metric: str) -> str:
        """Unique users of all time."""
        return f"{self.prefix}{metric}"

    def unique_month(self, metric: str, month: str) -> str:
        return f"{self.prefix}{metric}.{month}"

    def unique_index(self, scope: str, period: str) -> str:
        return f"{self.prefix}i:unique:{scope}:{period}"

    def torrent_places(self, info_hash: InfoHash) -> str:
        return f"{self.prefix}i:unique:torrents.{info_hash.hex()}"

    def unique_forgotten(self) -> str:
        """Number of markers deleted to free memory, by period."""
        return f"{self.prefix}unique:forgotten"

    def processed(self) -> str:
        return f"{self.prefix}i:processed"

    def history(self, torrent_id: int | str) -> str:
        return f"{self.prefix}history:{torrent_id}"

    def completed(self, torrent_id: int | str) -> str:
        """Users who completed the torrent, by time."""
        return f"{self.prefix}completed:{torrent_id}"

    def leases(self, kind: str) -> str:
        return f"{self.prefix}leases:{kind}"

    def known_counters(self) -> str:
        return f"{self.prefix}known:"

    def known_distributions(self) -> str:
        return f"{self.prefix}known:dist"

    def counter(self, precision: int, name: str) -> str:
        return f"{self.prefix}count:{precision}:{name}"

    def distribution(self, precision: int, name: str) -> str:
        return f"{self.prefix}dist:{precision}:{name}"

    def outbox_waiting(self) -> str:
        return f"{self.prefix}outbox:waiting"

    def job(self, job_id: int | str) -> str:
        return f"{self.prefix}job:{job_id}"

    def queues(self) -> str:
        return f"{self.prefix}q"

    def queue_jobs(self, queue: str, status: str) -> str:
        return f"{self.prefix}q:{queue}:{status}"

    def queue_limits(self, queue: str) -> str:
        return f"{self.prefix}q:{queue}:limits"

    def admin_tokens(self) -> str:
        return f"{self.prefix}admin:tokens"

    def admin_token(self, token_id: str) -> str:
        return f"{self.prefix}admin:token:{token_id}"

    def admin_sessions(self) -> str:
        return f"{self.prefix}admin:sessions"

    def admin_session(self, digest: str) -> str:
        """A session by the SHA-256 of its secret."""
        return f"{self.prefix}admin:session:{digest}"

    def admin_link(self, digest: str) -> str:
        """A sign-in link by the SHA-256 of its secret."""
        return f"{self.prefix}admin:link:{digest}"

    def work_projects(self) -> str:
        return f"{self.prefix}w"

    def work_blocked_everywhere(self) -> str:
        return f"{self.prefix}w:blocked"

    def work_bytes(self) -> str:
        return f"{self.prefix}work_bytes"

    def work_project(self, project: str) -> str:
        return f"{self.prefix}w:{project}"

    def work_queue(self, project: str, todo: str) -> str:
        """A shared queue: ``todo``, ``todo:secondary`` or ``todo:redo``."""
        return f"{self.prefix}w:{project}:{todo}"

    def work_own_queue(self, project: str, claimant: str) -> str:
        return f"{self.prefix}w:{project}:todo:d:{claimant}"

    def work_policy(self, project: str) -> str:
        """Items that the policy enqueued."""
        return f"{self.prefix}w:{project}:policy"

    def work_needs(self, project: str) -> str:
        return f"{self.prefix}w:{project}:needs"

    def work_asked(self, project: str) -> str:
        return f"{self.prefix}w:{project}:asked"

    def work_wanted(self, project: str) -> str:
        return f"{self.prefix}w:{project}:wanted"

    def work_holders(self, project: str) -> str:
        return f"{self.prefix}w:{project}:holders"

    def work_out(self, project: str) -> str:
        return f"{self.prefix}w:{project}:out"

    def work_tokens(self, project: str) -> str:
        return f"{self.prefix}w:{project}:out:tokens"

    def work_claims(self, project: str) -> str:
        return f"{self.prefix}w:{project}:claims"

    def work_claims_by(self, project: str, claimant: str) -> str:
        return f"{self.prefix}w:{project}:by:{claimant}"

    def work_checks(self, project: str) -> str:
        return f"{self.prefix}w:{project}:checks"

    def work_trust(self, project: str) -> str:
        return f"{self.prefix}w:{project}:trust"

    def work_done(self, project: str) -> str:
        return f"{self.prefix}w:{project}:done"

    def work_done_by(self, project: str) -> str:
        return f"{self.prefix}w:{project}:done:by"

    def work_totals(self, project: str) -> str:
        return f"{self.prefix}w:{project}:totals"

    def work_log(self, project: str) -> str:
        return f"{self.prefix}w:{project}:log"

    def work_ranking(self, project: str, board: str) -> str:
        """``board`` is downloader_count, downloader_bytes or downloader_seconds."""
        return f"{self.prefix}w:{project}:{board}"

    def work_ranking_in(self, project: str, board: str, span: str) -> str:
        """``span`` is a month or a week."""
        return f"{self.prefix}w:{project}:{board}:{span}"

    def work_versions(self, project: str) -> str:
        return f"{self.prefix}w:{project}:downloader_version"

    def work_domain_bytes(self, project: str) -> str:
        return f"{self.prefix}w:{project}:domain_bytes"

    def work_chart(self, project: str, claimant: str) -> str:
        return f"{self.prefix}w:{project}:chart:{claimant}"

    def work_total_chart(self, project: str) -> str:
        return f"{self.prefix}w:{project}:chart"

    def work_blocked(self, project: str) -> str:
        return f"{self.prefix}w:{project}:blocked"

    def work_blocked_log(self, project: str) -> str:
        return f"{self.prefix}w:{project}:blocked:log"

    def dht_nodes(self) -> str:
        """The names of all nodes of the DHT."""
        return f"{self.prefix}dht"

    def dht_node(self, node: str) -> str:
        return f"{self.prefix}dht:{node}"

    def dht_table(self, node: str, family: int) -> str:
        """``family`` is 4 or 6."""
        return f"{self.prefix}dht:{node}:nodes{family}"

    def dht_hashes(self, node: str) -> str:
        return f"{self.prefix}dht:{node}:hashes"

    def dht_lookups(self) -> str:
        """Torrents by when they were looked up in the DHT."""
        return f"{self.prefix}i:dht"

    def channel(self, name: str) -> str:
        return f"{self.prefix}{name}"


@dataclass(frozen=True, slots=True)
class KeySpec:
    """The description of one kind of key: Redis type, content, lifetime and writers."""

    pattern: str
    type: str
    holds: str
    lifetime: str
    writer: str
