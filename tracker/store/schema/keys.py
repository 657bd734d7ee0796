"""Builds all keys of the store. table/ lists the type, content, lifetime and writers of each key. The scripts in lua/
build keys as well: they receive the prefix and follow the same table."""

from binascii import crc_hqx
from collections.abc import Callable, Mapping
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


def _key(name: str) -> Callable[["Keys"], str]:
    """Builds the one key of this name."""
    return lambda self: self.prefix + name


def _key_of(head: str, tail: str = "") -> Callable[["Keys", int | str], str]:
    """Builds the key of one user, job or the like: its id or name stands between ``head`` and ``tail``."""
    return lambda self, of: f"{self.prefix}{head}{of}{tail}"


def _key_of_torrent(head: str) -> Callable[["Keys", InfoHash], str]:
    return lambda self, info_hash: f"{self.prefix}{head}{info_hash.hex()}"


def _key_of_two(head: str, between: str) -> Callable[["Keys", int | str, int | str], str]:
    """Builds the key of what has two names, such as a torrent of a user."""
    return lambda self, first, second: f"{self.prefix}{head}{first}{between}{second}"


class Keys:
    """Builds the keys under one prefix."""

    __slots__ = ("prefix",)

    denied = _key("denied")
    info_hashes = _key("i:info_hash")
    timeouts = _key("ptimeout:")
    """The prefix of all timeout keys."""
    due_cursor = _key("due")
    addresses = _key("addresses")
    """Number of endpoints in all swarms, by network."""
    allowed_clients = _key("whitelist")
    denied_clients = _key("denied_clients")
    users = _key("users")
    upload_multiplier = _key("upload_multiplier")
    """The multiplier for all users."""
    download_multiplier = _key("download_multiplier")
    groups = _key("groups")
    deleting = _key("deleting")
    """Users whose deletion may be incomplete."""
    hit_and_runs = _key("i:hnr")
    """Users with hit-and-runs, by their number."""
    pending_hit_and_runs = _key("i:hnr_pending")
    """Torrents of users in the grace period, by its end."""
    removing, removed_torrents = _key("removing"), _key("removing:torrents")
    """Torrents from which peers are to be removed."""
    peer_counts = _key("stats:peers")
    """What the last round of the sweep has counted."""
    failures = _key("stats:failures")
    indexed = _key("indexed")
    """The versions of the indexes of lists that are complete."""
    audit = _key("audit")
    audit_rows = _key("audit:rows")
    """Further entries of the audit log, with the objects of calls that change many."""
    copies = _key("copies")
    """Changed passkeys, under the main prefix of several shards."""
    copies_version = _key("copies:version")
    compared_rows = _key("copies:rows")
    copied = _key("copied")
    """The number of the last change that a shard has."""
    changed = _key("changed")
    """Users whose sums have changed, in a shard."""
    shards = _key("shards")
    """The number of shards, under the main prefix."""
    layout = _key("layout")
    """The layout of the store, under the main prefix."""
    reshard = _key("reshard")
    """The progress of `tracker reshard`, under the main prefix of a store that it fills."""
    renumber = _key("renumber")
    """The progress of `tracker torrent renumber`, under the main prefix."""
    renumbered_changes = _key("renumber:changes")
    """A copy of the change feed that takes its place."""
    changes = _key("changes")
    updated = _key("updated")
    """Peers that announced since ``updated`` was last recorded."""
    edits = _key("edits")
    """Users and torrents that programs changed."""
    site = _key("site")
    """The state of the site sync."""
    limits = _key("limits")
    """Sources over a rate limit."""
    gap = _key("gap")
    heartbeat = _key("heartbeat")
    secret = _key("secret")
    unique_forgotten = _key("unique:forgotten")
    """Number of markers deleted to free memory, by period."""
    processed = _key("i:processed")
    known_counters = _key("known:")
    known_distributions = _key("known:dist")
    outbox_waiting = _key("outbox:waiting")
    queues = _key("q")
    admin_tokens = _key("admin:tokens")
    admin_sessions = _key("admin:sessions")
    work_projects = _key("w")
    work_blocked_everywhere = _key("w:blocked")
    work_bytes = _key("work_bytes")
    dht_nodes = _key("dht")
    """The names of all nodes of the DHT."""
    dht_lookups = _key("i:dht")
    """Torrents by when they were looked up in the DHT."""

    work_policy = _key_of("w:", ":policy")
    """Items that the policy enqueued."""
    work_needs = _key_of("w:", ":needs")
    work_asked = _key_of("w:", ":asked")
    work_wanted = _key_of("w:", ":wanted")
    work_holders = _key_of("w:", ":holders")
    work_out = _key_of("w:", ":out")
    work_tokens = _key_of("w:", ":out:tokens")
    work_claims = _key_of("w:", ":claims")
    work_checks = _key_of("w:", ":checks")
    work_done = _key_of("w:", ":done")
    work_done_by = _key_of("w:", ":done:by")
    work_totals = _key_of("w:", ":totals")
    work_log = _key_of("w:", ":log")
    work_versions = _key_of("w:", ":downloader_version")
    work_domain_bytes = _key_of("w:", ":domain_bytes")
    work_total_chart = _key_of("w:", ":chart")
    work_blocked = _key_of("w:", ":blocked")
    work_blocked_log = _key_of("w:", ":blocked:log")

    info_hash = _key_of_torrent("info_hash:")
    torrent_id = _key_of("torrent_id:")
    deny = _key_of_torrent("deny:")
    torrent = _key_of_torrent("t:")
    due = _key_of("due:")
    swarm_peers = _key_of_torrent("tpeers:")
    passkey = _key_of("user:")
    once = _key_of("once:")
    """A request that may be repeated."""
    user = _key_of("u:")
    user_freeleech = _key_of("u:", ":freeleech")
    user_unregistered = _key_of("u:", ":unregistered")
    refused = _key_of("refused:")
    """Samples of refused announces."""
    webhook = _key_of("webhook:")
    """The state of deliveries to one URL."""
    unique = _key_of("")
    """Unique users of all time."""
    torrent_places = _key_of_torrent("i:unique:torrents.")
    history = _key_of("history:")
    completed = _key_of("completed:")
    """Users who completed the torrent, by time."""
    job = _key_of("job:")
    queue_limits = _key_of("q:", ":limits")
    admin_token = _key_of("admin:token:")
    admin_session = _key_of("admin:session:")
    """A session by the SHA-256 of its secret."""
    admin_link = _key_of("admin:link:")
    """A sign-in link by the SHA-256 of its secret."""
    work_project = _key_of("w:")
    dht_node = _key_of("dht:")
    dht_hashes = _key_of("dht:", ":hashes")
    index, stat, leases, channel = _key_of("i:"), _key_of("stats:"), _key_of("leases:"), _key_of("")
    """By the name of a ranking, a total, the kind of a lease, a channel."""
    user_index = _key_of("i:user_")
    """Users by name, uploaded, downloaded or ratio, and those that are disabled or blocked from downloading."""
    torrent_list = _key_of("i:torrent_")
    """Torrents by added, active or size, and those that are disabled, pending or private."""

    user_torrent = _key_of_two("u:", ":t:")
    user_set = _key_of_two("u:", ":")
    client_software = _key_of_two("i:client:", ":")
    """By outcome and period."""
    unique_month = _key_of_two("", ".")
    """By metric and month."""
    unique_index = _key_of_two("i:unique:", ":")
    """By scope and period."""
    counter, distribution = _key_of_two("count:", ":"), _key_of_two("dist:", ":")
    """By precision and name."""
    queue_jobs = _key_of_two("q:", ":")
    """By queue and status."""
    dht_table = _key_of_two("dht:", ":nodes")
    """By node and family, 4 or 6."""
    work_queue = _key_of_two("w:", ":")
    """A shared queue of a project: ``todo``, ``todo:secondary`` or ``todo:redo``."""
    work_own_queue, work_claims_by = _key_of_two("w:", ":todo:d:"), _key_of_two("w:", ":by:")
    work_ranking, work_chart = _key_of_two("w:", ":"), _key_of_two("w:", ":chart:")
    """A ranking is downloader_count, downloader_bytes or downloader_seconds."""

    def __init__(self, prefix: str = "t:") -> None:
        self.prefix = prefix

    def peer(self, torrent_id: int | str, peer_id: PeerId) -> str:
        return f"{self.prefix}p:{torrent_id}:{peer_id.hex()}"

    def allowed_client(self, prefix: bytes) -> bytes:
        """A peer-id prefix is raw bytes, which the key contains unchanged."""
        return f"{self.prefix}whitelist:".encode() + prefix

    def connectable(self, endpoint: Endpoint) -> str:
        return f"{self.prefix}connectable:{endpoint.hex()}"

    def work_ranking_in(self, project: str, board: str, span: str) -> str:
        """``span`` is a month or a week."""
        return f"{self.work_ranking(project, board)}:{span}"


@dataclass(frozen=True, slots=True)
class KeySpec:
    """The description of one kind of key: Redis type, content, lifetime and writers."""

    pattern: str
    type: str
    holds: str
    lifetime: str
    writer: str
