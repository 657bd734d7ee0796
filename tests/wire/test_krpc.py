"""D7: messages of the DHT, byte by byte. The vectors are those of BEP 5, and queries of real clients."""

from typing import Any

import bencodepy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import recorded_dht
from tracker.bittorrent import Endpoint, InfoHash
from tracker.errors import KrpcError, QueryError
from tracker.wire.krpc import (
    MAX_INTERVAL_SECONDS,
    NAMES,
    NODE6_LENGTH,
    NODE_LENGTH,
    AnnouncePeer,
    Answer,
    Arguments,
    Failure,
    FindNode,
    GetPeers,
    Node,
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

ASKER, ANSWERER = NodeId(b"abcdefghij0123456789"), NodeId(b"mnopqrstuvwxyz123456")
HASH = InfoHash(ANSWERER)

QUERIES: dict[bytes, Arguments] = {
    b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe": Ping(),
    b"d1:ad2:id20:abcdefghij01234567896:target20:mnopqrstuvwxyz123456e1:q9:find_node1:t2:aa1:y1:qe": FindNode(HASH),
    b"d1:ad2:id20:abcdefghij01234567899:info_hash20:mnopqrstuvwxyz123456e1:q9:get_peers1:t2:aa1:y1:qe": GetPeers(HASH),
    b"d1:ad2:id20:abcdefghij012345678912:implied_porti1e9:info_hash20:mnopqrstuvwxyz1234564:porti6881e"
    b"5:token8:aoeusnthe1:q13:announce_peer1:t2:aa1:y1:qe": AnnouncePeer(HASH, 6881, b"aoeusnth", implied_port=True),
    b"d1:ad2:id20:abcdefghij01234567896:target20:mnopqrstuvwxyz1234564:wantl2:n42:n6ee"
    b"1:q17:sample_infohashes1:t2:aa1:y1:qe": SampleInfohashes(HASH, (4, 6)),
}

ANSWERS = {
    b"d1:rd2:id20:mnopqrstuvwxyz123456e1:t2:aa1:y1:re": Answer(b"aa", ANSWERER),
    b"d1:rd2:id20:0123456789abcdefghij5:nodes9:def456...e1:t2:aa1:y1:re": Answer(
        b"aa", NodeId(b"0123456789abcdefghij"), nodes=b"def456..."
    ),
    b"d1:rd2:id20:abcdefghij01234567895:token8:aoeusnth6:valuesl6:axje.u6:idhtnmee1:t2:aa1:y1:re": Answer(
        b"aa", ASKER, token=b"aoeusnth", values=(Endpoint(b"axje.u"), Endpoint(b"idhtnm"))
    ),
    b"d1:rd2:id20:abcdefghij01234567895:nodes9:def456...5:token8:aoeusnthe1:t2:aa1:y1:re": Answer(
        b"aa", ASKER, nodes=b"def456...", token=b"aoeusnth"
    ),
}

RECORDED: dict[bytes, Query] = {
    # libtorrent 2.1.1, a seed
    b"d1:ad2:id20:abcdefghij01234567899:info_hash20:mnopqrstuvwxyz1234566:noseedi1ee1:q9:get_peers"
    b"1:t2:\x01\x021:v4:LT\x02\x111:y1:qe": Query(
        b"\x01\x02", ASKER, GetPeers(HASH, no_seeds=True), version=b"LT\x02\x11"
    ),
    b"d1:ad2:id20:abcdefghij01234567899:info_hash20:mnopqrstuvwxyz1234564:porti17691e4:seedi0e"
    b"5:token4:abcde1:q13:announce_peer1:t2:\x01\x021:v4:LT\x02\x111:y1:qe": Query(
        b"\x01\x02", ASKER, AnnouncePeer(HASH, 17691, b"abcd"), version=b"LT\x02\x11"
    ),
    # aria2
    b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t4:abcd1:v4:A2\x00\x031:y1:qe": Query(
        b"abcd", ASKER, Ping(), version=b"A2\x00\x03"
    ),
    # Transmission 3.00
    b"d1:ad2:id20:abcdefghij01234567896:target20:mnopqrstuvwxyz123456e1:q9:find_node1:t4:fn\x00\x001:y1:qe": Query(
        b"fn\0\0", ASKER, FindNode(HASH)
    ),
}

