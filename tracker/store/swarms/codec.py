"""Encodes announces as the arguments of announce.lua, and decodes its reply."""

import struct
import time
from binascii import hexlify, unhexlify
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from tracker.bittorrent import Accounts, Address, Digits, Endpoint, InfoHash, PeerId, unmap
from tracker.store.client.pipe import Argument
from tracker.store.swarms.rules import HIT_AND_RUN, LiveRules, SwarmRules
from tracker.system.logger import Logger
from tracker.wire.endpoint import SOCKET_LENGTH

DUE_STEP_SECONDS = 2
EVENT_CODES = {"": b"u", "started": b"s", "completed": b"c", "stopped": b"x", "paused": b"p"}
V2_EVENT_CODES = {b"u": b"1", b"s": b"2", b"c": b"3", b"C": b"3", b"x": b"4", b"g": b"4", b"p": b"5"}
"""The same of an announce that was made on the v2 half of a hybrid torrent, for the v1 half."""
COMPLETED_MEMBER = b"C"
"""``completed`` of a peer that may not join: refused with the code ``may not join`` unless the peer is in the swarm."""
GONE = b"g"
"""The event of a peer whose WebSocket was closed. It leaves the swarm, unless it has another endpoint."""
WITH_IDS, OWN_FAMILY, OVER_SOCKET = 1, 2, 3
_OUTCOMES = {
    b"u": "update",
    b"e": "early",
    b"j": "join",
    b"l": "leave",
    b"a": "absent",
    b"s": "stranger",
    b"d": "displaced",
    b"o": "over",
}
_FIRST = itemgetter(0)
_LAST = itemgetter(-1)
_APPLIED = frozenset(("update", "early", "join", "leave")).__contains__
"""Whether an outcome counts for the torrent."""
_ACCOUNTS: dict[Accounts, int] = {"off": 0, "optional": 1, "required": 2}
_RULES = attrgetter(
    *("max_gap", "max_credit", "accounts", "early", "give_below", "give_all", "memory", *HIT_AND_RUN),
    *("min_timeout", "open", "max_user_credit", "credit_saved", "max_per_network_in_swarm", "max_per_network"),
    *("bound_local_networks", "max_changes", "max_peers", "max_downloads", "warn_beyond_downloads", "own_peers"),
    *("min_credit_interval", "lists_at_once", "lists_per_minute", "lists_per_day", "list_wait", "note_updates"),
)
"""The rules of all announces, in the order in which announce.lua reads them."""


class _Numbers(dict[bytes, int]):
    def __missing__(self, text: bytes) -> int:
        return int(text)


_number = _Numbers((b"%d" % number, number) for number in range(1000)).__getitem__
"""Decimal digits -> their number. To look small ones up takes a third of the time of int()."""
_LENGTHS = struct.Struct("<HHH")
_HEAD = struct.Struct("<80scBHII")
_BYTES = [bytes([number]) for number in range(256)]

log = Logger("tracker.store")


class PeerUpdate(NamedTuple):
    """One announce, as the store expects it. Where it is made and packed for each announce it is an Update."""

    info_hash: InfoHash
    peer_id: PeerId
    event: bytes
    """One of EVENT_CODES' values, or COMPLETED_MEMBER."""
    uploaded: Digits
    downloaded: Digits
    bytes_left: Digits | None
    endpoint: Endpoint
    peers_wanted: int
    key: bytes
    """What only the client knows, at most 255 bytes; empty for none."""
    passkey: str
    timeout_seconds: float
    random: int
    form: int
    """What a peer of the reply is: 0 an endpoint, WITH_IDS also its peer id, OWN_FAMILY an endpoint of the family that
    the announce came over, OVER_SOCKET a WebSocket. Announces over UDP have OWN_FAMILY, and only they: the script
    counts them as such."""
    unbounded: bool
    """Whether the network may have any number of endpoints."""


Update = tuple[InfoHash, PeerId, bytes, Digits, Digits, Digits | None, Endpoint, int, bytes, str, float, int, int, bool]
"""The fields of a PeerUpdate: a plain tuple is made and read in a third of the time."""
passkey_of: Callable[[Update], str] = itemgetter(PeerUpdate._fields.index("passkey"))


class UpdateWithAgent(PeerUpdate):
    """With what the client calls itself; the store keeps it if SwarmRules.keep_user_agents is set."""

    user_agent: bytes = b""


def with_agent(update: Update, user_agent: bytes) -> PeerUpdate:
    named = UpdateWithAgent(*update)
    named.user_agent = user_agent
    return named


class Admitted(NamedTuple):
    """The announce was applied, or answered without being applied (``stranger``, ``displaced`` and ``over``)."""

    seeders: int
    leechers: int
    completions: int
    peers: bytes
    peers6: bytes
    peer_ids: bytes
    peer_ids6: bytes
    outcome: str
    """update, early (an update sooner than the rules allow for), join, leave, absent (``stopped`` of a peer that is
    not in the swarm), stranger (the entry belongs to another client), displaced (another peer holds the endpoint), or
    over (the network has as many endpoints as it may)."""


