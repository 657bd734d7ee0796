"""Checks that a tracker returns peers: decodes its answers to requests of the workload."""

from collections.abc import Sequence
from dataclasses import dataclass

import bencodepy
import uvloop

from loadtest.bench.loader import BenchError, send_all
from loadtest.bench.population import PEERS_WANTED
from loadtest.bench.targets import Target

DECODED = 1000
_SHARE_WITH_PEERS = 0.5
_COMPACT_BYTES = 6


@dataclass(slots=True)
class Answers:
    """Counts of the answers of one tracker."""

    announces: int = 0
    scrapes: int = 0
    with_peers: int = 0
    peers: int = 0

    def take(self, body: bytes) -> None:
        """Raises BenchError for an answer that is neither an announce's with compact peers nor a scrape's."""
        try:
            answer = bencodepy.decode(body)
        except bencodepy.DecodingError as error:
            raise BenchError(f"not bencode ({error}): {body[:300]!r}") from error
        if not isinstance(answer, dict):  # bencodepy takes no bytes for an empty sequence
            raise BenchError(f"not a dictionary: {body[:300]!r}")
        if b"files" in answer:
            self.scrapes += 1
            return
        peers = answer.get(b"peers")
        if b"interval" not in answer or not isinstance(peers, bytes) or len(peers) % _COMPACT_BYTES:
            raise BenchError(f"neither an announce's answer with compact peers nor a scrape's: {body[:300]!r}")
        count = len(peers) // _COMPACT_BYTES
        if count > PEERS_WANTED:
            raise BenchError(f"{count} peers, {PEERS_WANTED} were asked for: {body[:300]!r}")
        self.announces += 1
        self.with_peers += count > 0
        self.peers += count

    def check(self, name: str) -> None:
        """Raises BenchError if most announces got no peers: the tracker has not stored the announced ones."""
        if not self.announces or self.with_peers < self.announces * _SHARE_WITH_PEERS:
            raise BenchError(f"{name}: {self.with_peers} of {self.announces} announces got peers")

    @property
    def mean_peers(self) -> float:
        return self.peers / max(self.announces, 1)


def verify(target: Target, requests: Sequence[str]) -> Answers:
    """Decodes the answers to a thousand requests that leave the swarms as they are; raises BenchError."""
    answers = Answers()
    asked = [request for request in requests if "&event=" not in request][:DECODED]
    try:
        uvloop.run(send_all(target.port, asked, answers.take, at_once=target.at_once))
    except BenchError as error:
        error.add_note(f"from {target.name}")
        raise
    answers.check(target.name)
    return answers