ids = st.binary(min_size=20, max_size=20)
transactions = st.binary(min_size=1, max_size=16)
versions = st.sampled_from((b"", b"SK01"))
wants = st.sampled_from(((), (4,), (6,), (4, 6)))
ports = st.integers(1, 65535)
queries = st.builds(
    Query,
    transactions,
    ids.map(NodeId),
    st.one_of(
        st.just(Ping()),
        st.builds(FindNode, ids, wants),
        st.builds(GetPeers, ids.map(InfoHash), wants, st.booleans(), st.booleans()),
        st.builds(AnnouncePeer, ids.map(InfoHash), ports, st.binary(max_size=64), st.booleans(), st.booleans()),
        st.builds(SampleInfohashes, ids, wants),
    ),
    st.booleans(),
    versions,
)
endpoints = st.binary(min_size=6, max_size=6) | st.binary(min_size=18, max_size=18)
hash_lists = st.lists(ids, max_size=20).map(b"".join)
samples = st.builds(Samples, hash_lists, st.integers(0, 2**31 - 1), st.integers(0, MAX_INTERVAL_SECONDS))
answers = st.builds(
    Answer,
    transactions,
    ids.map(NodeId),
    nodes=st.none() | st.binary(max_size=208),
    nodes6=st.none() | st.binary(max_size=304),
    token=st.none() | st.binary(max_size=64),
    values=st.lists(endpoints.map(Endpoint), max_size=30).map(tuple),
    seeds_filter=st.none() | st.binary(min_size=256, max_size=256),
    peers_filter=st.none() | st.binary(min_size=256, max_size=256),
    external=st.none() | endpoints.map(Endpoint),
    version=versions,
    samples=st.none() | samples,
)


class TestQueries:
    @pytest.mark.parametrize(("data", "arguments"), QUERIES.items())
    def test_queries_of_the_specification(self, data: bytes, arguments: Arguments) -> None:
        query = Query(b"aa", ASKER, arguments)
        assert parse_message(data) == query
        assert encode_query(query) == data

    @pytest.mark.parametrize(("data", "query"), RECORDED.items())
    def test_queries_of_clients(self, data: bytes, query: Query) -> None:
        assert parse_message(data) == query

    @given(queries)
    def test_what_is_encoded_is_parsed(self, query: Query) -> None:
        data = encode_query(query)
        assert parse_message(data) == query
        assert _sorted(bencodepy.decode(data))

    @pytest.mark.parametrize("field", ["target", "info_hash"])
    def test_an_unknown_query_with_a_target_asks_for_nodes(self, field: str) -> None:
        """As ``get`` of BEP 44."""
        assert _parsed("get", {field: HASH}) == FindNode(HASH)

    def test_a_want_of_unknown_families_is_none(self) -> None:
        assert _parsed("find_node", {"target": HASH, "want": [b"n8", 4, [b"n4"]]}) == FindNode(HASH)
        assert _parsed("find_node", {"target": HASH, "want": [b"n6", b"n4", b"n6"]}) == FindNode(HASH, (4, 6))
        assert _parsed("find_node", {"target": HASH, "want": b"n4"}) == FindNode(HASH)

    @pytest.mark.parametrize("port", [None, 0, 65536, -1, b"80"])
    def test_an_implied_port_replaces_an_invalid_one(self, port: object) -> None:
        fields = {"implied_port": 1, "info_hash": HASH, "token": b"t"}
        named = fields if port is None else {**fields, "port": port}
        assert _parsed("announce_peer", named) == AnnouncePeer(HASH, 0, b"t", implied_port=True)
        with pytest.raises(QueryError, match="invalid port") as refused:
            _parsed("announce_peer", {**named, "implied_port": 0})
        assert (refused.value.transaction, refused.value.code) == (b"aa", 203)

    @pytest.mark.parametrize(
        ("name", "fields", "code"),
        [
            ("find_node", {}, 203),
            ("find_node", {"info_hash": HASH}, 203),
            ("get_peers", {"target": HASH}, 203),
            ("get_peers", {"info_hash": HASH[:19]}, 203),
            ("announce_peer", {"port": 1, "token": b"t"}, 203),
            ("announce_peer", {"info_hash": HASH, "port": 1}, 203),
            ("sample_infohashes", {"target": 7}, 203),
            ("vote", {}, 204),
            ("vote", {"target": b"short"}, 204),
            (7, {}, 204),
        ],
    )
    def test_an_invalid_query_is_refused_with_its_code(
        self, name: object, fields: dict[str, object], code: int
    ) -> None:
        with pytest.raises(QueryError) as refused:
            _parsed(name, fields)
        assert (refused.value.transaction, refused.value.code) == (b"aa", code)