Admission = tuple[int, int, int, bytes, bytes, bytes, bytes, str]
"""The fields of an Admitted: most outcomes are plain tuples, as an Update is."""


class AdmittedAnonymously(Admitted):
    """The announce had an unknown passkey, and accounts are optional."""

    __slots__ = ()


class JoinedWithMultipliers(Admitted):
    """A join of a user's peer, where the user's traffic does not count as it is reported."""

    upload_multiplier: str
    download_multiplier: str


class WithoutPeers(Admitted):
    """A join, an early update, or one that is not applied, of a user without budget for an answer with peers."""

    __slots__ = ()


class WithoutSlot(Admitted):
    """A join that was not applied: the user downloads as many torrents as allowed."""

    __slots__ = ()


class Refused(NamedTuple):
    """Nothing was changed. ``reason`` is an operator's own text, or empty."""

    code: str
    reason: str
    unknown_passkey: bool = False
    """The announce had an unknown passkey, whatever it was refused for."""


class TrafficTotals(NamedTuple):
    """The totals of a batch of announces. First the bytes that peers moved since their last announces, as they report
    over HTTP, by the family of the announce."""

    up_v4: int
    down_v4: int
    up_v6: int
    down_v6: int
    given: int = 0
    """Peers found in the DHT that were in the replies."""
    incomplete: int = 0
    """Announces whose outcome is UNREGISTERED or NOT_COPIED, and those of v2 halves."""
    udp_up_v4: int = 0
    """The same as the first four, as reported over UDP."""
    udp_down_v4: int = 0
    udp_up_v6: int = 0
    udp_down_v6: int = 0
    ws_up_v4: int = 0
    """The same as reported over WebSockets."""
    ws_down_v4: int = 0
    ws_up_v6: int = 0
    ws_down_v6: int = 0
    forgotten: int = 0
    """Empty torrents that were removed because the maximum number was reached."""
    refused: int = 0
    """New torrents that were refused: the maximum number was reached, or too many came from one network."""

    @property
    def udp_and_ws(self) -> tuple[int, ...]:
        """The traffic over UDP, then that over WebSockets, each in the order of the first fields."""
        return self[6:14]


NO_TOTALS = TrafficTotals(0, 0, 0, 0)
UNREGISTERED = Refused("error", "")
"""Nothing was changed: the announce is to be sent again, after register.lua has run for it."""
NOT_COPIED = Refused("error", "", True)
"""The same, after the main prefix was asked for the user, who has no copy in the shard."""
GROWS, FULL, ASKED = 1, 0, {1: 2, 0: 3}
"""Whether memory may grow; by it the same, after the main prefix was asked for users that are unknown in the shard."""
Call = tuple[Sequence[Update], Sequence[Admission | Refused], float, Argument]
"""The announces of a call, their outcomes, when the reply was decoded (s that never jump), and the time of the call
(epoch s)."""


def pack_rules(rules: SwarmRules) -> bytes:
    """The rules of all announces, as announce.lua reads them: little-endian doubles, and ports in network order."""
    max_gap, max_credit, accounts, *others = _RULES(rules)
    numbers = (max_gap, max_credit, _ACCOUNTS[accounts], *others)
    ports = rules.untold_ports
    return struct.pack(f"<{len(numbers)}d", *numbers) + struct.pack(f">{len(ports)}H", *ports)


@dataclass(eq=False)
class AnnounceCodec:
    """The calls of announce.lua: its arguments and its reply. ``clock`` gives epoch seconds; ``count`` is called with
    the torrents and the ids of the users of all that count: the script does not count these. ``recent`` gets each call
    that has a reply; ``follow`` announces of the v2 half of a hybrid torrent, and the v1 half, which has to get them
    too."""

    _live: LiveRules
    _clock: Callable[[], float]
    _count: Callable[[Iterable[InfoHash | str]], None]
    _recent: deque[Call]
    _follow: Callable[[Update, InfoHash], None] = lambda update, v1: None

    def __post_init__(self) -> None:
        self._use_rules()

    @property
    def rules(self) -> bytes:
        """The rules in force, packed again only when they have changed."""
        if self._live.current is not self._rules:
            self._use_rules()
        return self._packed

    def _use_rules(self) -> None:
        self._rules = rules = self._live.current
        self._packed = pack_rules(rules)
        self._pack = pack_with_agent if rules.keep_user_agents else pack

    def encode(self, updates: Sequence[Update]) -> list[Argument]:
        """The time, whether memory may grow, the rules, and each announce."""
        return [f"{self._clock():.3f}", GROWS, self.rules, *map(self._pack, updates)]

    def encode_new(self, updates: Sequence[Update]) -> list[Argument]:
        """The arguments of register.lua for these announces."""
        rules = self._live.current
        return [
            f"{self._clock():.3f}",
            int(rules.accounts != "off"),
            rules.max_torrents if rules.open else 0,
            rules.new_per_address_hour,
            rules.new_per_network_hour,
            *map(pack, updates),
        ]

    def decode(
        self, updates: Sequence[Update], argv: Sequence[Argument], reply: list[Any]
    ) -> tuple[list[Admission | Refused], TrafficTotals]:
        """An outcome for each announce, and the totals of the batch."""
        *replies, sums = reply
        if len(replies) != len(updates):
            raise ValueError(f"{len(replies)} replies to {len(updates)} announces")
        outcomes = list(map(parse, replies))
        self._count(compress(map(_FIRST, updates), map(_APPLIED, map(_LAST, outcomes))))
        totals, _, users = sums.partition(b"\n")
        if users:
            self._count(users.decode("utf-8", "replace").split(" "))
        self._recent.append((updates, outcomes, time.monotonic(), argv[0]))
        traffic = parse_totals(totals)
        if traffic.incomplete:
            for update, each in zip(updates, replies, strict=True):
                if each[0] == 7:
                    self._follow(update, InfoHash(unhexlify(each[2])))
        return outcomes, traffic


