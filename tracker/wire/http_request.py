"""Queries of announces and scrapes over HTTP (BEP 3, 7, 21, 23, 48), and those to other trackers.

A query is bytes: decoding it as text would damage binary hashes. It is split at ``&``, and each value is
percent-decoded once, to bytes. A ``+`` is a space, because form encoders write byte 0x20 so. Names are not decoded: no
client escapes letters and ``_``.

Nearly all clients send the changing parameters of announces in one order, and repeat the others unchanged. The fast
parser takes the first by one regular expression, and caches the meaning of the others. A general parser reads the rest.
"""

import re
from codecs import escape_decode
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar
from urllib.parse import quote_from_bytes

from tracker.bittorrent import HASH_LENGTH, MAX_COUNT, Announce, Digits, Event, InfoHash, PeerId, Scrape
from tracker.refusals import Refusal
from tracker.wire.announce_path import MAX_BYTES, MAX_PEERS_WANTED, MAX_PORT, byte_count, bytes_left, check_unusual_port
from tracker.wire.endpoint import pack_address

MAX_PARAMETERS = 100
"""Parameters of an announce that are read. Real clients send about 15."""
MAX_KEY_LENGTH = 64
VISIBLE = bytes(range(0x21, 0x7F)).replace(b"#", b"")
"""The bytes that a well-formed query may contain (RFC 3986: it ends at ``#``)."""

# `int in bytes` takes a fifth of the time of `bytes in bytes`.
_PERCENT, _QUESTION_MARK = ord("%"), ord("?")
_MAX_ESCAPED_LENGTH = len("%00") * MAX_KEY_LENGTH
_MALFORMED_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_EVENTS = {event.value.encode(): event for event in Event}
_UPDATE = Event.UPDATE  # access to a member through its class is slow
_EXACT_DIGITS = len(str(MAX_COUNT)) - 1
_NUMBER_DIGITS = len(str(MAX_BYTES))
_Count = TypeVar("_Count", Digits, Digits | None)

# Most clients send the changing parameters in this order, with up to three others before and after the port. The
# pattern takes visible ASCII only, without characters that have a second meaning.
_COMMON = re.compile(
    rb"""info_hash=([!"$%'-*,-\[\]-~]+&peer_id=[!"$%'-*,-\[\]-~]+)((?:&[^&]*){0,3}?)"""
    rb"&port=([0-9]{1,5})((?:&[^&]*){0,3}?)"
    rb"&uploaded=(0|[1-9][0-9]{0,14})&downloaded=(0|[1-9][0-9]{0,14})&left=(0|[1-9][0-9]{0,14})(&.*|)",
    re.DOTALL,
).fullmatch
_FIRST_ID = re.compile(rb"(?:^|[&?])(?:info_hash|peer_id)=").search
_UNCACHEABLE = frozenset((b"info_hash", b"peer_id", b"port", b"uploaded", b"downloaded", b"left", b"key", b"ip"))
"""Not allowed among the other parameters: a changing one for the second time, and a stated address."""
_MAX_CACHED_OPTIONS, _MAX_CACHED_LENGTH = 4096, 256
_COUNTERS = re.compile(rb"&(?:corrupt|redundant)=[1-9][0-9]*(?![^&])")
"""Ignored parameters that differ from peer to peer: whole ones, so that no rest sticks to the parameter before."""


class _Options(NamedTuple):
    """The other parameters: the last fields of Announce, the same in nearly all announces of one client program."""

    event: Event
    peers_wanted: int | None
    compact: bool
    no_peer_id: bool
    stated_address: None = None
    own_family: bool = False


_cached_options: dict[bytes, _Options] = {}
_ordered = tuple.__new__
"""Makes a named tuple from fields in order, in half the time of calling its class."""


def parse_announce(query: bytes) -> Announce:
    """The query of an announce, without its ``?``. The first of a repeated parameter counts. Unknown parameters, those
    without ``=`` and empty values are no error. Raises Refusal for no or two info_hash, a hash or peer id that is not
    20 bytes, a missing or invalid port, and a byte count above 2^64."""
    return parse_usual(query) or _parse_any(query)


