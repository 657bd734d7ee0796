"""D8, D11, D12, D15 by sockets: which answers are believed, how large datagrams are, our id, torrents without part."""

import random
from itertools import product

import pytest
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from tests.frontends.dht.harness import PUBLIC, UNLIMITED, LoopbackSocket, Served, linux_only, packed, serving
from tests.waiting import eventually
from tracker.bittorrent import Address, Endpoint, InfoHash
from tracker.dht.node import TIMEOUT_SECONDS
from tracker.dht.node_id import fits_address
from tracker.dht.responder import NO_PART, Swarm
from tracker.errors import StoreUnavailable
from tracker.frontends.dht.server import LIFETIME_SECONDS, MAX_WAITING
from tracker.wire.krpc import (
    MAX_SENT_BYTES,
    AnnouncePeer,
    Answer,
    Failure,
    FindNode,
    GetPeers,
    Node,
    NodeId,
    Ping,
    Query,
    SampleInfohashes,
    encode_answer,
    encode_query,
    parse_message,
)

pytestmark = linux_only

HASH, OTHER = InfoHash(b"h" * 20), InfoHash(b"o" * 20)
ASKER, ANSWERER = NodeId(b"a" * 20), NodeId(b"n" * 20)
NODE, ELSEWHERE = "127.1.0.1", "127.2.0.1"
OURS = Endpoint(bytes((88, 1, 2, 3)) + b"\x1a\xe1")


async def ask_one(served: Served, host: str = NODE) -> Query:
    """The query of our node to a node at this address."""
    served.node.contact([packed(host, served.client.port)], served.clock.now)
    return [query for datagram, query in served.asked() if datagram.host == host][-1]


class TestAnswers:
    @pytest.mark.slow
    async def test_guesses_from_elsewhere_change_nothing(self) -> None:
        """Every guess of two of the four bytes, from another address and from another port of the asked one."""
        elsewhere = LoopbackSocket()
        try:
            async with serving() as served:
                query = await ask_one(served)
                for guess in range(2**16):
                    transaction = query.transaction[:2] + guess.to_bytes(2, "big")
                    data = encode_answer(Answer(transaction, ANSWERER))
                    elsewhere.send(data, served.address, NODE if guess % 2 else ELSEWHERE)
                    served.socket.read()
                assert len(served.node.table) == 0
                own = encode_answer(Answer(query.transaction, ANSWERER))
                for turn in range(2):
                    served.client.send(own, served.address, NODE)
                    served.socket.read()
                    assert served.node.counts.queries_out["find_node", "answered"] == 1, "and only once"
                    assert len(served.node.table) == 1, turn
        finally:
            elsewhere.close()

    async def test_a_late_answer_is_ignored(self) -> None:
        async with serving() as served:
            query = await ask_one(served)
            served.clock.now = TIMEOUT_SECONDS
            served.socket.tick()
            await served.deliver([(NODE, encode_answer(Answer(query.transaction, ANSWERER)))])
            assert len(served.node.table) == 0 and served.node.counts.dropped["not asked for"] == 1
            assert served.node.counts.queries_out["find_node", "failed"] == 1

    async def test_time_outs_free_their_state(self) -> None:
        """As many queries as may be under way, again and again."""
        async with serving(sent_queries_second=10_000) as served:
            for turn in range(4):
                served.clock.now = turn * TIMEOUT_SECONDS
                served.socket.tick()
                endpoints = [packed(f"127.3.{turn}.{number}", served.client.port) for number in range(256)]
                served.node.contact(endpoints, served.clock.now)
                assert len(served.asked()) == 256, "none had to wait"


class TestSizes:
    async def test_no_datagram_is_larger_than_1024_bytes(self) -> None:
        """Any want, scrape and noseed, with full tables, announced peers and samples, asked over both families."""
        rng = random.Random(1)
        async with serving("127.0.0.1:0", "[::1]:0", **UNLIMITED) as served:
            if 6 not in served.sockets:
                pytest.skip("this machine has no IPv6 loopback")
            fill(served, rng)
            for family, size in ((4, 6), (6, 18)):
                for number in (0, 1, 30, 60, 300):
                    peers = tuple(Endpoint(rng.randbytes(size)) for _ in range(number))
                    served.swarms[HASH] = Swarm(True, peers[::2], peers[1::2])
                    served.sockets[family].cache.forget(HASH)
                    await sizes_are_right(served, family, number)


