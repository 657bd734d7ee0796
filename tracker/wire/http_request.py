"""The query of an announce or a scrape over HTTP -> what is asked (BEP 3, 7, 21, 23, 48).

A query is bytes from end to end. Decoding it as text first would spoil binary hashes, so it is split on
``&`` as it came and each value is percent-decoded once, to bytes; a bare ``+`` is a space, as form
encoders write byte 0x20. Names are compared as they stand: no encoder escapes letters and ``_``.

An announce is read in one of two ways. Nearly all clients write the parameters that change in one order, and the others
word for word alike in all their announces: one regular expression takes the first, a dictionary remembers what the others mean.
Whatever does not fit, or of which it is not plain that both ways would say the same, is read parameter by parameter.
"""

import re
from codecs import escape_decode
from typing import NamedTuple

from tracker.bittorrent import HASH_LENGTH, MAX_COUNT, Announce, Digits, Event, InfoHash, PeerId, Scrape
from tracker.errors import ClientError
from tracker.wire.compact import pack_address

MAX_PARAMETERS = 100
"""Parameters of an announce that are looked at; real clients send about 15."""
MAX_KEY_LENGTH = 64
VISIBLE = bytes(range(0x21, 0x7F)).replace(b"#", b"")
"""What a well-formed query may consist of (RFC 3986: it ends at ``#``)."""

# `int in bytes` is five times as fast as `bytes in bytes`, which tries its operand as a number first.
_PERCENT = ord("%")
_LONGEST_ESCAPED = len("%00") * MAX_KEY_LENGTH
_MALFORMED_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_EVENTS = {event.value.encode(): event for event in Event}
_UPDATE, _STOPPED = Event.UPDATE, Event.STOPPED  # reading a member off its class is slow
_EXACT_DIGITS = len(str(MAX_COUNT)) - 1
_LARGEST_NUMBER, _MOST_LEFT = 2**63, 2**64
_NUMBER_DIGITS = len(str(_MOST_LEFT))

# Most clients write what changes in this order, with up to three of the other parameters before and after the port. Only
# visible ASCII, and of that nothing that has a second meaning.
_USUAL = re.compile(
    rb"""info_hash=([!"$%'-*,-\[\]-~]+&peer_id=[!"$%'-*,-\[\]-~]+)((?:&[^&]*){0,3}?)"""
    rb"&port=([0-9]{1,5})((?:&[^&]*){0,3}?)"
    rb"&uploaded=(0|[1-9][0-9]{0,14})&downloaded=(0|[1-9][0-9]{0,14})&left=(0|[1-9][0-9]{0,14})((?:&.*)?)",
    re.DOTALL,
).fullmatch
_UNUSUAL = frozenset((b"info_hash", b"peer_id", b"port", b"uploaded", b"downloaded", b"left", b"key", b"ip"))
"""Among the others: those that change, a second time, and an address that somebody states."""
_MOST_KNOWN, _LONGEST_KNOWN = 4096, 256
_COUNTERS = re.compile(rb"&(?:corrupt|redundant)=[1-9][0-9]*")
"""Parameters of which nothing is read, but which differ from peer to peer."""


class _Options(NamedTuple):
    """What a client's other parameters say: the same in nearly all its announces, and in those of others with its program."""

    event: Event
    peers_wanted: int | None
    compact: bool
    no_peer_id: bool


_known_options: dict[bytes, _Options] = {}
_ordered = tuple.__new__
"""Makes a named tuple of its fields in order, in half the time of the class's own call."""


def parse_announce(query: bytes) -> Announce:
    """The query of an announce, without its ``?``.

    Of a parameter given twice the first holds, and unknown ones, those without ``=`` and empty values
    are no error. Raises ClientError for what cannot be served: no or two info_hash, a hash or peer id
    that is not 20 bytes, a missing or impossible port, a byte count that is no number up to 2^63, or 2^64 for
    what is left: Transmission 2 says 2^64 - 1 while it knows no more than a magnet link.
    """
    return parse_usual(query) or _parse_any(query)


def parse_usual(query: bytes) -> Announce | None:
    """The same, of an announce that is whole, in the usual order and in visible ASCII; ``None`` for any other."""
    usual = _USUAL(query)
    if usual is None:
        return None
    who, before, port, between, uploaded, downloaded, left, after = usual.groups()
    others, keyed, rest = (before + between + after).partition(b"&key=")
    key, more, rest = rest.partition(b"&")
    if keyed and (not key.isalnum() or len(key) > MAX_KEY_LENGTH):
        return None
    others += more + rest
    options = _known_options.get(others) or _learn_options(others)
    try:
        info_hash, peer_id = escape_decode(who.replace(b"%", b"\\x"))[0].split(b"&peer_id=")
    except ValueError:  # a malformed escape, or one of them holds this very text
        return None
    number = int(port)
    if (
        options is None
        or len(info_hash) != HASH_LENGTH
        or len(peer_id) != HASH_LENGTH
        or not 0 < number < 65536
    ):
        return None
    event, peers_wanted, compact, no_peer_id = options
    changing = (info_hash, peer_id, number, uploaded, downloaded, left)
    return _ordered(Announce, (*changing, event, peers_wanted, key, compact, no_peer_id, None))


def _learn_options(others: bytes) -> _Options | None:
    """Reads and remembers them; ``None`` where only the whole query tells what holds.

    Nothing a client may send makes the memory grow beyond a megabyte: it is emptied when it is full.
    """
    others = _COUNTERS.sub(b"", others)
    if others in _known_options:
        return _known_options[others]
    if others.translate(None, VISIBLE):  # before anything in it is refused: this may be more than one request
        return None
    fields = _fields(others[1:])
    if not fields.keys().isdisjoint(_UNUSUAL) or others.count(b"&") > MAX_PARAMETERS // 2:
        return None
    options = _options(fields)
    if len(others) <= _LONGEST_KNOWN:
        if len(_known_options) >= _MOST_KNOWN:
            _known_options.clear()
        _known_options[others] = options
    return options


