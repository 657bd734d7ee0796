"""Announce and scrape over HTTP: query string -> request, reply -> bencode (BEP 3, 7, 23, 24, 31, 48, 52).

A query is bytes from end to end. Decoding it as text first would spoil binary hashes, so it is split on
``&`` as it came and each value is percent-decoded once, to bytes; a bare ``+`` is a space, as form
encoders write byte 0x20. Names are compared as they stand: no encoder escapes letters and ``_``.

Parsing and ``encode_announce`` run once per announce and are written for speed; bencodepy does the rest.
bencodepy keeps the order of a dictionary, so what is handed to it is sorted here.
"""

import re
from codecs import escape_decode

from bencodepy import encode as bencode

from tracker.bittorrent import (
    HASH_LENGTH,
    MAX_COUNT,
    Announce,
    AnnounceReply,
    Event,
    InfoHash,
    PeerId,
    Scrape,
    ScrapeReply,
)
from tracker.errors import ClientError, RetryIn
from tracker.wire.compact import (
    ENDPOINT6_LENGTH,
    ENDPOINT_LENGTH,
    format_address,
    pack_address,
    split_endpoints,
)

MAX_PARAMETERS = 100
"""Parameters of an announce that are looked at; real clients send about 15."""
MAX_KEY_LENGTH = 64

# `int in bytes` is five times as fast as `bytes in bytes`, which tries its operand as a number first.
_PERCENT = ord("%")
_LONGEST_ESCAPED = len("%00") * MAX_KEY_LENGTH
_MALFORMED_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_EVENTS = {event.value.encode(): event for event in Event}
_UPDATE, _STOPPED = Event.UPDATE, Event.STOPPED  # reading a member off its class is slow
_EXACT_DIGITS = len(str(MAX_COUNT)) - 1
_LARGEST_NUMBER = 2**63
_NUMBER_DIGITS = len(str(_LARGEST_NUMBER))