@pytest.mark.parametrize("client", recorded_dht.CLIENTS)
def test_recorded_messages_are_read_as_another_decoder_reads_them(client: str) -> None:
    kinds = set()
    for _, data in recorded_dht.messages(client):
        fields: dict[bytes, Any] = bencodepy.decode(data)
        message = parse_message(data)
        assert message.transaction == fields[b"t"] and message.version == fields.get(b"v", b"")
        if isinstance(message, Query):
            assert message.id == fields[b"a"][b"id"]
            assert message.arguments == _arguments(fields[b"q"].decode(), fields[b"a"])
            kinds.add(NAMES[type(message.arguments)])
        elif isinstance(message, Answer):
            answer = fields[b"r"]
            assert message.id == answer[b"id"] and message.token == answer.get(b"token")
            assert message.nodes == answer.get(b"nodes") and [*message.values] == answer.get(b"values", [])
            kinds.add("answer")
    assert kinds >= {"get_peers", "announce_peer", "answer"}


def _arguments(name: str, fields: dict[bytes, Any]) -> Arguments:
    """Of queries as clients send them."""
    want = tuple(sorted(int(each[1:]) for each in fields.get(b"want", ())))
    if name == "ping":
        return Ping()
    if name == "find_node":
        return FindNode(fields[b"target"], want)
    info_hash = fields[b"info_hash"]
    if name == "get_peers":
        return GetPeers(info_hash, want, fields.get(b"noseed") == 1, fields.get(b"scrape") == 1)
    assert name == "announce_peer"
    implied, seed = fields.get(b"implied_port", 0) != 0, fields.get(b"seed") == 1
    return AnnouncePeer(info_hash, fields[b"port"], fields[b"token"], implied, seed)


