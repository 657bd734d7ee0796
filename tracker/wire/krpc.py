"""KRPC, the messages of the DHT: BEP 5, 32 (IPv6), 33 (counts), 42 (external address), 43 (read-only), 51 (samples).

Each datagram holds one bencoded dictionary. Datagrams come from any host, so size, depth and number of values are
bounded, and unknown fields are ignored. A query that is understood but invalid raises QueryError, which has an answer.
All else that is invalid raises KrpcError and gets no answer.
"""

from typing import Any, NamedTuple, NewType, TypeGuard

from tracker.bittorrent import HASH_LENGTH, Endpoint, InfoHash
from tracker.errors import KrpcError, QueryError
from tracker.wire.bencode import BencodeError, decode, encode
from tracker.wire.endpoint import ENDPOINT6_LENGTH, ENDPOINT_LENGTH

NodeId = NewType("NodeId", bytes)
"""20 bytes."""

MAX_RECEIVED_BYTES = 2048
MAX_SENT_BYTES = 1024
"""BEP 32: larger datagrams may be fragmented."""
MAX_DEPTH = 8
MAX_VALUES = 500
MAX_TRANSACTION_LENGTH = 16
MAX_TOKEN_LENGTH = 64
MAX_ERROR_LENGTH = 200
MAX_INTERVAL_SECONDS = 21600
"""BEP 51: of samples."""

NODE_LENGTH = HASH_LENGTH + ENDPOINT_LENGTH
NODE6_LENGTH = HASH_LENGTH + ENDPOINT6_LENGTH
FILTER_LENGTH = 256

GENERIC, SERVER, PROTOCOL, UNKNOWN_METHOD = 201, 202, 203, 204
"""Codes of errors."""

_MAX_COUNT = 2**31 - 1
_WANT = {b"n4": 4, b"n6": 6}


class Node(NamedTuple):
    id: NodeId
    endpoint: Endpoint


class Ping(NamedTuple):
    pass


class FindNode(NamedTuple):
    target: bytes
    want: tuple[int, ...] = ()
    """4 and 6: the families of the nodes in the answer; empty for the family of the datagram."""


class GetPeers(NamedTuple):
    info_hash: InfoHash
    want: tuple[int, ...] = ()
    no_seeds: bool = False
    scrape: bool = False
    """The answer contains Bloom filters instead of peers (BEP 33)."""


class AnnouncePeer(NamedTuple):
    info_hash: InfoHash
    port: int
    """1 to 65535; 0 with ``implied_port`` only."""
    token: bytes
    implied_port: bool = False
    """The source port of the datagram counts, not ``port``."""
    seed: bool = False


class SampleInfohashes(NamedTuple):
    target: bytes
    want: tuple[int, ...] = ()


Arguments = Ping | FindNode | GetPeers | AnnouncePeer | SampleInfohashes

NAMES: dict[type[Arguments], str] = {
    Ping: "ping",
    FindNode: "find_node",
    GetPeers: "get_peers",
    AnnouncePeer: "announce_peer",
    SampleInfohashes: "sample_infohashes",
}


class Query(NamedTuple):
    transaction: bytes
    id: NodeId
    arguments: Arguments
    read_only: bool = False
    """The sender answers no queries and does not belong into a routing table (BEP 43)."""
    version: bytes = b""


class Samples(NamedTuple):
    """Samples of the info hashes that a node stores (BEP 51)."""

    info_hashes: bytes
    """20 bytes each."""
    total: int
    """How many the node stores."""
    interval_seconds: int
    """Seconds until the sample changes."""


class Answer(NamedTuple):
    """The fields of all answers. ``None`` where a field is absent."""

    transaction: bytes
    id: NodeId
    nodes: bytes | None = None
    """Packed: id and endpoint of IPv4, 26 bytes each."""
    nodes6: bytes | None = None
    token: bytes | None = None
    values: tuple[Endpoint, ...] = ()
    """Peers of a torrent."""
    samples: Samples | None = None
    seeds_filter: bytes | None = None
    peers_filter: bytes | None = None
    external: Endpoint | None = None
    """The endpoint of the asker, as the answering node sees it (BEP 42)."""
    version: bytes = b""


class Failure(NamedTuple):
    transaction: bytes
    code: int
    text: str
    version: bytes = b""


def why_no_query(data: bytes) -> str | None:
    """Why a datagram that no query of ours awaits cannot be a query, by a look at its bytes: random ones cost little.
    ``None`` where it may be one."""
    if len(data) > MAX_RECEIVED_BYTES:
        return "too large"
    if not (data.startswith(b"d") and data.endswith(b"e")):
        return "not bencoded"
    if b"1:y1:q" in data:
        return None
    return "not asked for" if b"1:y1:r" in data or b"1:y1:e" in data else "unknown kind"