def parse_announce(query: bytes) -> Announce:
    """The query of an announce, without its ``?``.

    Of a parameter given twice the first holds, and unknown ones, those without ``=`` and empty values
    are no error. Raises ClientError for what cannot be served: no or two info_hash, a hash or peer id
    that is not 20 bytes, a missing or impossible port, a byte count that is no number up to 2^63.
    """
    fields: dict[bytes, bytes] = {}
    for parameter in query.replace(b"+", b" ").split(b"&", MAX_PARAMETERS)[:MAX_PARAMETERS]:
        name, _, value = parameter.partition(b"=")
        if name not in fields:
            fields[name] = _unescape(value) if _PERCENT in value else value
        elif name == b"info_hash":
            raise ClientError("an announce is for one info_hash, this one has two", retry_in="never")
    get = fields.get
    info_hash, peer_id = get(b"info_hash", b""), get(b"peer_id", b"")
    if len(info_hash) != HASH_LENGTH:
        raise _bad_info_hash(info_hash)
    if len(peer_id) != HASH_LENGTH:
        raise ClientError("peer_id must be exactly 20 bytes", retry_in="never")
    event = _EVENTS.get(get(b"event", b""), _UPDATE)
    left, key, stated = get(b"left"), get(b"key", b""), get(b"ip")
    return Announce(
        InfoHash(info_hash),
        PeerId(peer_id),
        _port(get(b"port", b""), event),
        _count(get(b"uploaded", b""), "uploaded must be a number from 0 to 2^63"),
        _count(get(b"downloaded", b""), "downloaded must be a number from 0 to 2^63"),
        _count(left, "left must be a number from 0 to 2^63") if left else None,
        event,
        _number(get(b"numwant", b"")),  # nonsense and negative numbers ask for the default, too
        key if len(key) <= MAX_KEY_LENGTH else b"",
        get(b"compact") != b"0",
        get(b"no_peer_id") == b"1",
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


def encode_announce(reply: AnnounceReply, *, compact: bool = True, no_peer_id: bool = False) -> bytes:
    """An accepted announce's answer; every optional key but ``peers`` is left out when there is nothing to say.

    ``peers`` is present even when empty, because rtorrent refuses an answer without it. The long form
    (``compact=0``) has the peers of both families in it.
    """
    address = reply.external_address
    external = b"11:external ip%d:%b" % (len(address), address) if address else b""
    if compact:
        peers = b"%d:%b" % (len(reply.peers), reply.peers)
        if reply.peers6:
            peers += b"6:peers6%d:%b" % (len(reply.peers6), reply.peers6)
    else:
        peers = _long_form(reply, no_peer_id)
    body = (
        b"d8:completei%de10:downloadedi%de%b10:incompletei%de8:intervali%de12:min intervali%de5:peers%b"
        % (
            reply.seeders,
            reply.completions,
            external,
            reply.leechers,
            reply.interval_seconds,
            reply.min_interval_seconds,
            peers,
        )
    )
    if not reply.warning:
        return body + b"e"
    warning = _text(reply.warning)
    return b"%b15:warning message%d:%be" % (body, len(warning), warning)


def encode_scrape(reply: ScrapeReply) -> bytes:
    """``files`` by raw info hash (BEP 48), with BEP 21's ``downloaders``, and ``flags`` as trackers have them."""
    files = {
        info_hash: {
            "complete": figures.seeders,
            "downloaded": figures.completions,
            "downloaders": figures.downloaders,
            "incomplete": figures.leechers,
        }
        for info_hash, figures in sorted(reply.files.items())
    }
    return _bencode({"files": files, "flags": {"min_request_interval": reply.min_request_interval_seconds}})


def encode_failure(
    text: str, *, retry_in: RetryIn, interval_seconds: int, min_interval_seconds: int
) -> bytes:
    """A refusal. ``retry in`` (BEP 31) is minutes or ``never``; libtorrent obeys the intervals instead."""
    return _bencode(
        {
            "failure reason": _text(text),
            "interval": interval_seconds,
            "min interval": min_interval_seconds,
            "retry in": retry_in,
        }
    )


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
    """Decimal digits and nothing else -> their number, else ``None``; what is above 2^63 is only that.

    No longer digits than that needs reach ``int``, whose time grows with the square of their number.
    """
    if not value.isdigit():
        return None
    if len(value) >= _NUMBER_DIGITS:
        value = value.lstrip(b"0")[: _NUMBER_DIGITS + 1] or b"0"
    return int(value)


def _count(value: bytes, refusal: str) -> int:
    """A byte count; missing is 0, and what exceeds an exact double is cut to the largest one."""
    if value.isdigit() and len(value) <= _EXACT_DIGITS:
        return int(value)
    number = _number(value) if value else 0
    if number is None or number > _LARGEST_NUMBER:
        raise ClientError(refusal, retry_in="never")
    return min(number, MAX_COUNT)


def _port(value: bytes, event: Event) -> int:
    number = _number(value) if value else 0
    if number is None or number > 65535 or (number == 0 and event is not _STOPPED):
        raise ClientError("port must be from 1 to 65535", retry_in="never")
    return number


def _long_form(reply: AnnounceReply, no_peer_id: bool) -> bytes:
    entries = [b"l"]
    for packed, size, ids in (
        (reply.peers, ENDPOINT_LENGTH, reply.peer_ids),
        (reply.peers6, ENDPOINT6_LENGTH, reply.peer_ids6),
    ):
        for index, (address, port) in enumerate(split_endpoints(packed, size)):
            text = format_address(address).encode()
            peer_id = b"" if no_peer_id else ids[index * HASH_LENGTH : (index + 1) * HASH_LENGTH]
            named = b"7:peer id20:" + peer_id if len(peer_id) == HASH_LENGTH else b""
            entries.append(b"d2:ip%d:%b%b4:porti%dee" % (len(text), text, named, port))
    entries.append(b"e")
    return b"".join(entries)


def _text(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which only a damaged text holds, becomes a question mark."""
    return text.encode("utf-8", "replace")


def _bencode(value: dict[str, object]) -> bytes:
    encoded: bytes = bencode(value)
    return encoded
