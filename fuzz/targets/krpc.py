"""Datagrams of the DHT: a message that is parsed again from its own encoding, or one of the two errors."""

from collections.abc import Iterable

from tracker.bittorrent import Endpoint, InfoHash
from tracker.errors import KrpcError, QueryError
from tracker.wire.krpc import (
    MAX_INTERVAL_SECONDS,
    MAX_RECEIVED_BYTES,
    NODE6_LENGTH,
    NODE_LENGTH,
    AnnouncePeer,
    Answer,
    Failure,
    FindNode,
    GetPeers,
    NodeId,
    Ping,
    Query,
    SampleInfohashes,
    Samples,
    encode_answer,
    encode_failure,
    encode_query,
    parse_message,
    split_nodes,
)

MAX_LENGTH = 2100
_ID = NodeId(b"abcdefghij0123456789")


def check(data: bytes) -> None:
    try:
        message = parse_message(data)
    except KrpcError:
        return
    except QueryError as error:
        code, transaction = error.code, error.transaction
        assert code in (203, 204) and 0 < len(transaction) <= 16
        return
    assert 0 < len(message.transaction) <= 16 and len(message.version) <= 4
    if isinstance(message, Query):
        encoded = encode_query(message)
    elif isinstance(message, Answer):
        _check_answer(message)
        encoded = encode_answer(message)
    else:
        encoded = encode_failure(message)
    if len(encoded) <= MAX_RECEIVED_BYTES:
        assert parse_message(encoded) == message


def _check_answer(answer: Answer) -> None:
    assert all(len(value) in (6, 18) for value in answer.values)
    assert all(len(node.endpoint) == 6 for node in split_nodes(answer.nodes, NODE_LENGTH))
    assert all(len(node.endpoint) == 18 for node in split_nodes(answer.nodes6, NODE6_LENGTH))
    if answer.samples:
        assert len(answer.samples.info_hashes) % 20 == 0 and answer.samples.total >= 0
        assert 0 <= answer.samples.interval_seconds <= MAX_INTERVAL_SECONDS


def seeds() -> Iterable[bytes]:
    info_hash = InfoHash(b"mnopqrstuvwxyz123456")
    arguments = (
        Ping(),
        FindNode(info_hash, (4, 6)),
        GetPeers(info_hash, (6,), no_seeds=True, scrape=True),
        AnnouncePeer(info_hash, 6881, b"aoeusnth", implied_port=True, seed=True),
        SampleInfohashes(info_hash),
    )
    answers = (
        Answer(b"aa", _ID, nodes=b"x" * 52, token=b"t", values=(Endpoint(b"axje.u"),), version=b"SK01"),
        Answer(b"aa", _ID, nodes6=b"x" * 38, samples=Samples(b"y" * 40, 2, 60)),
        Answer(b"aa", _ID, seeds_filter=bytes(256), peers_filter=bytes(256), external=Endpoint(b"axje.u")),
    )
    return [
        *(encode_query(Query(b"aa", _ID, each, read_only=True, version=b"LT01")) for each in arguments),
        *(encode_answer(answer) for answer in answers),
        encode_failure(Failure(b"aa", 203, "nein")),
        b"d1:ad2:id20:abcdefghij01234567896:target20:mnopqrstuvwxyz123456e1:q3:get1:t2:aa1:y1:qe",
        b"d1:ad2:id20:abcdefghij0123456789e1:q4:vote1:t2:aa1:y1:qe",
    ]