def parse_message(data: bytes) -> Query | Answer | Failure:
    """Raises QueryError for a query that is answered with an error, and KrpcError for what gets no answer."""
    if len(data) > MAX_RECEIVED_BYTES:
        raise KrpcError("too large")
    try:
        message = decode(data, max_depth=MAX_DEPTH, max_values=MAX_VALUES)
    except BencodeError:
        raise KrpcError("not bencoded") from None
    if not isinstance(message, dict):
        raise KrpcError("no dictionary")
    transaction = message.get(b"t")
    if not isinstance(transaction, bytes) or not 0 < len(transaction) <= MAX_TRANSACTION_LENGTH:
        raise KrpcError("no transaction id")
    kind = message.get(b"y")
    if kind == b"q":
        return _query(message, transaction)
    if kind == b"r":
        return _answer(message, transaction)
    if kind == b"e":
        return _failure(message, transaction)
    raise KrpcError("unknown kind")


def encode_query(query: Query) -> bytes:
    name = NAMES[type(query.arguments)]
    message: dict[str, Any] = {"a": {"id": query.id, **_fields(query.arguments)}, "q": name}
    if query.read_only:
        message["ro"] = 1
    return _encode(message, query.transaction, query.version, "q")


def encode_answer(answer: Answer) -> bytes:
    samples = answer.samples
    fields: dict[str, Any] = {
        "BFpe": answer.peers_filter,
        "BFsd": answer.seeds_filter,
        "id": answer.id,
        "interval": samples.interval_seconds if samples else None,
        "nodes": answer.nodes,
        "nodes6": answer.nodes6,
        "num": samples.total if samples else None,
        "samples": samples.info_hashes if samples else None,
        "token": answer.token,
        "values": list(answer.values) or None,
    }
    message: dict[str, Any] = {} if answer.external is None else {"ip": answer.external}
    message["r"] = {name: value for name, value in fields.items() if value is not None}
    return _encode(message, answer.transaction, answer.version, "r")


def encode_failure(failure: Failure) -> bytes:
    return _encode({"e": [failure.code, failure.text]}, failure.transaction, failure.version, "e")


def split_nodes(packed: bytes | None, length: int) -> list[Node]:
    """The nodes of a list whose entries have ``length`` bytes. Ignores an incomplete last one."""
    if packed is None:
        return []
    return [
        Node(NodeId(packed[at : at + HASH_LENGTH]), Endpoint(packed[at + HASH_LENGTH : at + length]))
        for at in range(0, len(packed) - length + 1, length)
    ]


def _fields(arguments: Arguments) -> dict[str, Any]:
    """The arguments but ``id``, without those that are false or empty. All names sort behind it."""
    fields: dict[str, Any] = {}
    match arguments:
        case FindNode(target, want) | SampleInfohashes(target, want):
            fields = {"target": target, "want": [f"n{family}" for family in want]}
        case GetPeers(info_hash, want, no_seeds, scrape):
            wanted = [f"n{family}" for family in want]
            fields = {"info_hash": info_hash, "noseed": no_seeds, "scrape": scrape, "want": wanted}
        case AnnouncePeer(info_hash, port, token, implied, seed):
            fields = {"implied_port": implied, "info_hash": info_hash, "port": port, "seed": seed, "token": token}
    return {name: value for name, value in fields.items() if value is not False and value != []}


def _encode(message: dict[str, Any], transaction: bytes, version: bytes, kind: str) -> bytes:
    """``message`` has the keys before ``t``, in order. The encoder does not sort."""
    message["t"] = transaction
    if version:
        message["v"] = version
    message["y"] = kind
    return encode(message)


def _query(message: dict[bytes, Any], transaction: bytes) -> Query:
    arguments = message.get(b"a")
    if not isinstance(arguments, dict) or not _is_hash(id := arguments.get(b"id")):
        raise KrpcError("no node id")
    return Query(
        transaction,
        NodeId(id),
        _arguments(message.get(b"q"), arguments, transaction),
        read_only=message.get(b"ro") == 1,
        version=_version(message),
    )


