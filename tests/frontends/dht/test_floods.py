"""D10: floods of one address and of 10,000, by sockets: what is over a limit gets no answer, and memory is bounded."""

import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests import recorded_dht
from tests.frontends.dht.harness import LoopbackSocket, Served, is_query, linux_only, packed, serving
from tracker.bittorrent import InfoHash
from tracker.dht.rate_limits import IGNORE_SECONDS
from tracker.dht.responder import Swarm
from tracker.wire.krpc import Answer, FindNode, GetPeers, NodeId, Ping, Query, encode_answer, encode_query

pytestmark = linux_only

HASH = InfoHash(b"h" * 20)
ONE, OTHER, VICTIM = "127.1.0.1", "127.2.0.1", "127.66.6.6"
ADDRESSES = 10_000
SECONDS = 10
BURST, RATE, BYTES_A_SECOND = 400, 200, 64_000
KEPT_BYTES = 500_000
"""How much memory a second flood may take beyond a first one: less than an entry for each packet would."""


def host(number: int) -> str:
    return f"127.{1 + number // 65536}.{number // 256 % 256}.{number % 256}"


def id_of(number: int) -> NodeId:
    return NodeId(number.to_bytes(4, "big") * 5)


def ping(number: int) -> bytes:
    return encode_query(Query(b"aa", id_of(number), Ping()))


def get_peers_of_one_torrent(number: int) -> bytes:
    return encode_query(Query(b"aa", id_of(number), GetPeers(HASH)))


def get_peers_of_as_many_torrents(number: int) -> bytes:
    return encode_query(Query(b"aa", id_of(number), GetPeers(InfoHash(id_of(number)))))


def invalid(number: int) -> bytes:
    return b"d1:ad2:id20:" + id_of(number) + b"e1:q9:get_peers1:t2:aa1:y1:qe"


def garbage(number: int) -> bytes:
    return b"no message %d" % number


def answer_of_nobody(number: int) -> bytes:
    return encode_answer(Answer(number.to_bytes(4, "big"), id_of(number)))


async def test_a_flood_of_one_address() -> None:
    """Ten at once, then one a second. Beyond ten times that it is ignored for five minutes; others are not."""
    async with serving() as served:
        answered = []
        for second in range(20):
            served.clock.now = second
            answered.append(len(await served.answers((ONE, ping(1)) for _ in range(30))))
            assert len(await served.answers([(OTHER, ping(2))])) == 1
        assert answered == [10, 1, 1, 1] + [0] * 16
        for after, expected in ((IGNORE_SECONDS - 1, 0), (IGNORE_SECONDS + 4, 1)):
            served.clock.now = after
            assert len(await served.answers([(ONE, ping(1))])) == expected
        assert served.node.counts.dropped.keys() == {"address", "ignored"}


def flood(kind: Callable[[int], bytes], first: int = 0) -> Iterator[list[tuple[str, bytes]]]:
    """One packet of each address, in the chunks of a tenth of a second."""
    a_step = ADDRESSES // (10 * SECONDS)
    for start in range(first, first + ADDRESSES, a_step):
        yield [(host(number), kind(number)) for number in range(start, start + a_step)]


@pytest.mark.parametrize(
    ("kind", "reads"),
    [
        (ping, 0),
        pytest.param(get_peers_of_one_torrent, 1, marks=pytest.mark.slow),
        pytest.param(get_peers_of_as_many_torrents, BURST + SECONDS * RATE, marks=pytest.mark.slow),
        (invalid, 0),
        (garbage, 0),
        (answer_of_nobody, 0),
    ],
)
async def test_a_flood_of_10000_addresses(kind: Callable[[int], bytes], reads: int) -> None:
    """A thousand a second. The answers of a torrent have 50 peers each, so there the bytes are limited first. What is
    no query keeps no other node from its answer."""
    no_queries = kind in (garbage, answer_of_nobody)
    async with serving() as served:
        served.swarms[HASH] = Swarm(True, (), tuple(packed("192.0.2.1", port) for port in range(1, 201)))
        sent = []
        for step, packets in enumerate(flood(kind)):
            served.clock.now = step / 10
            sent += await served.answers(packets)
            if no_queries:
                assert [each.host for each in sent] == []
                honest = host(2 * ADDRESSES + step)
                assert [each.host for each in await served.answers([(honest, ping(1))])] == [honest]
    allowed = BURST + RATE * (SECONDS - 0.1)
    assert max(Counter(each.host for each in sent).values(), default=1) == 1
    assert sum(len(each.data) for each in sent) <= BYTES_A_SECOND * (SECONDS + 1)
    if no_queries:
        assert not served.node.counts.dropped["total"]
        return
    if kind is get_peers_of_one_torrent:
        assert served.node.counts.queries_in["get_peers", "limited"] > 0
        assert sum(len(each.data) for each in sent) > BYTES_A_SECOND * SECONDS
    else:
        assert len(sent) == pytest.approx(allowed, abs=2)
    assert served.node.counts.dropped["total"] == pytest.approx(ADDRESSES - allowed, abs=2)
    assert len(served.reads) <= reads and bool(served.reads) == bool(reads)
    assert len(served.node.table) == 0


