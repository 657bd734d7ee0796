"""What one address may do before it is told less, refused, and dropped.

Only what is more than a peer's regular announce is counted, and only of those who do much of it does anybody hear:
a table of fixed size counts by a hash of who it was, and what goes beyond an eighth of a limit there becomes a charge. The store adds
up the charges of all processes on all hosts, and says once a second who is over a limit (workers/limits.py). So honest peers cost no call of
the store and no memory, and an attacker with many addresses fills neither.

IPv6 counts by /64: a household has 2^64 addresses. NATs are one address here, which is why the limits leave room for hundreds of peers.
"""

import socket
from array import array
from collections.abc import Iterable
from functools import lru_cache
from heapq import nlargest
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import NamedTuple

from tracker.bittorrent import Address, Announce, is_routable
from tracker.errors import ClientError, Dropped
from tracker.settings_limits import LimitSettings
from tracker.store.counters import Counters
from tracker.store.offences import MOST_VERDICTS, Charge, Verdict

SOFT, REFUSE, DROP = 1, 2, 3
STAGES = {SOFT: "softened", REFUSE: "refused", DROP: "dropped"}
"""Told less; refused; not answered at all."""
PEER, TORRENT, JOINS, ADDRESS, PASSKEYS = "peer", "torrent", "joins", "address", "passkeys"
SOFT_PEERS = 10
"""Most peers in an answer of the first stage; its interval is twice the usual one."""
MOST_CHARGED = 4096
"""Different charges that wait for the store in one process; and of those that get there in a second, the largest:"""
MOST_SENT = 512
_RETRY_MINUTES = 5
_CELLS = 1 << 16
_KNOWN_CELLS = 1 << 20

LIMITED: dict[str, tuple[str, str]] = {
    PEER: ("too many announces", "your client announces too often: it will try again by itself"),
    TORRENT: ("too many announces", "your client announces too often: it will try again by itself"),
    JOINS: (
        "too many new peers",
        "too many new peers from your address: your client will try again by itself",
    ),
    ADDRESS: (
        "too many requests",
        "too many requests from your address: your client will try again by itself",
    ),
    PASSKEYS: ("too many unknown passkeys", "too many unknown passkeys from your address: try again later"),
}
"""By limit: the label that counts a refusal, and its text."""