def pack(update: Update) -> bytes:
    """One announce as announce.lua reads it."""
    (
        info_hash,
        peer_id,
        event,
        uploaded,
        downloaded,
        bytes_left,
        endpoint,
        peers_wanted,
        key,
        passkey,
        timeout_seconds,
        random,
        form,
        unbounded,
    ) = update
    secret = passkey.encode()[:255] if passkey else b""
    return b"".join(
        (  # a format would take half as long again
            _HEAD.pack(hexlify(info_hash + peer_id), event, form, peers_wanted, int(timeout_seconds * 1000), random),
            uploaded,
            b"\0",
            downloaded,
            b"\0",
            bytes_left or b"",
            b"\0",
            _BYTES[len(endpoint)],
            endpoint,
            _BYTES[len(secret)],
            secret,
            peer_id,
            _BYTES[len(key)],
            key,
            _BYTES[unbounded],
        )
    )


def pack_with_agent(update: Update) -> bytes:
    """The same, with the user agent at the end, if there is one."""
    return pack(update) + update.user_agent if isinstance(update, UpdateWithAgent) else pack(update)


def pack_join_query(packed: bytes, now: int) -> bytes:
    """Asks announce.lua whether a packed announce that was sent at ``now`` (epoch s) was a join; empty for a stop."""
    if packed[80:81] == EVENT_CODES["stopped"]:
        return b""
    return _HEAD.pack(packed[:80], b"q", 0, 0, 0, now) + packed[_HEAD.size :]


def parse_sender(packed: bytes) -> tuple[InfoHash, PeerId, Address]:
    """(info hash, peer id, address) of a packed announce."""
    ids = unhexlify(packed[:80])
    *_, rest = packed[_HEAD.size :].split(b"\0", 3)
    size = rest[0]
    address = unmap(rest[1:17]) if size == SOCKET_LENGTH else Address(rest[1 : size - 1])
    return InfoHash(ids[:20]), PeerId(ids[20:]), address


def parse(reply: Any) -> Admission | Refused:
    """The script's answer to one announce."""
    if type(reply) is not bytes:
        return _parse_other(*reply)
    letter, seeders, leechers, completions, peers = reply.split(b" ", 4)
    peers6 = ids = ids6 = b""
    outcome = _OUTCOMES.get(letter)
    if outcome is None:
        outcome = _OUTCOMES[letter.lower()]
        peers, peers6, ids, ids6 = _split(peers)
    return _number(seeders), _number(leechers), _number(completions), peers, peers6, ids, ids6, outcome


def _parse_other(kind: int, *parts: Any) -> Admission | Refused:
    if kind == 1:
        return refused(*parts)
    if kind == 6:
        return UNREGISTERED
    if kind == 2:
        outcome = parse(parts[0])
        if isinstance(outcome, Refused):
            return outcome._replace(unknown_passkey=True)
        return AdmittedAnonymously(*outcome)
    if kind == 7:
        return parse(parts[0])
    if kind in (4, 5):
        return (WithoutPeers if kind == 4 else WithoutSlot)(*parse(parts[0]))
    joined = JoinedWithMultipliers(*parse(parts[0]))
    joined.upload_multiplier, joined.download_multiplier = parts[1].decode(), parts[2].decode()
    return joined


def _split(parts: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """peers, peers6, ids, ids6 out of what follows the lengths of the first three."""
    n4, n6, ids = _LENGTHS.unpack_from(parts)
    first = _LENGTHS.size
    second, third = first + n4, first + n4 + n6
    return parts[first:second], parts[second:third], parts[third : third + ids], parts[third + ids :]


def refused(code: bytes, reason: bytes) -> Refused:
    text = reason.decode("utf-8", "replace")
    if code == b"no copy":
        return NOT_COPIED
    if code == b"error":  # a key has a wrong type; nothing was changed
        log.error("announce failed in the store", error=text)
        text = ""
    return Refused(code.decode(), text, code == b"unknown passkey")


def parse_totals(numbers: bytes) -> TrafficTotals:
    """The script's answer for the whole batch."""
    return TrafficTotals(*map(int, numbers.split())) if numbers else NO_TOTALS
