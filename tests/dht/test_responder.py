"""D6, D9, D11, D12, D15: answers to other nodes: what is in them, how large they are, what they must not tell."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.bittorrent import Endpoint, InfoHash
from tracker.dht import bloom
from tracker.dht.node_id import to_id
from tracker.dht.responder import (
    MANY_PEERS,
    MAX_FILTERS,
    NO_PART,
    TOKEN_HASH_LENGTH,
    AnnouncedPeers,
    Family,
    Responder,
    SampleSet,
    Swarm,
)
from tracker.dht.table import RoutingTable
from tracker.errors import QueryError
from tracker.wire.connection_id import ConnectionIds
from tracker.wire.krpc import (
    MAX_SENT_BYTES,
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
    encode_query,
    parse_message,
    split_nodes,
)

OWN, OWN6, ASKER = to_id(1 << 100), to_id(1 << 101), NodeId(b"a" * 20)
HASH, OTHER = InfoHash(b"h" * 20), InfoHash(b"o" * 20)
SOURCE = Endpoint(b"\x09\x09\x09\x09\x1a\xe1")
SOURCE6 = Endpoint(b"\x2a\x00" + bytes(13) + b"\x09\x1a\xe1")
KNOWN = Swarm(takes_part=True)


def peers(count: int, size: int = 6, start: int = 1) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(number.to_bytes(size - 2, "big") + b"\x1a\xe1") for number in range(start, start + count))


class Setup:
    """A responder with full tables of both families."""

    def __init__(
        self, *, nodes: int = 30, read_only: bool = False, max_peers: int = 100, max_peers_of_hash: int = 100
    ) -> None:
        rng = random.Random(1)
        self.rng = random.Random(2)
        self.families = {}
        for family, own, size in ((4, OWN, 4), (6, OWN6, 16)):
            table = RoutingTable(own, 0, private_addresses=True)
            for number in range(nodes):
                endpoint = Endpoint((0x20 << 8 * (size - 1) | number).to_bytes(size, "big") + b"\x1a\xe1")
                table.on_answer(Node(NodeId(rng.randbytes(20)), endpoint), 0)
            self.families[family] = Family(
                table, AnnouncedPeers(own, max_peers=max_peers, max_peers_of_hash=max_peers_of_hash), SampleSet()
            )
        self.responder = Responder(self.families, bytes(32), version=b"SK01", read_only=read_only)

    def ask(
        self,
        arguments: Arguments,
        swarm: Swarm = NO_PART,
        *,
        source: Endpoint = SOURCE,
        now: float = 0,
        transaction: bytes = b"aa",
    ) -> Answer | Failure:
        query = Query(transaction, ASKER, arguments)
        data = self.responder.respond(query, source, swarm, now, self.rng)
        assert data is not None and len(data) <= MAX_SENT_BYTES
        message = parse_message(data)
        assert isinstance(message, Answer | Failure) and message.transaction == transaction
        return message

    def answer(
        self, arguments: Arguments, swarm: Swarm = NO_PART, *, source: Endpoint = SOURCE, now: float = 0
    ) -> Answer:
        message = self.ask(arguments, swarm, source=source, now=now)
        assert isinstance(message, Answer)
        assert message.external == source and message.version == b"SK01"
        return message

    def announce(
        self,
        info_hash: InfoHash = HASH,
        swarm: Swarm = KNOWN,
        *,
        source: Endpoint = SOURCE,
        port: int = 6881,
        seed: bool = False,
        now: float = 0,
    ) -> None:
        token = self.answer(GetPeers(info_hash), swarm, source=source, now=now).token
        assert token is not None
        announce = AnnouncePeer(info_hash, port, token, implied_port=port == 0, seed=seed)
        self.answer(announce, swarm, source=source, now=now)


class TestNodes:
    def test_a_ping_is_answered_with_our_id(self) -> None:
        assert Setup().answer(Ping()) == Answer(b"aa", OWN, external=SOURCE, version=b"SK01")
        assert Setup().answer(Ping(), source=SOURCE6).id == OWN6

    @pytest.mark.parametrize(
        ("source", "want", "families"),
        [
            (SOURCE, (), (8, None)),
            (SOURCE6, (), (None, 8)),
            (SOURCE, (6,), (None, 8)),
            (SOURCE6, (4,), (8, None)),
            (SOURCE, (4, 6), (8, 8)),
        ],
    )
    def test_nodes_are_of_the_wanted_family(
        self, source: Endpoint, want: tuple[int, ...], families: tuple[int | None, int | None]
    ) -> None:
        """BEP 32"""
        setup = Setup()
        for arguments in (FindNode(HASH, want), GetPeers(HASH, want), SampleInfohashes(HASH, want)):
            answer = setup.answer(arguments, source=source)
            nodes = None if answer.nodes is None else len(split_nodes(answer.nodes, NODE_LENGTH))
            nodes6 = None if answer.nodes6 is None else len(split_nodes(answer.nodes6, NODE6_LENGTH))
            assert (nodes, nodes6) == families

    def test_they_are_the_nearest(self) -> None:
        setup = Setup()
        answer = setup.answer(FindNode(HASH))
        assert split_nodes(answer.nodes, NODE_LENGTH) == setup.families[4].table.closest(HASH)

    def test_without_any_the_list_is_empty(self) -> None:
        assert Setup(nodes=0).answer(FindNode(HASH)).nodes == b""

    def test_the_asker_becomes_a_candidate_unless_it_is_read_only(self) -> None:
        setup = Setup(nodes=0)
        for read_only in (True, False):
            setup.responder.respond(Query(b"aa", ASKER, Ping(), read_only=read_only), SOURCE, NO_PART, 0, setup.rng)
            due = setup.families[4].table.due_candidates(0)
            assert due == ([] if read_only else [Node(ASKER, SOURCE)])


class TestNoAnswer:
    def test_our_own_id_port_0_and_an_unused_family(self) -> None:
        setup = Setup()
        del setup.families[6]
        for id, source in ((OWN, SOURCE), (ASKER, Endpoint(SOURCE[:4] + b"\0\0")), (ASKER, SOURCE6)):
            assert setup.responder.respond(Query(b"aa", id, Ping()), source, NO_PART, 0, setup.rng) is None

    def test_a_read_only_node_answers_nothing(self) -> None:
        """BEP 43"""
        setup = Setup(read_only=True)
        for arguments in (Ping(), FindNode(HASH), GetPeers(HASH), AnnouncePeer(HASH, 1, b"t")):
            query = Query(b"aa", ASKER, arguments)
            assert setup.responder.respond(query, SOURCE, KNOWN, 0, setup.rng) is None
        assert setup.responder.refuse(QueryError(b"aa", 204, "unknown method")) is None

    def test_an_invalid_query_gets_an_error(self) -> None:
        data = Setup().responder.refuse(QueryError(b"aa", 204, "unknown method"))
        assert data == b"d1:eli204e14:unknown methode1:t2:aa1:v4:SK011:y1:ee"


class TestPeers:
    def test_peers_of_the_store_and_announced_ones_are_given(self) -> None:
        setup = Setup()
        setup.announce(port=7)
        setup.announce(port=0, source=Endpoint(b"\x09\x09\x09\x08\0\x50"), seed=True)
        swarm = Swarm(True, peers(2), peers(3, start=100))
        announced = {Endpoint(b"\x09\x09\x09\x09\0\7"), Endpoint(b"\x09\x09\x09\x08\0\x50")}
        answer = setup.answer(GetPeers(HASH), swarm)
        assert set(answer.values) == {*swarm.seeds, *swarm.leechers, *announced}
        assert len(answer.values) == 7 and answer.token and answer.nodes
        without = setup.answer(GetPeers(HASH, no_seeds=True), swarm)
        assert set(without.values) == {*swarm.leechers, Endpoint(b"\x09\x09\x09\x09\0\7")}

    def test_families_are_apart(self) -> None:
        setup = Setup()
        setup.announce(source=SOURCE6)
        assert setup.answer(GetPeers(HASH), KNOWN).values == ()
        assert setup.answer(GetPeers(HASH), KNOWN, source=SOURCE6).values == (SOURCE6,)

    @pytest.mark.parametrize(("source", "size", "most"), [(SOURCE, 6, 50), (SOURCE6, 18, 25)])
    def test_of_many_peers_some_are_drawn(self, source: Endpoint, size: int, most: int) -> None:
        setup, swarm = Setup(), Swarm(True, peers(200, size), peers(200, size, 1000))
        found = [set(setup.answer(GetPeers(HASH), swarm, source=source).values) for _ in range(40)]
        assert {len(each) for each in found} == {most}
        assert len(set().union(*found)) > 350

    @pytest.mark.parametrize("number", [0, 1, 49, 50, 51, 99, 100, 149, 500])
    def test_no_peer_is_given_twice_and_none_too_few(self, number: int) -> None:
        """Peers may be in the store and announced, and of another kind there."""
        setup, swarm = Setup(), Swarm(True, peers(number), peers(number))
        for each in peers(min(number, 20)):
            setup.announce(swarm=swarm, source=each, port=0)
        for no_seeds in (False, True):
            values = setup.answer(GetPeers(HASH, no_seeds=no_seeds), swarm).values
            assert len(values) == len(set(values)) == (0 if no_seeds else min(number, 50))
            assert set(values) <= set(peers(number))

    def test_each_of_many_peers_has_the_same_chance(self) -> None:
        setup, swarm = Setup(), Swarm(True, peers(60), peers(60, start=100))
        found = Counter(each for _ in range(400) for each in setup.answer(GetPeers(HASH), swarm).values)
        assert len(found) == 120 and min(found.values()) > 100 and max(found.values()) < 240

    def test_counts_are_remembered_for_ten_seconds(self) -> None:
        """Of many peers, and not of a torrent that left meanwhile."""
        setup, wanted = Setup(), GetPeers(HASH, scrape=True)
        few, some, many = (Swarm(True, (), peers(number)) for number in (5, 100, 300))

        def counted(swarm: Swarm, now: float) -> float:
            found = setup.answer(wanted, swarm, now=now).peers_filter
            return 0 if found is None else bloom.estimate(found)

        found = [counted(few, 0), counted(some, 0), counted(many, 9.9), counted(many, 10)]
        assert found == pytest.approx([5, 100, 100, 300], rel=0.1)
        assert [counted(NO_PART, 11), counted(some, 12)] == pytest.approx([0, 100], rel=0.1)

    def test_remembered_counts_are_bounded(self) -> None:
        setup = Setup(nodes=0)
        for number in range(MAX_FILTERS + 5):
            info_hash = InfoHash(number.to_bytes(20, "big"))
            setup.answer(GetPeers(info_hash, scrape=True), Swarm(True, (), peers(MANY_PEERS)))
        assert len(setup.responder._filters) == MAX_FILTERS

    def test_counts_are_given_instead_of_peers(self) -> None:
        """BEP 33"""
        setup = Setup()
        setup.announce(seed=True)
        answer = setup.answer(GetPeers(HASH, scrape=True), Swarm(True, peers(20), peers(50, start=100)))
        assert answer.values == () and answer.seeds_filter and answer.peers_filter
        assert bloom.estimate(answer.seeds_filter) == pytest.approx(21, rel=0.05)
        assert bloom.estimate(answer.peers_filter) == pytest.approx(50, rel=0.05)
        assert setup.answer(GetPeers(OTHER, scrape=True), KNOWN).seeds_filter is None

    def test_a_full_hash_gives_a_token_to_its_own_peers_only(self) -> None:
        setup = Setup(max_peers_of_hash=1)
        setup.announce()
        assert setup.answer(GetPeers(HASH), KNOWN).token
        other = Endpoint(b"\x09\x09\x09\x08\1\1")
        assert setup.answer(GetPeers(HASH), KNOWN, source=other).token is None

    @pytest.mark.parametrize("source", [SOURCE, SOURCE6])
    def test_without_room_an_announce_is_refused_like_one_of_a_private_torrent(self, source: Endpoint) -> None:
        """Also with a token of a time when there was room."""
        setup = Setup(max_peers_of_hash=1)
        token = setup.answer(GetPeers(HASH), KNOWN, source=source).token
        assert token
        setup.announce(source=Endpoint(source[:-3] + b"\x08\x1a\xe1"))
        full = setup.ask(AnnouncePeer(HASH, 7, token), KNOWN, source=source)
        private = setup.ask(AnnouncePeer(HASH, 7, token), NO_PART, source=source)
        assert full == private == Failure(b"aa", 203, "wrong token", b"SK01")
        assert sum(each.announced.peer_count for each in setup.families.values()) == 0


class TestTokens:
    @pytest.mark.parametrize(("age", "accepted"), [(0, True), (299, True), (601, False)])
    def test_a_token_holds_for_some_minutes(self, age: float, accepted: bool) -> None:
        setup = Setup()
        token = setup.answer(GetPeers(HASH), KNOWN).token
        assert token
        reply = setup.ask(AnnouncePeer(HASH, 1, token), KNOWN, now=age)
        assert isinstance(reply, Answer) == accepted
        assert setup.families[4].announced.peer_count == accepted

    @given(st.binary(max_size=40))
    def test_a_wrong_token_is_an_error_and_stores_nothing(self, token: bytes) -> None:
        setup = Setup(nodes=0)
        reply = setup.ask(AnnouncePeer(HASH, 1, token), KNOWN)
        assert reply == Failure(b"aa", 203, "wrong token", b"SK01")
        assert setup.families[4].announced.peer_count == 0

    def test_a_token_of_another_address_torrent_or_start_is_wrong(self) -> None:
        setup = Setup()
        token = setup.answer(GetPeers(HASH), KNOWN).token
        assert token
        announce = AnnouncePeer(HASH, 1, token)
        other = Endpoint(b"\x09\x09\x09\x08\1\1")
        assert isinstance(setup.ask(announce, KNOWN, source=other), Failure)
        assert isinstance(setup.ask(announce._replace(info_hash=OTHER), KNOWN), Failure)
        setup.responder.tokens = ConnectionIds(bytes(31) + b"\1", TOKEN_HASH_LENGTH)
        assert isinstance(setup.ask(announce, KNOWN), Failure)
        port_changed = Endpoint(SOURCE[:4] + b"\7\7")
        assert isinstance(Setup().ask(announce, KNOWN, source=port_changed), Answer)


class TestAmplification:
    """Who forges an address makes the node send there what it answers."""

    @pytest.mark.parametrize("family", [4, 6])
    def test_an_answer_is_about_ten_times_as_large_as_its_query_at_most(self, family: int) -> None:
        setup, size, source = Setup(), *((6, SOURCE) if family == 4 else (18, SOURCE6))
        swarm = Swarm(True, peers(100, size), peers(100, size, 1000))
        for number in range(40):
            setup.announce(InfoHash(bytes((number,)) * 20), source=source)
        largest = 0.0
        for want in ((), (4,), (6,), (4, 6)):
            for arguments in (
                Ping(),
                FindNode(HASH, want),
                GetPeers(HASH, want),
                GetPeers(HASH, want, scrape=True),
                SampleInfohashes(HASH, want),
            ):
                query = Query(b"a", ASKER, arguments)
                data = setup.responder.respond(query, source, swarm, 0, setup.rng)
                assert data is not None
                largest = max(largest, len(data) / len(encode_query(query)))
        assert 5 < largest < 10.5


class TestTorrentsWithoutPart:
    @pytest.mark.parametrize("source", [SOURCE, SOURCE6])
    def test_they_look_like_a_hash_that_no_node_knows(self, source: Endpoint) -> None:
        """Word for word, before and after an announce, and like a hash for which there is no room."""
        private = Swarm(False, peers(5), peers(5))
        answers = []
        for swarm, max_peers in ((private, 100), (NO_PART, 100), (KNOWN, 0)):
            setup = Setup(max_peers=max_peers)
            asked = [
                setup.ask(arguments, swarm, source=source)
                for arguments in (
                    GetPeers(HASH),
                    AnnouncePeer(HASH, 7, ConnectionIds(bytes(32), TOKEN_HASH_LENGTH).issue(source[:-2] + HASH, 0)),
                    GetPeers(HASH),
                    GetPeers(HASH, scrape=True),
                    GetPeers(HASH, (4, 6), no_seeds=True),
                    SampleInfohashes(HASH),
                )
            ]
            answers.append(asked)
            assert sum(each.announced.peer_count for each in setup.families.values()) == 0
        assert answers[0] == answers[1] == answers[2]
        first, refused, *others = answers[0]
        assert refused == Failure(b"aa", 203, "wrong token", b"SK01")
        assert all(isinstance(each, Answer) and each.values == () for each in (first, *others))
        assert isinstance(first, Answer) and first.token is None and first.nodes != first.nodes6

    def test_one_that_leaves_is_forgotten_at_once(self) -> None:
        setup = Setup()
        setup.announce()
        assert setup.answer(SampleInfohashes(OTHER)).samples == Samples(HASH, 1, 3600)
        assert setup.answer(GetPeers(HASH), KNOWN).values
        assert setup.answer(GetPeers(HASH), NO_PART).values == ()
        assert setup.answer(SampleInfohashes(OTHER)).samples == Samples(b"", 0, 3600)
        assert setup.answer(GetPeers(HASH), KNOWN).values == ()


class TestSamples:
    def test_they_are_present_even_when_empty(self) -> None:
        assert Setup().answer(SampleInfohashes(HASH)).samples == Samples(b"", 0, 3600)

    def test_they_stay_the_same_within_the_interval(self) -> None:
        setup = Setup()
        hashes = {InfoHash(bytes((number,)) * 20) for number in range(60)}
        for info_hash in hashes:
            setup.announce(info_hash)
        first, later, other = (setup.answer(SampleInfohashes(HASH), now=now).samples for now in (0, 3599, 3600))
        assert first and later and other
        assert first.total == 60 and (first.interval_seconds, later.interval_seconds) == (3600, 1)
        assert first.info_hashes == later.info_hashes != other.info_hashes
        drawn = {first.info_hashes[at : at + 20] for at in range(0, 400, 20)}
        assert len(first.info_hashes) == 400 and len(drawn) == 20 and drawn <= hashes

    def test_a_set_of_a_worker_is_left_to_it(self) -> None:
        setup = Setup()
        setup.announce()
        samples = setup.families[4].samples = SampleSet(by_worker=True)
        assert setup.answer(SampleInfohashes(HASH)).samples == Samples(b"", 0, 0)
        samples.draw([], 0, setup.rng, others=[OTHER], others_total=7)
        assert setup.answer(SampleInfohashes(HASH), now=5000).samples == Samples(OTHER, 7, 0)

    def test_each_of_all_has_the_same_chance(self) -> None:
        samples, rng, own = SampleSet(), random.Random(1), [InfoHash(bytes((n,)) * 20) for n in range(100)]
        others = [InfoHash(bytes((200 + n,)) * 20) for n in range(20)]
        shown = []
        for now in range(1000):
            samples.draw(own, now, rng, others=others, others_total=400)
            assert len(set(samples.hashes())) == 20 and samples.total == 500
            shown += samples.hashes()
        assert sum(each in own for each in shown) / 20_000 == pytest.approx(100 / 500, rel=0.1)
        samples.draw(own[:3], 0, rng, others=others[:4], others_total=4)
        assert set(samples.hashes()) == {*own[:3], *others[:4]} and samples.total == 7

    def test_a_node_may_show_none(self) -> None:
        setup = Setup()
        setup.announce()
        setup.families[4].samples = None
        assert setup.answer(SampleInfohashes(HASH)).samples == Samples(b"", 0, 21600)


@given(
    st.sampled_from((SOURCE, SOURCE6)),
    st.sampled_from(((), (4,), (6,), (4, 6))),
    st.booleans(),
    st.booleans(),
    st.integers(0, 100),
    st.integers(0, 100),
    st.binary(min_size=1, max_size=16),
)
def test_no_datagram_is_too_large(
    source: Endpoint, want: tuple[int, ...], no_seeds: bool, scrape: bool, seeds: int, leechers: int, transaction: bytes
) -> None:
    size = len(source)
    swarm = Swarm(True, peers(seeds, size), peers(leechers, size, 5000))
    get_peers = GetPeers(HASH, want, no_seeds, scrape)
    answer = FULL.ask(get_peers, swarm, source=source, transaction=transaction)
    assert isinstance(answer, Answer) and answer.token
    own = answer.nodes if size == 6 else answer.nodes6
    if not want or (4 if size == 6 else 6) in want:
        assert own and len(own) == 8 * (26 if size == 6 else 38), "the nodes of the asker's family are all there"
    if scrape and (seeds or leechers):
        assert answer.seeds_filter and answer.peers_filter
    for arguments in (FindNode(HASH, want), SampleInfohashes(HASH, want)):
        FULL.ask(arguments, source=source, transaction=transaction)


def test_with_both_lists_at_least_sixteen_samples_fit() -> None:
    for source in (SOURCE, SOURCE6):
        answer = FULL.answer(SampleInfohashes(HASH, (4, 6)), source=source)
        assert answer.samples and len(answer.samples.info_hashes) >= 16 * 20


def _full() -> Setup:
    setup = Setup()
    for number in range(30):
        for source in (SOURCE, SOURCE6):
            setup.announce(InfoHash(bytes((number,)) * 20), source=source)
    return setup


FULL = _full()