def fill(served: Served, rng: random.Random) -> None:
    for family, opened in served.sockets.items():
        for _ in range(300):
            address = rng.randbytes(4) if family == 4 else b"\x20\x01" + rng.randbytes(14)
            opened.node.table.on_answer(Node(NodeId(rng.randbytes(20)), Endpoint(address + b"\1\1")), 0)
        for _ in range(40):
            info_hash = InfoHash(rng.randbytes(20))
            opened.node.announced.announce(info_hash, Endpoint(rng.randbytes(6 if family == 4 else 18)), 0, seed=False)


async def sizes_are_right(served: Served, family: int, peers: int) -> None:
    wants: list[tuple[int, ...]] = [(), (4,), (6,), (4, 6)]
    for want, no_seeds, scrape, length in product(wants, (False, True), (False, True), (1, 16)):
        answer = await ask(served, family, GetPeers(HASH, want, no_seeds, scrape), bytes(length))
        assert answer.token and {len(each) for each in answer.values} <= {6 if family == 4 else 18}
        if not scrape:
            assert bool(answer.values) == (peers // (2 if no_seeds else 1) > 0)
        elif peers:
            assert answer.seeds_filter and answer.peers_filter and not answer.values
        for other in (FindNode(HASH, want), SampleInfohashes(HASH, want)):
            answer = await ask(served, family, other, bytes(length))
            assert (answer.samples is not None) == isinstance(other, SampleInfohashes)
        assert (answer.nodes is not None) == (4 in want or (not want and family == 4))


async def ask(
    served: Served, family: int, arguments: GetPeers | FindNode | SampleInfohashes, transaction: bytes
) -> Answer:
    query = Query(transaction, ASKER, arguments)
    if family == 4:
        ((_, _, data),) = await served.answers([("127.0.0.9", encode_query(query))])
    else:
        data = await served.answer_over_ipv6(encode_query(query))
    message = parse_message(data)
    assert len(data) <= MAX_SENT_BYTES and isinstance(message, Answer)
    return message


class TestOurId:
    async def test_it_follows_the_address_that_five_networks_see(self) -> None:
        """BEP 42: neither that of one liar, nor an impossible one."""
        async with serving() as served:
            before = served.node.id
            for turn in range(20):
                await answered(served, "127.9.0.1", 100 + turn, Endpoint(bytes((99, 9, 9, 9)) + b"\1\1"))
            for network in range(1, 20):
                await answered(served, f"127.{network}.0.2", network, packed("10.0.0.1", 1))
            assert served.node.id == before and not served.node.external.address
            for network in range(1, 6):
                assert served.node.id == before
                await answered(served, f"127.{network}.0.1", 50 + network, OURS)
            own, seen = served.node.id, Address(OURS[:4])
            assert own != before and fits_address(own, seen) and served.node.external.address == seen
            reply = await served.answer(Query(b"aa", ASKER, Ping()))
            assert isinstance(reply, Answer) and reply.id == own
            assert len(served.node.table) > 5, "the nodes are filed anew, and kept"


async def answered(served: Served, host: str, number: int, seen: Endpoint) -> None:
    """A node at ``host`` answers a query of ours, and says from where it came."""
    served.clock.now += 2
    query = await ask_one(served, host)
    answer = Answer(query.transaction, NodeId(bytes((number,)) * 20), external=seen)
    await served.deliver([(host, encode_answer(answer))])
    served.asked()  # those that follow are not answered


class TestTorrentsWithoutPart:
    async def test_a_private_torrent_looks_like_an_unknown_one(self) -> None:
        """Byte for byte."""
        seen = []
        for swarm in (Swarm(False, (OURS,), (OURS,)), NO_PART):
            async with serving(own=bytes(20), **UNLIMITED) as served:
                served.swarms[HASH] = swarm
                replies = []
                for arguments in (
                    GetPeers(HASH),
                    AnnouncePeer(HASH, 7, b"a token "),
                    GetPeers(HASH, (4, 6), no_seeds=True, scrape=True),
                    SampleInfohashes(HASH),
                ):
                    reply = await served.answer(Query(b"aa", ASKER, arguments))
                    replies.append(reply._replace(external=None) if isinstance(reply, Answer) else reply)
                assert isinstance(replies[0], Answer) and replies[0].token is None
                assert isinstance(replies[1], Failure) and replies[1].code == 203
                seen.append(replies)
        assert seen[0] == seen[1]

    async def test_a_torrent_made_private_is_hidden_after_ten_seconds_at_most(self) -> None:
        """At once where the change is published."""
        for published in (False, True):
            async with serving() as served:
                served.swarms[HASH] = Swarm(True, (OURS,), ())
                await announce(served, HASH)
                assert await values(served) == {OURS, packed("127.0.0.9", 6881)}
                served.swarms[HASH] = NO_PART
                if published:
                    served.socket.cache.forget(HASH)
                else:
                    served.clock.now = LIFETIME_SECONDS - 0.1
                    assert await values(served)
                    served.clock.now = LIFETIME_SECONDS
                assert await values(served) == set()
                assert len(served.node.announced) == 0
                served.swarms[HASH] = PUBLIC
                served.socket.cache.forget(HASH)
                assert await values(served) == set(), "what was announced is forgotten"

    async def test_a_change_during_the_reading_counts(self) -> None:
        """The torrent is read again, so nothing of what was is answered, kept or shown."""
        async with serving() as served:
            served.swarms[HASH] = Swarm(True, (OURS,), ())
            first = await served.answer(Query(b"aa", ASKER, GetPeers(HASH)))
            assert isinstance(first, Answer) and first.token
            served.socket.cache.forget(HASH)

            def is_made_private() -> None:
                if served.swarms.pop(HASH, None):
                    served.socket.cache.forget(None)

            served.on_read = is_made_private
            query = Query(b"aa", ASKER, AnnouncePeer(HASH, 1, first.token))
            assert isinstance(await served.answer(query), Failure)
            assert len(served.node.announced) == 0 and len(served.reads) == 3
            assert await values(served) == set() and len(served.reads) == 3


class TestStore:
    @pytest.mark.parametrize("error", [StoreUnavailable(), ResponseError("NOPERM")])
    async def test_without_the_store_queries_are_dropped_and_counted(self, error: Exception) -> None:
        """They are answered as soon as it can be read."""

        def fail() -> None:
            raise error

        async with serving() as served:
            served.on_read = fail
            assert await served.answer(Query(b"aa", ASKER, GetPeers(HASH))) is None
            assert served.node.counts.dropped == {"store unavailable": 1}
            served.on_read = list
            assert isinstance(await served.answer(Query(b"aa", ASKER, GetPeers(HASH))), Answer)

    async def test_more_than_may_wait_are_dropped_and_counted(self) -> None:
        async with serving(**UNLIMITED) as served:
            for number in range(MAX_WAITING + 5):
                served.client.send(
                    encode_query(Query(b"aa", ASKER, GetPeers(InfoHash(number.to_bytes(20, "big"))))),
                    served.address,
                    "127.0.0.9",
                )
                served.socket.read()
            assert served.node.counts.dropped == {"too many wait": 5}
            await eventually(lambda: served.socket.cache.waiting_count == 0)
            assert len(served.reads) == served.node.counts.queries_in["get_peers", "answered"] == MAX_WAITING


async def test_an_error_does_not_stop_the_node() -> None:
    """Nor with it the tracker: a task of the node that ends stops all."""
    broken = False

    def timer() -> float:
        if broken:
            raise ZeroDivisionError
        return 0.0

    async with serving(timer=timer) as served:
        broken = True
        with capture_logs() as logs:
            served.socket.tick()
        assert [each["event"] for each in logs] == ["the node of the DHT failed"]
        broken = False
        assert isinstance(await served.answer(Query(b"aa", ASKER, Ping())), Answer)


async def values(served: Served) -> set[Endpoint]:
    answer = await served.answer(Query(b"aa", ASKER, GetPeers(HASH)))
    assert isinstance(answer, Answer)
    return set(answer.values)


async def announce(served: Served, info_hash: InfoHash) -> None:
    first = await served.answer(Query(b"aa", ASKER, GetPeers(info_hash)))
    assert isinstance(first, Answer) and first.token
    assert isinstance(await served.answer(Query(b"ab", ASKER, AnnouncePeer(info_hash, 6881, first.token))), Answer)


async def test_a_read_only_node_answers_nothing() -> None:
    """BEP 43"""
    async with serving(read_only=True) as served:
        for arguments in (Ping(), GetPeers(HASH), AnnouncePeer(HASH, 1, b"t")):
            assert await served.answer(Query(b"aa", ASKER, arguments)) is None
        assert (await ask_one(served)).read_only
        assert served.reads == []


async def test_a_wrong_token_is_an_error() -> None:
    async with serving() as served:
        served.swarms[HASH] = PUBLIC
        reply = await served.answer(Query(b"aa", ASKER, AnnouncePeer(HASH, 1, b"wrong")))
        assert isinstance(reply, Failure) and reply.code == 203
        assert len(served.node.announced) == 0


async def test_answers_come_from_the_address_that_was_asked() -> None:
    """Also those that waited for the store."""
    async with serving("0.0.0.0:0") as served:
        served.addresses[4] = asked = ("127.5.5.5", served.address[1])
        for arguments in (Ping(), GetPeers(HASH)):
            (answer,) = await served.answers([(NODE, encode_query(Query(b"aa", ASKER, arguments)))])
            assert answer.sender == asked
