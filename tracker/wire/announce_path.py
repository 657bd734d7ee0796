"""Paths of announce URLs, and the passkeys in them. Over UDP an announce carries the path of its URL (BEP 41)."""

import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from tracker.bittorrent import Accounts
from tracker.errors import ClientError

_PASSKEY = re.compile(r"[A-Za-z0-9._~=+-]{1,128}")
_MALFORMED_PASSKEY = "?"
"""Stands for every malformed passkey of an anonymous announce; no user has it."""


class Route(NamedTuple):
    kind: str
    """announce, scrape, index or other."""
    passkey: str | None = None


def find_route(path: str, accounts: Accounts = "off") -> Route:
    """The route of a request path in origin or absolute form, not decoded.

    Raises ClientError for a malformed path. With optional accounts a request with a malformed passkey is anonymous.
    """
    if not path.startswith("/"):
        path = path.partition("://")[2].partition("/")[2]
    segments = [_decode(segment) for segment in path.split("/") if segment]
    if not any(segment.lower().startswith(("announce", "scrape")) for segment in segments):
        return Route("other" if segments else "index")
    kind = segments.pop()
    if kind not in ("announce", "scrape") or len(segments) > 1:
        raise ClientError("no such path: announce to /announce or /<passkey>/announce", retry_in="never")
    if segments and not _PASSKEY.fullmatch(segments[0]):
        if accounts == "optional":
            return Route(kind, _MALFORMED_PASSKEY)
        raise ClientError("the passkey in the announce URL is malformed", retry_in="never")
    return Route(kind, segments[0] if segments else None)


def _decode(segment: str) -> str:
    return unquote_to_bytes(segment).decode("latin-1") if "%" in segment else segment


def passkey_in(url: bytes, accounts: Accounts) -> str | None:
    """The passkey in the path and query that an announce over UDP carries. Any other path has none."""
    if not url.startswith(b"/"):
        return None
    try:
        route = find_route(url.partition(b"?")[0].decode("latin-1"), accounts)
    except ClientError:
        return None
    return route.passkey if route.kind == "announce" else None