def parse_usual(query: bytes) -> Announce | None:
    """The fast parser: ``None`` unless the query is complete, in the common order and in visible ASCII."""
    common = _COMMON(query)
    if common is None:
        return None
    ids, before, port, between, uploaded, downloaded, left, after = common.groups()
    others, keyed, rest = (before + between + after).partition(b"&key=")
    key, more, rest = rest.partition(b"&")
    if keyed and (not key.isalnum() or len(key) > MAX_KEY_LENGTH):
        return None
    others += more + rest
    options = _cached_options.get(others) or _cache_options(others)
    try:
        info_hash, peer_id = escape_decode(ids.replace(b"%", b"\\x"))[0].split(b"&peer_id=")
    except ValueError:  # a malformed escape, or an id that contains "&peer_id="
        return None
    number = int(port)
    if options is None or len(info_hash) != HASH_LENGTH or len(peer_id) != HASH_LENGTH or not 0 < number < 65536:
        return None
    return _ordered(Announce, (info_hash, peer_id, number, uploaded, downloaded, left, key) + options)  # noqa: RUF005


def _cache_options(others: bytes) -> _Options | None:
    """Parses and caches the other parameters; ``None`` where the general parser has to read the whole query. The cache
    takes at most a megabyte, whatever clients send: it is cleared when it is full."""
    others = _COUNTERS.sub(b"", others)
    if others in _cached_options:
        return _cached_options[others]
    if others.translate(None, VISIBLE):  # checked before any refusal: this may be more than one request
        return None
    fields = _fields(others[1:])
    if not fields.keys().isdisjoint(_UNCACHEABLE) or others.count(b"&") > MAX_PARAMETERS // 2:
        return None
    options = _options(fields)
    if len(others) <= _MAX_CACHED_LENGTH:
        if len(_cached_options) >= _MAX_CACHED_OPTIONS:
            _cached_options.clear()
        _cached_options[others] = options
    return options


def _joined(query: bytes) -> bytes:
    """The query with ``&`` for a ``?`` directly before the first hash or id. Clients append their parameters to the
    query of the announce URL, some with a second ``?``. In any other place, as in a hash or a key, it is part of a
    value."""
    first = _FIRST_ID(query)
    if first is None or not first[0].startswith(b"?"):
        return query
    return query[: first.start()] + b"&" + query[first.start() + 1 :]


def _fields(query: bytes) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for parameter in query.replace(b"+", b" ").split(b"&", MAX_PARAMETERS)[:MAX_PARAMETERS]:
        name, _, value = parameter.partition(b"=")
        if name not in fields:
            fields[name] = _unescape(value) if _PERCENT in value else value
        elif name == b"info_hash":
            raise Refusal("an announce is for one info_hash, this one has two")
    return fields


def _options(fields: dict[bytes, bytes]) -> _Options:
    get = fields.get
    wanted = _number(get(b"numwant", b""))
    return _Options(
        _EVENTS.get(get(b"event", b""), _UPDATE),
        None if wanted is None or wanted > MAX_PEERS_WANTED else wanted,
        get(b"compact") != b"0",
        get(b"no_peer_id") == b"1",
    )


def _parse_any(query: bytes) -> Announce:
    """The general parser: takes parameters in any order."""
    fields = _fields(_joined(query) if _QUESTION_MARK in query else query)
    get = fields.get
    info_hash, peer_id = get(b"info_hash", b""), get(b"peer_id", b"")
    if len(info_hash) == 2 * HASH_LENGTH:
        raise Refusal("info_hash must be the raw 20 bytes, not 40 hexadecimal digits")
    if not info_hash:
        raise Refusal("info_hash is missing")
    if len(info_hash) != HASH_LENGTH:
        raise Refusal("info_hash must be exactly 20 bytes")
    if len(peer_id) != HASH_LENGTH:
        raise Refusal("peer_id must be exactly 20 bytes")
    event, peers_wanted, compact, no_peer_id, *_ = _options(fields)
    port = _number(get(b"port") or b"0")
    if port is None or not 0 < port <= MAX_PORT:
        check_unusual_port(port, event)
    left, key, stated = get(b"left"), get(b"key", b""), get(b"ip")
    return Announce(
        InfoHash(info_hash),
        PeerId(peer_id),
        port or 0,
        _count(get(b"uploaded", b""), "uploaded must be a number from 0 to 2^64", byte_count),
        _count(get(b"downloaded", b""), "downloaded must be a number from 0 to 2^64", byte_count),
        _count(left, "left must be a number from 0 to 2^64", bytes_left) if left else None,
        key if len(key) <= MAX_KEY_LENGTH else b"",
        event,
        peers_wanted,
        compact,
        no_peer_id,
        pack_address(stated.decode("latin-1")) if stated else None,
    )


