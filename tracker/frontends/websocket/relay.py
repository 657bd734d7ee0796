"""Passes offers and answers on between WebSockets of this process, and to other processes over the store.

An offer goes to a WebSocket that the store has chosen. It is open there for some time, and an answer passes only for an
open offer, once. So no client can send anything to a peer that made it no offer. Messages for another process are
collected for two milliseconds, and published on its channel together.
"""

import asyncio
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tracker.bittorrent import InfoHash, PeerId
from tracker.core.announce import Tracker
from tracker.wire.endpoint import SocketId
from tracker.wire.webtorrent import Answer, Offer, encode_offer

OPEN_SECONDS = 120.0
"""How long an offer may be answered. Some clients announce the same offers again for as long."""
UNANSWERED_SECONDS = 30.0
"""How long a peer that made an offer gets none back. Two peers that offer at once each drop the other's connection as
the second one, and meet at their next announce only. Clients need 5 s for an answer, and give up after 25 s."""
MAX_OPEN = 200
"""Open offers of a connection. Beyond that the oldest one of the WebSocket with the most is dropped: a flood must not
displace the offers of others."""
COLLECT_SECONDS = 0.002
MAX_WAITING_BYTES = 16 * 2**20
"""Bytes that wait to be published; further messages are dropped."""
_HEAD = struct.Struct(">BQIQ20s20s20sI")
_OFFER, _ANSWER = 0, 1

Publish = Callable[[Mapping[int, bytes]], Awaitable[Sequence[int]]]
"""Publishes a payload on the channel of each process; returns how many receive each."""
OfferKey = tuple[InfoHash, PeerId, bytes]
"""(torrent, peer id of the offerer, offer id)"""


class Receiver(Protocol):
    """A connection, as others see it."""

    open_offers: "OpenOffers"

    @property
    def torrents(self) -> Container[InfoHash]:
        """Those that it has announced."""

    def send(self, message: bytes) -> None:
        """Never waits. A connection that does not read is closed."""


@dataclass(slots=True, eq=False)
class OpenOffers:
    """The offers that a connection may answer, with the WebSocket that made each."""

    _open: dict[OfferKey, tuple[SocketId, float]] = field(default_factory=dict)

    def add(self, key: OfferKey, offerer: SocketId, now: float) -> None:
        offers = self._open
        offers.pop(key, None)  # so that it moves to the end
        while offers and offers[oldest := next(iter(offers))][1] <= now:
            del offers[oldest]
        if len(offers) >= MAX_OPEN:
            ((most, _),) = Counter(each for each, _ in offers.values()).most_common(1)
            del offers[next(each for each, (of, _) in offers.items() if of == most)]
        offers[key] = offerer, now + OPEN_SECONDS

    def take(self, key: OfferKey, now: float) -> SocketId | None:
        """Removes an offer; returns who made it, or None if it is not open."""
        offerer, until = self._open.pop(key, (None, 0.0))
        return offerer if now < until else None

    def unanswered(self, info_hash: InfoHash, now: float) -> set[SocketId]:
        """Who made an offer of late, and waits for the answer."""
        late = now + OPEN_SECONDS - UNANSWERED_SECONDS
        return {offerer for key, (offerer, until) in self._open.items() if key[0] == info_hash and until > late}


class Relayed(NamedTuple):
    """A message on its way to a connection of another process."""

    kind: int
    receiver: int
    key: OfferKey
    sender: SocketId
    message: bytes

    def encode(self) -> bytes:
        head = _HEAD.pack(self.kind, self.receiver, *self.sender, *self.key, len(self.message))
        return head + self.message


def decode(payload: bytes) -> Iterator[Relayed]:
    """The messages of a payload, up to the first one that is incomplete."""
    at = 0
    while at + _HEAD.size <= len(payload):
        kind, receiver, process, number, info_hash, peer_id, offer_id, size = _HEAD.unpack_from(payload, at)
        at += _HEAD.size
        message = payload[at : at + size]
        at += size
        if len(message) < size:
            return
        key = InfoHash(info_hash), PeerId(peer_id), offer_id
        yield Relayed(kind, receiver, key, SocketId(process, number), message)


