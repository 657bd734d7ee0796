"""What announces over HTTP and UDP share: their URLs with passkeys, and one rule for their numbers.

Over UDP an announce carries the path and query of its URL (BEP 41). HTTP writes numbers as decimals of any length, UDP
has 64 or 32 bits for them. A negative number looks like a large one over UDP, and over HTTP from clients that print it
without its sign.
"""

import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from tracker.bittorrent import MAX_COUNT, Accounts, Digits, Event
from tracker.refusals import Refusal

PASSKEY_PARAMETER = "passkey="
"""The parameter of a query that may hold a passkey, with its ``=``."""
_PASSKEY = re.compile(r"[A-Za-z0-9._~=+-]{1,128}")
_KINDS = ("announce", "scrape")
_PHP = {f"{kind}.php": kind for kind in _KINDS}
"""The names that other trackers give their paths, where the query may carry a passkey."""
_MALFORMED_PASSKEY = "?"
"""Stands for every malformed passkey of an anonymous announce; no user has it."""
MAX_BYTES = 2**64
"""Larger byte counts are refused. 2^64 - 1 in double precision is 2^64."""
MAX_PEERS_WANTED = 2**31 - 1
"""A larger number is a negative one, by which clients ask for the tracker's default."""
MAX_PORT = 65535
_MAX_LEFT = 2**63
_STOPPED = Event.STOPPED


class PasskeyForms(NamedTuple):
    """Where announce URLs may carry a passkey, besides ``/<passkey>/announce``."""

    accounts: Accounts = "off"
    after: bool = False
    """In ``/announce/<passkey>`` and ``/scrape/<passkey>``."""
    parameter: bool = False
    """In ``/announce?passkey=<passkey>`` and ``/scrape?passkey=<passkey>``. The paths may also be ``/announce.php`` and
    ``/scrape.php``, also with the passkey in another place."""


class Route(NamedTuple):
    kind: str
    """announce, scrape, index or other."""
    passkey: str | None = None


_NO_OTHER_FORMS = PasskeyForms()


def find_route(path: str, query: str = "", forms: PasskeyForms = _NO_OTHER_FORMS) -> Route:
    """The route of a request: its path in origin or absolute form, and its query, not decoded. Raises Refusal for a
    malformed path, a malformed passkey and two passkeys. With optional accounts a request with a malformed passkey is
    anonymous."""
    if not path.startswith("/"):
        path = path.partition("://")[2].partition("/")[2]
    segments = _segments(path)
    if not any(segment.lower().startswith(_KINDS) for segment in segments):
        return Route("other" if segments else "index")
    kind, passkeys = _split(segments, forms)
    if kind not in _KINDS:
        raise Refusal("no such path: announce to /announce or /<passkey>/announce")
    return Route(kind, _passkey(passkeys, query, forms))


def passkey_in(url: bytes, forms: PasskeyForms) -> str | None:
    """The passkey in the path and query that an announce over UDP carries. Any other path has none. Raises Refusal as
    find_route does for passkeys."""
    if not url.startswith(b"/"):
        return None
    path, _, query = url.decode("latin-1").partition("?")
    kind, passkeys = _split(_segments(path), forms)
    return _passkey(passkeys, query, forms) if kind == "announce" else None


def socket_passkey(path: str, query: str, forms: PasskeyForms) -> str | None:
    """The passkey in the URL of a WebSocket, whose path may also be ``/``, ``/<passkey>`` or PeerTube's. Raises Refusal
    for any other path, and as find_route does for passkeys."""
    segments = _segments(path)
    kind, passkeys = _split(segments, forms._replace(after=True))
    if len(segments) == 1 and not kind:
        passkeys = segments
    elif kind != "announce" and segments and segments != ["tracker", "socket"]:
        raise Refusal("no such path: announce to /announce or /<passkey>/announce")
    return _passkey([] if forms.accounts == "off" else passkeys, query, forms)


def _segments(path: str) -> list[str]:
    return [_decode(segment) for segment in path.split("/") if segment]


def _decode(text: str) -> str:
    return unquote_to_bytes(text).decode("latin-1") if "%" in text else text


def _split(segments: list[str], forms: PasskeyForms) -> tuple[str, list[str]]:
    """(announce or scrape, the passkeys in the path); for any other path ("", [])."""
    *before, last = segments or [""]
    kind, after = _kind(last, forms), list[str]()
    if not kind and forms.after and before:
        *before, name = before
        kind, after = _kind(name, forms), [last]
    return (kind, [*before, *after]) if kind and len(before) <= 1 else ("", [])


def _kind(segment: str, forms: PasskeyForms) -> str:
    return segment if segment in _KINDS else _PHP.get(segment, "") if forms.parameter else ""


def _passkey(passkeys: list[str], query: str, forms: PasskeyForms) -> str | None:
    """The only one of those in the path and in the query, also an empty one."""
    if forms.parameter and PASSKEY_PARAMETER in query:
        found = [text for text in query.split("&") if text.startswith(PASSKEY_PARAMETER)]
        # A client may have put a ``?`` before its own part of the query.
        passkeys = passkeys + [_decode(text.removeprefix(PASSKEY_PARAMETER).partition("?")[0]) for text in found]
    if len(passkeys) > 1:
        raise Refusal("the announce URL has two passkeys")
    if not passkeys or _PASSKEY.fullmatch(passkeys[0]):
        return passkeys[0] if passkeys else None
    if forms.accounts == "optional":
        return _MALFORMED_PASSKEY
    raise Refusal("the passkey in the announce URL is malformed")


def byte_count(number: int) -> Digits:
    return Digits(b"%d" % min(number, MAX_COUNT))


def bytes_left(number: int) -> Digits | None:
    """None is unknown: clients send 2^64 - 1 while they have only a magnet link."""
    return byte_count(number) if number <= _MAX_LEFT else None


def check_unusual_port(port: int | None, event: Event) -> None:
    """Raises Refusal for 0, larger numbers than MAX_PORT and None, except for 0 of a peer that stops."""
    if port != 0 or event is not _STOPPED:
        raise Refusal("port must be from 1 to 65535")