def parse_scrape(query: bytes, max_hashes: int) -> Scrape:
    """The query of a scrape (BEP 48): every well-formed info_hash once. Malformed ones are ignored. A query without any
    info_hash is a full scrape. Raises Refusal for more than ``max_hashes``, and where all are malformed, because that
    is never meant as a full scrape."""
    info_hashes: dict[InfoHash, None] = {}
    present = False
    if _QUESTION_MARK in query:
        query = _joined(query)
    for parameter in query.replace(b"+", b" ").split(b"&"):
        name, _, value = parameter.partition(b"=")
        if name != b"info_hash":
            continue
        present = True
        info_hash = _unescape(value)
        if len(info_hash) == HASH_LENGTH:
            info_hashes[InfoHash(info_hash)] = None
            if len(info_hashes) > max_hashes:
                raise Refusal("GET string too long: scrape fewer torrents at once")
    if present and not info_hashes:
        raise Refusal("info_hash must be the raw 20 bytes, percent-encoded")
    return Scrape(tuple(info_hashes))


def encode_scrape(info_hashes: Iterable[InfoHash]) -> str:
    """The query of a scrape of another tracker: ``info_hash=…&info_hash=…`` (BEP 48)."""
    return "&".join(f"info_hash={quote_from_bytes(info_hash, safe='')}" for info_hash in info_hashes)


def encode_announce(announce: Announce) -> str:
    """The query of an announce to another tracker, in the compact form, without peer ids."""
    fields = {
        "info_hash": quote_from_bytes(announce.info_hash, safe=""),
        "peer_id": quote_from_bytes(announce.peer_id, safe=""),
        "port": announce.port,
        "uploaded": announce.uploaded.decode(),
        "downloaded": announce.downloaded.decode(),
        "left": announce.bytes_left and announce.bytes_left.decode(),
        "event": announce.event.value or None,
        "numwant": announce.peers_wanted,
        "key": announce.key.hex() or None,
        "compact": 1,
        "no_peer_id": 1,
    }
    return "&".join(f"{name}={value}" for name, value in fields.items() if value is not None)


def _unescape(value: bytes) -> bytes:
    """Percent-decodes once, to bytes. A malformed escape stays as it is, as in browsers, and so does a value that is
    too long for any parameter. The interpreter's decoder of ``\\xNN`` escapes takes a fifth of the time of urllib's
    loop, also for hostile input. It interprets backslashes and rejects malformed escapes, so both are escaped here."""
    if len(value) > _MAX_ESCAPED_LENGTH:
        return value
    value = value.replace(b"\\", b"%5c")
    try:
        return escape_decode(value.replace(b"%", b"\\x"))[0]
    except ValueError:
        return escape_decode(_MALFORMED_ESCAPE.sub(b"%25", value).replace(b"%", b"\\x"))[0]


def _number(value: bytes) -> int | None:
    """Decimal digits -> their number; ``None`` for anything else. Above 2^64 the number is not exact. Long digits are
    cut, because the time of ``int`` grows with the square of their number."""
    if not value.isdigit():
        return None
    if len(value) >= _NUMBER_DIGITS:
        value = value.lstrip(b"0")[: _NUMBER_DIGITS + 1] or b"0"
    return int(value)


def _count(value: bytes, name: str, clamp: Callable[[int], _Count]) -> _Count:
    """A byte count. Missing is 0."""
    if value.isdigit() and len(value) <= _EXACT_DIGITS:
        return Digits(value.lstrip(b"0") or b"0")
    number = _number(value) if value else 0
    if number is None or number > MAX_BYTES:
        raise Refusal(name)
    return clamp(number)