@dataclass(eq=False)
class Relay:
    """``process`` is the number of this process."""

    process: int
    publish: Publish
    tracker: Tracker
    receivers: dict[int, Receiver] = field(default_factory=dict)
    """The connections of this process by their number."""
    _waiting: dict[int, list[bytes]] = field(default_factory=dict)
    _waiting_bytes: int = 0
    _due: asyncio.Event = field(default_factory=asyncio.Event)
    _published: float = -COLLECT_SECONDS

    def pass_offers(
        self,
        sender: SocketId,
        info_hash: InfoHash,
        peer_id: PeerId,
        offers: tuple[Offer, ...],
        to: list[SocketId],
        received: OpenOffers,
    ) -> None:
        """Passes an offer on to each of these WebSockets, but to none whose own offer is among those ``received``."""
        waiting = received.unanswered(info_hash, time.monotonic())
        for receiver, offer in zip((one for one in to if one not in waiting), offers, strict=False):
            key, message = (info_hash, peer_id, offer.offer_id), encode_offer(info_hash, peer_id, offer)
            self._send(receiver.process, Relayed(_OFFER, receiver.number, key, sender, message))

    def pass_answer(self, sender: SocketId, receiver: Receiver, answer: Answer) -> None:
        """Passes the answer of connection ``receiver`` on, if it had the offer and is still in the swarm."""
        key = answer.info_hash, answer.to_peer_id, answer.accepted.offer_id
        offerer = receiver.open_offers.take(key, time.monotonic())
        if offerer is None or answer.info_hash not in receiver.torrents:
            self.tracker.count("relays.unasked")
            return
        message = encode_offer(answer.info_hash, answer.peer_id, answer.accepted, "answer")
        self._send(offerer.process, Relayed(_ANSWER, offerer.number, key, sender, message))

    def _send(self, process: int, relayed: Relayed) -> None:
        if process == self.process:
            self._deliver(relayed)
            return
        packed = relayed.encode()
        if self._waiting_bytes + len(packed) > MAX_WAITING_BYTES:
            self.tracker.count("relays.lost")
            return
        self._waiting_bytes += len(packed)
        if not self._waiting:
            # Offers of an announce come together, their answers one after the other.
            passed = time.monotonic() - self._published if relayed.kind == _OFFER else 0.0
            asyncio.get_running_loop().call_later(max(COLLECT_SECONDS - passed, 0.0), self._due.set)
        self._waiting.setdefault(process, []).append(packed)

    async def run(self) -> None:
        """Publishes what waits, until cancelled: one message for each process, all in one round trip."""
        while True:
            await self._due.wait()
            self._due.clear()
            self._published = time.monotonic()
            waiting, self._waiting = self._waiting, {}
            payloads = {process: b"".join(messages) for process, messages in waiting.items()}
            receivers = await self.publish(payloads)
            self._waiting_bytes -= sum(map(len, payloads.values()))
            for messages, number in zip(waiting.values(), receivers, strict=True):
                if not number:
                    self.tracker.count("relays.lost", by=len(messages))

    def receive(self, payload: bytes) -> None:
        """Delivers what another process has published."""
        for relayed in decode(payload):
            self._deliver(relayed)

    def _deliver(self, relayed: Relayed) -> None:
        kind, number, key, sender, message = relayed
        receiver = self.receivers.get(number)
        if receiver is None or key[0] not in receiver.torrents:
            self.tracker.count("relays.lost")
            return
        if kind == _OFFER:
            receiver.open_offers.add(key, sender, time.monotonic())
        self.tracker.count("relays.offers" if kind == _OFFER else "relays.answers")
        receiver.send(message)