def _arguments(name: object, fields: dict[bytes, Any], transaction: bytes) -> Arguments:
    info_hash, target = fields.get(b"info_hash"), fields.get(b"target")
    if name == b"ping":
        return Ping()
    if name == b"get_peers" and _is_hash(info_hash):
        no_seeds, scrape = fields.get(b"noseed") == 1, fields.get(b"scrape") == 1
        return GetPeers(InfoHash(info_hash), _want(fields), no_seeds, scrape)
    if name == b"announce_peer" and _is_hash(info_hash):
        return _announce(InfoHash(info_hash), fields, transaction)
    if name == b"sample_infohashes" and _is_hash(target):
        return SampleInfohashes(target, _want(fields))
    if name in (b"find_node", b"get_peers", b"announce_peer", b"sample_infohashes"):
        if name == b"find_node" and _is_hash(target):
            return FindNode(target, _want(fields))
        raise QueryError(transaction, PROTOCOL, "missing or invalid argument")
    # Queries of later extensions travel by nodes that do not know them: these answer with the nearest nodes.
    for unknown in (target, info_hash):
        if _is_hash(unknown):
            return FindNode(unknown, _want(fields))
    raise QueryError(transaction, UNKNOWN_METHOD, "unknown method")


def _announce(info_hash: InfoHash, fields: dict[bytes, Any], transaction: bytes) -> AnnouncePeer:
    token, port = fields.get(b"token"), fields.get(b"port")
    implied = fields.get(b"implied_port", 0) != 0
    if not isinstance(port, int) or not 0 < port < 65536:
        if not implied:
            raise QueryError(transaction, PROTOCOL, "invalid port")
        port = 0
    if not isinstance(token, bytes):
        raise QueryError(transaction, PROTOCOL, "missing or invalid argument")
    return AnnouncePeer(info_hash, port, token, implied, fields.get(b"seed") == 1)


def _want(fields: dict[bytes, Any]) -> tuple[int, ...]:
    wanted = fields.get(b"want")
    if not isinstance(wanted, list):
        return ()
    return tuple(family for name, family in _WANT.items() if name in wanted)


def _answer(message: dict[bytes, Any], transaction: bytes) -> Answer:
    fields = message.get(b"r")
    if not isinstance(fields, dict) or not _is_hash(fields.get(b"id")):
        raise KrpcError("no node id")
    external = message.get(b"ip")
    values, token = fields.get(b"values"), _bytes(fields, b"token")
    endpoints = filter(_is_endpoint, values if isinstance(values, list) else ())
    return Answer(
        transaction,
        NodeId(fields[b"id"]),
        nodes=_bytes(fields, b"nodes"),
        nodes6=_bytes(fields, b"nodes6"),
        token=token if token is not None and len(token) <= MAX_TOKEN_LENGTH else None,
        values=tuple(map(Endpoint, endpoints)),
        samples=_samples(fields),
        seeds_filter=_filter(fields, b"BFsd"),
        peers_filter=_filter(fields, b"BFpe"),
        external=Endpoint(external) if _is_endpoint(external) else None,
        version=_version(message),
    )


def _samples(fields: dict[bytes, Any]) -> Samples | None:
    info_hashes = _bytes(fields, b"samples")
    if info_hashes is None:
        return None
    return Samples(
        info_hashes[: len(info_hashes) // HASH_LENGTH * HASH_LENGTH],
        _number(fields, b"num", _MAX_COUNT),
        _number(fields, b"interval", MAX_INTERVAL_SECONDS),
    )


def _failure(message: dict[bytes, Any], transaction: bytes) -> Failure:
    """An error is a list of code and text. Some programs send less."""
    error = message.get(b"e")
    parts = error if isinstance(error, list) else []
    code = next((part for part in parts if isinstance(part, int)), GENERIC)
    text = next((part for part in parts if isinstance(part, bytes)), b"")
    return Failure(transaction, code, text[:MAX_ERROR_LENGTH].decode("utf-8", "replace"), _version(message))


def _is_endpoint(value: object) -> TypeGuard[bytes]:
    return isinstance(value, bytes) and len(value) in (ENDPOINT_LENGTH, ENDPOINT6_LENGTH)


def _is_hash(value: object) -> TypeGuard[bytes]:
    return isinstance(value, bytes) and len(value) == HASH_LENGTH


def _bytes(fields: dict[bytes, Any], name: bytes) -> bytes | None:
    value = fields.get(name)
    return value if isinstance(value, bytes) else None


def _number(fields: dict[bytes, Any], name: bytes, highest: int) -> int:
    value = fields.get(name)
    return min(max(value, 0), highest) if isinstance(value, int) else 0


def _filter(fields: dict[bytes, Any], name: bytes) -> bytes | None:
    value = _bytes(fields, name)
    return value if value is not None and len(value) == FILTER_LENGTH else None


def _version(message: dict[bytes, Any]) -> bytes:
    return (_bytes(message, b"v") or b"")[:4]
