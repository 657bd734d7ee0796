"""Builds every key of the store; key_table/ says of each its type, what it holds, how long it lives and who writes it.

No key is built anywhere else, but for the scripts in lua/, which get the prefix and follow the same table.
"""

from tracker.bittorrent import InfoHash, PeerId

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

    def denied(self) -> str:
        return f"{self.prefix}denied"

    def names(self) -> str:
        return f"{self.prefix}i:name"

    def info_hashes(self) -> str:
        return f"{self.prefix}i:info_hash"

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

    def deleting(self) -> str:
        """Users of whom there may be something left to delete."""
        return f"{self.prefix}deleting"

    def user(self, user_id: int | str) -> str:
        return f"{self.prefix}u:{user_id}"

    def user_torrent(self, user_id: int | str, torrent_id: int | str) -> str:
        return f"{self.prefix}u:{user_id}:t:{torrent_id}"

    def user_set(self, user_id: int | str, name: str) -> str:
        return f"{self.prefix}u:{user_id}:{name}"

    def hit_and_runs(self) -> str:
        """Who has any, by how many."""
        return f"{self.prefix}i:hnr"

    def client_software(self, outcome: str, period: str) -> str:
        return f"{self.prefix}i:client:{outcome}:{period}"

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

    def limits(self) -> str:
        """Who is over a limit."""
        return f"{self.prefix}limits"

    def limits_window(self, window: int) -> str:
        return f"{self.prefix}limits:{window}"

    def heartbeat(self) -> str:
        return f"{self.prefix}heartbeat"

    def gap(self) -> str:
        return f"{self.prefix}gap"

    def secret(self) -> str:
        return f"{self.prefix}secret"

    def unique(self, metric: str) -> str:
        """Unique users of all time."""
        return f"{self.prefix}{metric}"

    def unique_month(self, metric: str, month: str) -> str:
        return f"{self.prefix}{metric}.{month}"

    def unique_seen(self, metric: str, seen: str) -> str:
        """The marker of one address, as it is stored."""
        return f"{self.prefix}{metric}.{seen}"

    def estimate(self, metric: str) -> str:
        return f"{self.prefix}hll:{metric}"

    def estimate_month(self, metric: str, month: str) -> str:
        return f"{self.prefix}hll:{metric}.{month}"

    def unique_index(self, scope: str, period: str) -> str:
        return f"{self.prefix}i:unique:{scope}:{period}"

    def torrent_places(self, info_hash: InfoHash) -> str:
        return f"{self.prefix}i:unique:torrents.{info_hash.hex()}"

    def processed(self) -> str:
        return f"{self.prefix}i:processed"

    def history(self, torrent_id: int | str) -> str:
        return f"{self.prefix}history:{torrent_id}"

    def leases(self, kind: str) -> str:
        return f"{self.prefix}leases:{kind}"

    def lease_tokens(self, kind: str) -> str:
        return f"{self.prefix}leases:{kind}:tokens"

    def last_token(self) -> str:
        return f"{self.prefix}lease"

    def known_counters(self) -> str:
        return f"{self.prefix}known:"

    def known_distributions(self) -> str:
        return f"{self.prefix}known:dist"

    def counter(self, precision: int, name: str) -> str:
        return f"{self.prefix}count:{precision}:{name}"

    def distribution(self, precision: int, name: str) -> str:
        return f"{self.prefix}dist:{precision}:{name}"

    def outbox(self) -> str:
        return f"{self.prefix}outbox"

    def outbox_minute(self, minute: int) -> str:
        return f"{self.prefix}outbox:{minute}"

    def outbox_waiting(self) -> str:
        return f"{self.prefix}outbox:waiting"

    def last_job(self) -> str:
        return f"{self.prefix}job"

    def job(self, job_id: int | str) -> str:
        return f"{self.prefix}job:{job_id}"

    def queues(self) -> str:
        return f"{self.prefix}q"

    def queue_jobs(self, queue: str, status: str) -> str:
        return f"{self.prefix}q:{queue}:{status}"

    def queue_tokens(self, queue: str) -> str:
        return f"{self.prefix}q:{queue}:running:tokens"

    def queue_ready(self, queue: str) -> str:
        return f"{self.prefix}q:{queue}:ready"

    def queue_delayed(self, queue: str) -> str:
        return f"{self.prefix}q:{queue}:delayed"

    def queue_deadlines(self, queue: str) -> str:
        return f"{self.prefix}q:{queue}:deadlines"

    def queue_fingerprints(self, queue: str) -> str:
        return f"{self.prefix}q:{queue}:fingerprints"

    def queue_slot(self, queue: str) -> str:
        return f"{self.prefix}q:{queue}:slot"

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

    def channel(self, name: str) -> str:
        return f"{self.prefix}{name}"