class Sketch:
    """Counts by a hash of the key, in a table of fixed size. Keys may share a cell; the hash is another in each process."""

    __slots__ = ("_cells", "_floor")

    def __init__(self, limit: int) -> None:
        self._floor = min(limit // 8, 65_000)
        self._cells = array("H", bytes(2 * _CELLS))

    def add(self, key: bytes) -> int:
        """How much is to be charged: nothing below the floor, what was passed over at it, and then each one."""
        cell = hash(key) & (_CELLS - 1)
        seen = self._cells[cell]
        if seen > self._floor:
            return 1
        self._cells[cell] = seen + 1
        return seen + 1 if seen == self._floor else 0

    def clear(self) -> None:
        self._cells = array("H", bytes(2 * _CELLS))


def network(address: bytes) -> bytes:
    """What is counted as one: an IPv4 address, or the /64 of an IPv6 one."""
    return address if len(address) == 4 else address[:8]


def _net_of(key: bytes) -> bytes:
    """The address or /64 at the beginning of what a limit goes by; info hash and peer id follow."""
    return key[: len(key) % 20]


def subject_text(key: bytes) -> str:
    """Who is charged, for people: the address or /64, and where it goes by torrent or peer their hex digits."""
    host = _net_of(key)
    name = socket.inet_ntop(socket.AF_INET, host) if len(host) == 4 else _net6(host)
    return " ".join((name, *(key[at : at + 20].hex() for at in range(len(host), len(key), 20))))


@lru_cache(MOST_VERDICTS)
def subject_key(text: str) -> bytes:
    """The way back; raises ValueError. Remembered, for verdicts are heard anew every second."""
    name, _, rest = text.partition(" ")
    try:
        family = socket.AF_INET6 if ":" in name else socket.AF_INET
        host = network(socket.inet_pton(family, name.removesuffix("/64")))
    except OSError as error:
        raise ValueError("not an address") from error
    return host + bytes.fromhex(rest)


def _counted_whole(exempt: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    """Of IPv6 nothing smaller than a /64 is counted, so nothing smaller can be left out."""
    return exempt.supernet(new_prefix=64) if exempt.version == 6 and exempt.prefixlen > 64 else exempt


def _net6(net: bytes) -> str:
    return f"{socket.inet_ntop(socket.AF_INET6, net + bytes(8))}/64"


class Judgement(NamedTuple):
    stage: int
    limit: str
    key: bytes
    until: float


class Limits:
    """The limits as one process knows them. ``strict``: somebody is over one, so that every request has to be looked at."""

    def __init__(self, settings: LimitSettings, *, private: bool) -> None:
        self.strict = False
        self.most: dict[str, int] = {}
        self._private = private
        self._guesses, self._good = bytearray(_CELLS), bytearray(_KNOWN_CELLS if private else 1)
        self._charges: dict[tuple[str, bytes], int] = {}
        self.go_by(settings)
        self.learn(())

    def go_by(self, settings: LimitSettings) -> None:
        """From now on. The minute's counts begin anew; verdicts that are out hold until their time is over, or nothing is limited."""
        self.enabled = settings.enabled
        self._exempt = tuple(map(_counted_whole, settings.exempt))
        self._all_addresses = settings.private_addresses
        self.most |= {
            PEER: settings.peer_announces_minute,
            TORRENT: settings.torrent_announces_minute,
            JOINS: settings.joins_minute,
            ADDRESS: settings.address_requests_minute,
        }
        if self._private:
            self.most[PASSKEYS] = settings.unknown_passkeys_minute
        self._sketches = {limit: Sketch(most) for limit, most in self.most.items()} if self.enabled else {}
        if not self.enabled:
            self._charges.clear()
            self.learn(())

    # What happened

    def note(self, outcome: str, announce: Announce, address: Address) -> None:
        """An announce was answered that was more than a peer's regular one, or refused."""
        if not self._counts(address):
            return
        net = network(address)
        place = net + announce.info_hash
        if outcome == "early":
            self._charge(PEER, place + announce.peer_id)
        elif outcome == "join":
            self._charge(JOINS, net)
        self._charge(TORRENT, place)
        self._charge(ADDRESS, net)

    def note_scrape(self, address: Address) -> None:
        if self._counts(address):
            self._charge(ADDRESS, network(address))

    def guessed(self, passkey: str, address: Address) -> None:
        """A passkey was unknown. The same one again is no guess: clients go on asking with one that was rotated."""
        if not self._counts(address):
            return
        net = network(address)
        cell = hash((net, passkey)) & (_CELLS - 1)
        if not self._guesses[cell]:
            self._guesses[cell] = 1
            self._charge(PASSKEYS, net)

    def vouch(self, passkey: str) -> None:
        """A passkey was good: it is let through when others of its address are not."""
        self._good[hash(passkey) & (_KNOWN_CELLS - 1)] = 1

    def _counts(self, address: Address) -> bool:
        return self.enabled and (self._all_addresses or is_routable(address))

    def _charge(self, limit: str, key: bytes) -> None:
        by = self._sketches[limit].add(key)
        if by:
            self._add(limit, key, by)

    def _add(self, limit: str, key: bytes, by: int = 1) -> None:
        charge = (limit, key)
        if charge in self._charges or len(self._charges) < MOST_CHARGED:
            self._charges[charge] = self._charges.get(charge, 0) + by

    # Who is over a limit

    def judge(self, announce: Announce, passkey: str | None, address: Address) -> Judgement | None:
        """What holds for an announce: the hardest of what its peer, its torrent and its address have earned."""
        net = address if len(address) == 4 else address[:8]
        if net not in self._nets:
            return None
        place = net + announce.info_hash
        judged = self._judged
        found = (judged.get(net), judged.get(place), judged.get(place + announce.peer_id))
        return self._hardest(*found, self._guesser(passkey, net))

    def judge_scrape(self, passkey: str | None, address: Address) -> Judgement | None:
        net = network(address)
        return self._hardest(self._judged.get(net), self._guesser(passkey, net))

    def _guesser(self, passkey: str | None, net: bytes) -> Judgement | None:
        found = self._guessing.get(net)
        if found is None or self._good[hash(passkey or "") & (_KNOWN_CELLS - 1)]:
            return None
        return found

    def _hardest(self, *found: Judgement | None) -> Judgement | None:
        worst = max(filter(None, found), default=None, key=lambda judged: judged.stage)
        if worst is not None and worst.stage > SOFT:
            self._add(worst.limit, worst.key)  # who goes on is not forgotten
        return worst

    # What all processes together have found

    def take(self) -> list[Charge]:
        """The charges since the last time, those of exempt networks left out."""
        taken, self._charges = self._charges, {}
        most = nlargest(MOST_SENT, taken.items(), key=lambda item: item[1])
        return [
            Charge(limit, subject_text(key), number)
            for (limit, key), number in most
            if not self._is_exempt(key)
        ]

    def _is_exempt(self, key: bytes) -> bool:
        if not self._exempt:
            return False
        net = _net_of(key)
        host = ip_address(net if len(net) == 4 else net + bytes(8))
        return any(host in net for net in self._exempt)

    def learn(self, verdicts: Iterable[Verdict]) -> None:
        """From now on these hold, and no others."""
        if not self.enabled:  # switched off while the store was asked: nobody would take these back
            verdicts = ()
        judged: dict[bytes, Judgement] = {}
        guessing: dict[bytes, Judgement] = {}
        for verdict in verdicts:
            try:
                key = subject_key(verdict.subject)
            except ValueError:  # somebody else wrote it
                continue
            found = Judgement(verdict.stage, verdict.limit, key, verdict.until)
            into = guessing if verdict.limit == PASSKEYS else judged
            if verdict.limit == PASSKEYS and found.stage == SOFT:
                found = found._replace(stage=REFUSE)  # there is no half of a guess
            known = into.get(key)
            if verdict.limit in self.most and (known is None or known.stage < found.stage):
                into[key] = found
        self._hold(judged, guessing)

    def expire(self, now: float) -> None:
        """While the store cannot be asked: what is over is over."""
        self._hold(
            {key: found for key, found in self._judged.items() if found.until > now},
            {key: found for key, found in self._guessing.items() if found.until > now},
        )

    def _hold(self, judged: dict[bytes, Judgement], guessing: dict[bytes, Judgement]) -> None:
        self._judged, self._guessing = judged, guessing
        self._nets = {_net_of(key) for key in (*judged, *guessing)}
        self.strict = bool(self._nets)

    def begin_window(self) -> None:
        """A minute is over: what stayed below the floors is forgotten."""
        for sketch in self._sketches.values():
            sketch.clear()
        self._guesses = bytearray(_CELLS)

    def count(self, counters: Counters, judged: Judgement) -> None:
        """Counts a request that a limit made a difference to."""
        counters.count(f"limited.{judged.limit}.{STAGES[judged.stage]}")

    @property
    def known(self) -> int:
        """How many verdicts hold."""
        return len(self._judged) + len(self._guessing)


def sentence(judged: Judgement) -> ClientError:
    """What a peer over a limit is told, if anything."""
    label, text = LIMITED[judged.limit]
    if judged.stage == DROP:
        return Dropped(text, retry_in=_RETRY_MINUTES, label="dropped")
    return ClientError(text, retry_in=_RETRY_MINUTES, label=label)