class TestAnswers:
    @pytest.mark.parametrize(("data", "answer"), ANSWERS.items())
    def test_answers_of_the_specification(self, data: bytes, answer: Answer) -> None:
        assert parse_message(data) == answer
        assert encode_answer(answer) == data

    @given(answers)
    def test_what_is_encoded_is_parsed(self, answer: Answer) -> None:
        data = encode_answer(answer)
        if len(data) <= 2048:
            assert parse_message(data) == answer
        assert _sorted(bencodepy.decode(data))

    def test_an_empty_sample_is_present(self) -> None:
        answer = Answer(b"aa", ANSWERER, samples=Samples(b"", 0, 60))
        assert b"7:samples0:" in encode_answer(answer)

    def test_the_error_of_the_specification(self) -> None:
        data = b"d1:eli201e23:A Generic Error Ocurrede1:t2:aa1:y1:ee"
        failure = Failure(b"aa", 201, "A Generic Error Ocurred")
        assert parse_message(data) == failure
        assert encode_failure(failure) == data

    @pytest.mark.parametrize("error", [b"0:", b"le", b"d1:ai1ee", b"lllee1:xe"])
    def test_an_incomplete_error_is_one_all_the_same(self, error: bytes) -> None:
        message = parse_message(b"d1:e" + error + b"1:t2:aa1:y1:ee")
        assert isinstance(message, Failure) and message.code == 201

    def test_fields_of_a_wrong_kind_are_left_out(self) -> None:
        fields = {
            "BFpe": bytes(255),
            "id": ANSWERER,
            "interval": 10**9,
            "nodes": 7,
            "num": -1,
            "samples": bytes(41),
            "token": bytes(65),
            "values": [b"12345", b"123456", 7],
        }
        data = bencodepy.encode({"ip": b"1234567", "r": fields, "t": b"aa", "v": 7, "y": "r"})
        assert parse_message(data) == Answer(
            b"aa", ANSWERER, values=(Endpoint(b"123456"),), samples=Samples(bytes(40), 0, MAX_INTERVAL_SECONDS)
        )

    def test_node_lists_are_split_without_an_incomplete_end(self) -> None:
        node, node6 = Node(ASKER, Endpoint(b"123456")), Node(ANSWERER, Endpoint(b"x" * 18))
        packed, packed6 = b"".join(node), b"".join(node6)
        assert split_nodes(packed * 2 + b"rest", NODE_LENGTH) == [node, node]
        assert split_nodes(packed6 + b"rest", NODE6_LENGTH) == [node6]
        assert split_nodes(None, NODE_LENGTH) == split_nodes(b"def456...", NODE_LENGTH) == []


class TestDropped:
    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"le",
            b"de",
            b"i1e",
            b"d1:t2:aae",
            b"d1:t2:aa1:y1:xe",
            b"d1:t0:1:y1:ee",
            b"d1:ti1e1:y1:ee",
            b"d1:t17:aaaaaaaaaaaaaaaaa1:y1:ee",
            b"d1:y1:ee",
            b"d1:ad2:id19:abcdefghij012345678e1:q4:ping1:t2:aa1:y1:qe",
            b"d1:ade1:q4:ping1:t2:aa1:y1:qe",
            b"d1:q4:ping1:t2:aa1:y1:qe",
            b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:y1:qe",
            b"d1:rde1:t2:aa1:y1:re",
            b"d1:rle1:t2:aa1:y1:re",
            b"d1:t2:aa1:y1:re",
            b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe\n",
            b"d1:ad2:id20:abcdefghij01234567891:x" + b"l" * 7 + b"e" * 7 + b"e1:q4:ping1:t2:aa1:y1:qe",
            b"d1:ad2:id20:abcdefghij01234567891:xl" + b"0:" * 500 + b"ee1:q4:ping1:t2:aa1:y1:qe",
            b"d1:ad2:id20:abcdefghij01234567891:x2000:" + bytes(2000) + b"e1:q4:ping1:t2:aa1:y1:qe",
            b"d1:ad2:id20:abcdefghij01234567891:xi" + b"9" * 1000 + b"ee1:q4:ping1:t2:aa1:y1:qe",
        ],
    )
    def test_what_is_no_message_gets_no_answer(self, data: bytes) -> None:
        with pytest.raises(KrpcError):
            parse_message(data)

    @given(st.binary(max_size=100))
    def test_random_bytes_raise_nothing_else(self, data: bytes) -> None:
        for packet in (data, b"d1:ad2:id20:abcdefghij0123456789" + data + b"e1:q4:ping1:t2:aa1:y1:qe"):
            try:
                parse_message(packet)
            except (KrpcError, QueryError):
                continue


def _parsed(name: object, fields: dict[str, object]) -> Arguments:
    data = bencodepy.encode({"a": {"id": ASKER, **fields}, "q": name, "t": "aa", "y": "q"})
    query = parse_message(data)
    assert isinstance(query, Query)
    return query.arguments


def _sorted(value: object) -> bool:
    if isinstance(value, dict):
        return list(value) == sorted(value) and all(map(_sorted, value.values()))
    return True