@pytest.mark.long
async def test_a_flood_takes_no_memory() -> None:
    async with serving() as served:
        kept = []
        tracemalloc.start()
        try:
            for turn in range(2):
                for step, packets in enumerate(flood(get_peers_of_as_many_torrents, turn * ADDRESSES)):
                    served.clock.now = turn * SECONDS + step / 10
                    await served.answers(packets)
                served.reads.clear()
                kept.append(tracemalloc.get_traced_memory()[0])
        finally:
            tracemalloc.stop()
    assert kept[1] - kept[0] < KEPT_BYTES


async def test_a_flood_does_not_keep_a_second_address_from_answers() -> None:
    """While one address sends a thousand packets a second, each of a hundred others gets its answer."""
    async with serving() as served:
        for number in range(100):
            served.clock.now = number / 10
            packets = [(ONE, ping(1))] * 100 + [(host(1000 + number), ping(number))]
            found = await served.answers(packets)
            assert [each.host for each in found if each.host != ONE] == [host(1000 + number)]


@pytest.mark.parametrize("client", recorded_dht.CLIENTS)
async def test_clients_as_recorded_are_never_dropped(client: str) -> None:
    """Each query gets an answer, though another address floods the node."""
    queries = [(at, data) for at, data in recorded_dht.messages(client) if is_query(data)]
    assert len(queries) >= 5
    async with serving() as served:
        for seconds, data in queries:
            served.clock.now = seconds
            found = await served.answers([(ONE, ping(1))] * 20 + [(OTHER, data)])
            assert [each.host for each in found if each.host == OTHER] == [OTHER]


class Liar:
    """A node that answers each query, and names nodes at the ports of one victim, near what was asked for."""

    def __init__(self, served: Served, victims: list[LoopbackSocket]) -> None:
        self._served = served
        self._victims = victims
        self._named = 0

    def answer(self) -> None:
        for asked, query in self._served.asked():
            target = query.arguments.target if isinstance(query.arguments, FindNode) else self._served.node.id
            data = encode_answer(Answer(query.transaction, id_of(1), nodes=self._nodes(target)))
            self._served.client.send(data, self._served.address, asked.host)

    def _nodes(self, target: bytes) -> bytes:
        nodes = b""
        for victim in self._victims:
            self._named += 1
            nodes += target[:16] + self._named.to_bytes(4, "big") + packed(VICTIM, victim.port)
        return nodes


async def test_no_address_gets_more_than_one_query_a_second() -> None:
    """However often it is named, with whatever ids and ports, and though packets come in its name, too: four at once,
    then one a second."""
    victims = [LoopbackSocket() for _ in range(8)]
    times: list[float] = []
    try:
        async with serving() as served:
            liar = Liar(served, victims)
            served.node.contact([packed(ONE, served.client.port)], 0)
            for step in range(4 * 120):
                served.clock.now = step / 4
                served.socket.tick()
                liar.answer()
                victims[step % 8].send(ping(1_000_000 + step), served.address, VICTIM)
                served.socket.read()
                times += [served.clock.now for each in victims for got in each.received() if is_query(got.data)]
    finally:
        for each in victims:
            each.close()
    assert len(times) > 60
    for first, start in enumerate(times):
        for last in range(first, len(times)):
            assert last - first + 1 <= 4 + times[last] - start
