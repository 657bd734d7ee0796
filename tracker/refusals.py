"""Every refusal of an announce or a scrape: its text, and when the client may try again.

Clients that know BEP 31 obey ``retry in``, libtorrent obeys the interval, and over UDP there is only the text.
docs/announce.md shows this table.
"""

from typing import NamedTuple

from tracker.errors import ClientError, RetryIn

QUICK_SECONDS = 30


class Refusal(NamedTuple):
    text: str
    retry_in: RetryIn
    interval_seconds: int | None = None
    """The interval; None: as long as ``retry_in``, but at most the usual one, which ``"never"`` has."""
    label: str = ""
    """The name that counts it, if not the one in the table."""


_SERVER: dict[str, Refusal] = {
    "unknown torrent": Refusal("this torrent is not registered with this tracker", 30),
    "unknown torrent at first": Refusal(
        "this torrent is not registered with this tracker", 1, QUICK_SECONDS, "unknown torrent"
    ),
    "pending": Refusal("this torrent waits for approval", 1, QUICK_SECONDS),
    "denied": Refusal("this torrent is not allowed on this tracker", "never"),
    "disabled": Refusal("this torrent is disabled", 60),
    "client denied": Refusal("your client is on the deny list of this tracker; use another one", 60),
    "unknown passkey": Refusal("unknown passkey: download the .torrent file again", 60),
    "bad user id": Refusal("invalid account data; please report to the site staff", 60),
    "user id in use": Refusal("user ID conflict; please report to the site staff", 15),
    "user disabled": Refusal("your account is disabled", 60),
    "may not leech": Refusal("your account may not download", 60),
    "too many downloads": Refusal(
        "you are downloading as many torrents as you may; finish or stop one first", 30
    ),
    "too many torrents": Refusal("this tracker accepts no more torrents", 60),
    "too many new torrents": Refusal("too many new torrents from your address; try again in an hour", 60),
    "too many new torrents from network": Refusal(
        "too many new torrents from your network; try again in an hour", 60
    ),
    "store full": Refusal("the tracker is full; your client will retry", 5),
    "torrent id in use": Refusal("torrent ID conflict; please report to the site staff", 15),
    "bad torrent id": Refusal("invalid torrent data; please report to the site staff", 60),
    "store away": Refusal("tracker temporarily unavailable; your client will retry", 1),
    "busy": Refusal("the tracker is busy; your client will retry", 5),
    "too many announces": Refusal("your client announces too often; it will retry", 5),
    "too many new peers": Refusal("too many new peers from your address; your client will retry", 5),
    "too many requests": Refusal("too many requests from your address; your client will retry", 5),
    "too many unknown passkeys": Refusal("too many unknown passkeys from your address; try again later", 5),
    "internal error": Refusal("internal error", 5),
}
# These are counted by their text.
_HOUR = (
    "your client is not allowed on this tracker",
    "your address is private: this tracker serves the public network only",
)
_HALF_AN_HOUR = ("the tracker cannot see your address: its proxy must send X-Forwarded-For",)
_NEVER = (
    "this is a BitTorrent tracker: open this URL in a torrent client",
    "this address is for BitTorrent clients",
    "no such path: announce to /announce or /<passkey>/announce",
    "the announce URL has two passkeys",
    "the passkey in the announce URL is malformed",
    "announce and scrape are GET requests",
    "an announce is for one info_hash, this one has two",
    "info_hash is missing",
    "info_hash must be exactly 20 bytes",
    "info_hash must be the raw 20 bytes, not 40 hexadecimal digits",
    "info_hash must be the raw 20 bytes, percent-encoded",
    "peer_id must be exactly 20 bytes",
    "uploaded must be a number from 0 to 2^64",
    "downloaded must be a number from 0 to 2^64",
    "left must be a number from 0 to 2^64",
    "port must be from 1 to 65535",
    "a scrape needs an info_hash: full scrapes are disabled",
    "a scrape over UDP has no passkey; scrape over HTTP",
    "UDP announces must not come through the proxy",
    "the request is too long: scrape fewer torrents at once",
    "malformed URL: every byte of info_hash and peer_id must be percent-encoded",
    "malformed request line: spaces in the URL must be percent-encoded",
    "a header line of the request is too long",
    "the request has too many header lines",
    "an HTTP/1.1 request needs a Host header",
    "not an HTTP request: check the scheme and port of the announce URL",
    "malformed HTTP request",
)
REFUSALS: dict[str, Refusal] = {
    **_SERVER,
    **{text: Refusal(text, 60) for text in _HOUR},
    **{text: Refusal(text, 30) for text in _HALF_AN_HOUR},
    **{text: Refusal(text, "never") for text in _NEVER},
}
"""By its name, which also counts it."""


def refusal(name: str, reason: str = "") -> ClientError:
    """The failure to send; ``reason`` is an operator's own text, or empty. An unknown name is an internal error."""
    found = REFUSALS.get(name)
    if found is None:
        name, found = "internal error", REFUSALS["internal error"]
    return ClientError(
        reason or found.text,
        retry_in=found.retry_in,
        interval_seconds=found.interval_seconds,
        label=found.label or name,
    )
