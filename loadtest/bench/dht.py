"""The cost of the DHT's work without network and store: the nearest nodes of a table, answers, and messages.

The fastest of many rounds counts, as others disturb the machine. The exit status is 1 where a goal is missed.
"""

import argparse
import random
import sys
import timeit
from collections.abc import Callable

from loadtest.bench.sections import Section
from tracker.bittorrent import Address, Endpoint, InfoHash
from tracker.dht.node_id import to_id
from tracker.dht.rate_limits import InboundLimits
from tracker.dht.responder import AnnouncedPeers, Family, Responder, Swarm
from tracker.dht.table import RoutingTable
from tracker.wire.krpc import Answer, GetPeers, Node, Query, encode_answer, encode_query, parse_message

CLOSEST_GOAL_MICROSECONDS = 40.0
ANSWER_GOAL_MICROSECONDS = 150.0
_NODES, _TARGETS = 2000, 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50, help="rounds; the fastest one counts (50)")
    section = measure(parser.parse_args().rounds)
    print(section.as_markdown())
    sys.exit(0 if all(finding.reached is not False for finding in section.findings) else 1)


def measure(rounds: int) -> Section:
    rng = random.Random(5)
    table = filled_table(rng)
    own = table.entries.own
    targets = [to_id(own ^ rng.getrandbits(160) >> rng.randrange(40)) for _ in range(_TARGETS)]
    section = Section(f"A DHT node with {len(table):,} known nodes")

    def lookups() -> None:
        for target in targets:
            table.closest(target)

    section.find("closest(8)", microseconds(lookups, rounds) / _TARGETS, "µs", CLOSEST_GOAL_MICROSECONDS)
    foreign = filled_table(rng, fitting=False)

    def foreign_lookups() -> None:
        for target in targets:
            foreign.closest(target)

    section.find(
        "closest(8), where no id fits its address",
        microseconds(foreign_lookups, rounds) / _TARGETS,
        "µs",
        CLOSEST_GOAL_MICROSECONDS,
    )
    query = encode_query(Query(b"abcd", to_id(1), GetPeers(InfoHash(targets[0])), version=b"LT\2\x11"))
    answered = asked_for_peers(table, query, rng)
    section.find("get_peers answered", microseconds(answered, rounds), "µs", ANSWER_GOAL_MICROSECONDS)
    for scrape, what in ((False, "get_peers answered, of 1,000 peers"), (True, "their counts, within 10 s")):
        many = asked_for_peers(
            table, encode_query(Query(b"abcd", to_id(1), GetPeers(InfoHash(targets[0]), scrape=scrape))), rng, 500
        )
        section.find(what, microseconds(many, rounds), "µs", ANSWER_GOAL_MICROSECONDS)
    packet = answered()
    answer = parse_message(packet)
    assert isinstance(answer, Answer) and len(answer.values) == 50
    section.remarks.append(f"An answer has {len(packet)} bytes.")
    section.find("parse get_peers", microseconds(lambda: parse_message(query), rounds), "µs")
    section.find("encode the answer", microseconds(lambda: encode_answer(answer), rounds), "µs")
    section.find("parse the answer", microseconds(lambda: parse_message(packet), rounds), "µs")
    return section


def asked_for_peers(table: RoutingTable, packet: bytes, rng: random.Random, announced: int = 0) -> Callable[[], bytes]:
    """All that happens between the datagram in and the datagram out, but for the swarm, which is given: 100 peers, or
    500 where as many were ``announced`` to the node."""
    own = to_id(table.entries.own)
    families = {4: Family(table, AnnouncedPeers(own))}
    asked = parse_message(packet)
    assert isinstance(asked, Query) and isinstance(asked.arguments, GetPeers)
    for number in range(announced):
        endpoint = Endpoint((0x0B000000 + number).to_bytes(4, "big") + b"\x1a\xe1")
        families[4].announced.announce(asked.arguments.info_hash, endpoint, 0, seed=number % 2 == 0)
    responder = Responder(families, rng.randbytes(32), version=b"SK01")
    limits = InboundLimits(0, address_rate=1e9, address_burst=1e9, total_rate=1e9, total_burst=1e9, answer_bytes=1e9)
    source = Endpoint(b"\x09\x09\x09\x09\x1a\xe1")
    peers = [Endpoint(number.to_bytes(4, "big") + b"\x1a\xe1") for number in range(announced or 100)]
    swarm = Swarm(True, peers[: len(peers) // 2], peers[len(peers) // 2 :])

    def answer() -> bytes:
        assert limits.refuse(Address(source[:-2]), 0) is None
        query = parse_message(packet)
        assert isinstance(query, Query)
        data = responder.respond(query, source, swarm, 0, rng)
        assert data is not None and limits.may_answer(len(data), 0)
        return data

    return answer


def filled_table(rng: random.Random, *, fitting: bool = True) -> RoutingTable:
    """A table with exactly 2,000 nodes, a full one of a large network: full buckets, and as many near our id as in
    the last ones. ``fitting``: whether their ids fit their addresses, as any id does that is private."""
    own = rng.getrandbits(160)
    table = RoutingTable(to_id(own), 0, private_addresses=True)
    host = 0x0A000000 if fitting else 0x50000000
    while len(table) < _NODES:
        host += 1
        endpoint = Endpoint(host.to_bytes(4, "big") + b"\x1a\xe1")
        table.on_answer(Node(to_id(own ^ rng.getrandbits(160) >> rng.randrange(30)), endpoint), 0)
    return table


def microseconds(action: Callable[[], object], rounds: int) -> float:
    return min(timeit.repeat(action, number=1, repeat=rounds)) * 1e6


if __name__ == "__main__":
    main()