def _fields(query: bytes) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for parameter in query.replace(b"+", b" ").split(b"&", MAX_PARAMETERS)[:MAX_PARAMETERS]:
        name, _, value = parameter.partition(b"=")
        if name not in fields:
            fields[name] = _unescape(value) if _PERCENT in value else value
        elif name == b"info_hash":
            raise ClientError("an announce is for one info_hash, this one has two", retry_in="never")
    return fields


def _options(fields: dict[bytes, bytes]) -> _Options:
    get = fields.get
    return _Options(
        _EVENTS.get(get(b"event", b""), _UPDATE),
        _number(get(b"numwant", b"")),  # nonsense and negative numbers ask for the default, too
        get(b"compact") != b"0",
        get(b"no_peer_id") == b"1",
    )


def _parse_any(query: bytes) -> Announce:
    """As parse_announce says, whatever the order of the parameters."""
    fields = _fields(query)
    get = fields.get
    info_hash, peer_id = get(b"info_hash", b""), get(b"peer_id", b"")
    if len(info_hash) != HASH_LENGTH:
        raise _bad_info_hash(info_hash)
    if len(peer_id) != HASH_LENGTH:
        raise ClientError("peer_id must be exactly 20 bytes", retry_in="never")
    event, peers_wanted, compact, no_peer_id = _options(fields)
    left, key, stated = get(b"left"), get(b"key", b""), get(b"ip")
    return Announce(
        InfoHash(info_hash),
        PeerId(peer_id),
        _port(get(b"port", b""), event),
        _count(get(b"uploaded", b""), "uploaded must be a number from 0 to 2^63"),
        _count(get(b"downloaded", b""), "downloaded must be a number from 0 to 2^63"),
        _count(left, "left must be a number from 0 to 2^64", _MOST_LEFT) if left else None,
        event,
        peers_wanted,
        key if len(key) <= MAX_KEY_LENGTH else b"",
        compact,
        no_peer_id,
        pack_address(stated.decode("latin-1")) if stated else None,
    )


def parse_scrape(query: bytes, max_hashes: int) -> Scrape:
    """The query of a scrape (BEP 48): every well-formed info_hash, each once, at most ``max_hashes``.

    A malformed one is left out. Where none at all is asked for it is a full scrape; where all are
    malformed it is a mistake and never a full scrape: raises ClientError.
    """
    info_hashes: dict[InfoHash, None] = {}
    asked = False
    for parameter in query.replace(b"+", b" ").split(b"&"):
        name, _, value = parameter.partition(b"=")
        if name != b"info_hash":
            continue
        asked = True
        info_hash = _unescape(value)
        if len(info_hash) == HASH_LENGTH:
            info_hashes[InfoHash(info_hash)] = None
            if len(info_hashes) >= max_hashes:
                break
    if asked and not info_hashes:
        raise ClientError("info_hash must be the raw 20 bytes, percent-encoded", retry_in="never")
    return Scrape(tuple(info_hashes))


def _unescape(value: bytes) -> bytes:
    """Percent-decoding, once, to bytes; a malformed escape stays as it is, as in browsers.

    The interpreter's own decoder of ``\\xNN`` escapes does it in C, in a fifth of the time that urllib's
    loop takes, and as fast for hostile input. It has a meaning for the backslash and refuses what is
    malformed, so the one is escaped first, and the other when it is met. What is too long for any
    parameter stays as it is: undoing its escapes would only cost time.
    """
    if len(value) > _LONGEST_ESCAPED:
        return value
    value = value.replace(b"\\", b"%5c")
    try:
        return escape_decode(value.replace(b"%", b"\\x"))[0]
    except ValueError:
        return escape_decode(_MALFORMED_ESCAPE.sub(b"%25", value).replace(b"%", b"\\x"))[0]


def _bad_info_hash(value: bytes) -> ClientError:
    if not value:
        return ClientError("info_hash is missing", retry_in="never")
    if len(value) == 2 * HASH_LENGTH:
        return ClientError("info_hash must be the raw 20 bytes, not 40 hexadecimal digits", retry_in="never")
    return ClientError("info_hash must be exactly 20 bytes", retry_in="never")


def _number(value: bytes) -> int | None:
    """Decimal digits and nothing else -> their number, else ``None``; what is above 2^64 is only that.

    No longer digits than that needs reach ``int``, whose time grows with the square of their number.
    """
    if not value.isdigit():
        return None
    if len(value) >= _NUMBER_DIGITS:
        value = value.lstrip(b"0")[: _NUMBER_DIGITS + 1] or b"0"
    return int(value)


def _count(value: bytes, refusal: str, largest: int = _LARGEST_NUMBER) -> Digits:
    """A byte count; missing is 0, and what exceeds an exact double is cut to the largest one."""
    if value.isdigit() and len(value) <= _EXACT_DIGITS:
        return Digits(value.lstrip(b"0") or b"0")
    number = _number(value) if value else 0
    if number is None or number > largest:
        raise ClientError(refusal, retry_in="never")
    return Digits(b"%d" % min(number, MAX_COUNT))


def _port(value: bytes, event: Event) -> int:
    number = _number(value) if value else 0
    if number is None or number > 65535 or (number == 0 and event is not _STOPPED):
        raise ClientError("port must be from 1 to 65535", retry_in="never")
    return number
