"""The reasons why an announce or a scrape is refused: the text to send, the name that counts it, when to try again.

Front ends send a ``Refusal`` only, and a refusal takes its text from this table. ``make docs`` writes the table into
docs/troubleshooting.md; metrics, API and dashboard count and explain refusals by the names here.

Clients that know BEP 31 obey ``retry in``, libtorrent obeys the interval, and over UDP there is only the text.
"""

import random
from typing import Literal, NamedTuple, NewType

from tracker.errors import ClientError

RetryIn = int | Literal["never"]
"""Minutes until the peer may ask again, or ``"never"`` (BEP 31)."""
Label = NewType("Label", str)
"""The name under which failures are counted. Only this module makes them."""
Subject = Literal["torrent", "user", "address", "limits", "tracker", "request"]
QUICK_SECONDS = 30
_PROXY = "[proxies.md](proxies.md)"
_ALL_PEERS = f"if all peers get it, the tracker sees a proxy's address: {_PROXY}; else "
_ADD = (
    "`tracker torrent add FILE`, which adds both info hashes of a hybrid torrent; `tracker user unregistered USER` "
    "lists those that a user tried"
)
PROXY_HEADER_MISSING = "the proxy must send a PROXY protocol header"
PROXY_HEADER_UNEXPECTED = "the tracker does not expect the PROXY protocol header that its proxy sends"
UPGRADE_MISSING = "the proxy must pass on the Upgrade header of WebSockets"
ADDRESS_HIDDEN = "the tracker cannot see your address: its proxy must send X-Forwarded-For"
ADDRESS_IMPOSSIBLE = "no peer can have the address that your client or a proxy states"
_BROKEN = "a broken client, or a manual request"
_AS_TEXT = "a client or proxy decodes the URL as text"
_UNCHANGED = f"a proxy must pass the URL on unchanged: {_PROXY}"
_ENCODE = "percent-encode the bytes"
_NO_NUMBER = "the value is negative, too large or not a number"
_ON_PRIVATE = "[private.md](private.md#users-and-clients-written-into-redis)"
_RAISE = f"{_ALL_PEERS}raise the limit, or exempt the address with `TRACKER_LIMITS__EXEMPT`"


class Reason(NamedTuple):
    name: str
    """The name by which code and the store's scripts refuse, and which counts the refusal unless it has a label."""
    text: str
    """For the client's user: short, and says what to do. Fixed, without input from the request."""
    retry_in: RetryIn
    meaning: str
    """For the operator, as ``remedy``; both are Markdown."""
    remedy: str = ""
    interval_seconds: int | None = None
    """The interval; None: as long as ``retry_in``, but at most the usual one, which ``"never"`` has."""
    label: str = ""
    """The name that counts it, if it is another."""
    has_own_text: bool = False
    """Whether an operator's own text may replace the text."""

    @property
    def counted_as(self) -> Label:
        return Label(self.label or self.name)


def _own(text: str, meaning: str, remedy: str = "", retry_in: RetryIn = "never") -> Reason:
    """A reason that its text names."""
    return Reason(text, text, retry_in, meaning, remedy)


SUBJECTS: dict[Subject, tuple[Reason, ...]] = {
    "torrent": (
        Reason(
            "unknown torrent",
            "this torrent is not registered with this tracker",
            30,
            "registered mode, and the torrent was not added",
            _ADD,
        ),
        Reason(
            "unknown torrent at first",
            "this torrent is not registered with this tracker",
            1,
            "registered mode, within ten minutes after a known user announced it first",
            _ADD,
            QUICK_SECONDS,
            "unknown torrent",
        ),
        Reason(
            "pending",
            "this torrent waits for approval",
            1,
            "it is registered as pending; the client asks again within half a minute, so it works soon after the "
            "approval",
            "`tracker torrent enable INFO_HASH`",
            QUICK_SECONDS,
            has_own_text=True,
        ),
        Reason(
            "denied",
            "this torrent is not allowed on this tracker",
            "never",
            'it is on the deny list with an empty reason. Otherwise the client shows the reason, by default "this '
            'torrent is not served here"',
            "`tracker denied` prints the list, `tracker allow INFO_HASH` removes the torrent from it",
            has_own_text=True,
        ),
        Reason(
            "disabled",
            "this torrent is disabled",
            60,
            'it is disabled with an empty reason. Otherwise the client shows the reason, by default "this torrent is '
            'not served here"',
            "`tracker torrent enable INFO_HASH`",
            has_own_text=True,
        ),
        Reason(
            "too many torrents",
            "this tracker accepts no more torrents",
            60,
            "open mode: `TRACKER_TORRENTS__MAX_TORRENTS` is reached, and every self-registered torrent has peers; or "
            "the address's /24 or /48 registered more than a tenth of all, and all of these have peers",
            "raise the limit, if the store has the memory",
        ),
        Reason(
            "too many new torrents",
            "too many new torrents from your address; try again in an hour",
            60,
            "open mode: more than `TRACKER_TORRENTS__NEW_PER_ADDRESS_HOUR`",
            "behind a proxy, check first that peers do not all have the proxy's address; else raise the limit",
        ),
        Reason(
            "too many new torrents from network",
            "too many new torrents from your network; try again in an hour",
            60,
            "open mode: more than `TRACKER_TORRENTS__NEW_PER_NETWORK_HOUR` from the address's /24 or /48",
            "nothing, if this is a flood of invented torrents; else raise the limit",
        ),
        Reason(
            "torrent id in use",
            "torrent ID conflict; please report to the site staff",
            15,
            "the site gave one torrent id to two torrents",
            "compare `t:info_hash:…` and `t:torrent_id:…` ([redis.md](redis.md))",
        ),
        Reason(
            "bad torrent id",
            "invalid torrent data; please report to the site staff",
            60,
            "the value of `t:info_hash:…` is not a decimal number",
            "`tracker torrent remove`, then add it again",
        ),
    ),
    "user": (
        Reason(
            "unknown passkey",
            "unknown passkey: download the .torrent file again",
            60,
            "no such user, or the passkey was changed",
            "check `tracker user list`; download a .torrent file with the new announce URL",
        ),
        Reason(
            "no passkey",
            "this tracker needs a passkey: download the .torrent file from its site",
            60,
            "an announce URL without a passkey, where accounts are required",
            "`tracker user add` prints the URL of a user",
        ),
        _own(
            "the passkey in the announce URL is malformed",
            "the part of the URL where the passkey belongs ([private.md](private.md#announce-urls)) is no valid "
            "passkey",
            "correct the announce URL",
        ),
        _own(
            "the announce URL has two passkeys",
            "for example `/<passkey>/announce?passkey=<passkey>`",
            "remove one of them",
        ),
        Reason(
            "bad user id",
            "invalid account data; please report to the site staff",
            60,
            "the site wrote a `user_id` that is not a positive number",
            _ON_PRIVATE,
        ),
        Reason(
            "user id in use",
            "user ID conflict; please report to the site staff",
            15,
            "the site wrote a `user_id` that belongs to another passkey",
            f"`tracker reindex` lists these ids; {_ON_PRIVATE}",
        ),
        Reason(
            "user disabled",
            "your account is disabled",
            60,
            "`tracker user disable`, or the site, disabled it; the client shows the operator's reason if there is one",
            "`tracker user enable USER`",
            has_own_text=True,
        ),
        Reason(
            "group may not announce",
            "your account's group may not use this tracker",
            60,
            "`may_announce` of the user's group is off",
            "`tracker group set GROUP --may-announce`, or another group: `tracker user edit USER --group GROUP`",
        ),
        Reason(
            "may not leech",
            "your account may not download",
            60,
            "`can_leech` of the user or of the user's group is off; seeding still works",
            "`tracker user edit USER --can-leech`, or the site",
        ),
        Reason(
            "too many downloads",
            "you are downloading as many torrents as you may; finish or stop one first",
            30,
            "the limit of the user, else of the group, else `TRACKER_USERS__MAX_DOWNLOADS`; seeding still works",
            "`tracker user edit USER --max-downloads N`, or raise the setting",
        ),
        _own(
            "your client is not allowed on this tracker",
            "the allow-list is on and does not contain the prefix of the peer id",
            "`tracker client allow PREFIX`; `tracker client seen --failures` lists refused clients",
            60,
        ),
        Reason(
            "client denied",
            "your client is on the deny list of this tracker; use another one",
            60,
            "the deny list of clients is on and has a prefix of the peer id; the client shows the operator's reason "
            "if there is one",
            "use another version or program; `tracker client denied` shows the list",
            has_own_text=True,
        ),
        _own("a scrape over UDP has no passkey; scrape over HTTP", "passkeys are required"),
    ),
    "address": (
        _own(
            "your address is private: this tracker serves the public network only",
            "`TRACKER_ANNOUNCE__PRIVATE_ADDRESSES=refuse`",
            f"if all peers get it, the tracker sees a proxy's address: {_PROXY}",
            60,
        ),
        _own(
            ADDRESS_HIDDEN,
            "a request through a unix socket, or from a network in `TRACKER_HTTP__TRUSTED_PROXIES`, without the header",
            f"configure the proxy: {_PROXY}; or take the network out, if peers come from it themselves",
            30,
        ),
        _own(
            ADDRESS_IMPOSSIBLE,
            "`ip=`, X-Forwarded-For or Forwarded names an address such as 0.0.0.0, ::, or a multicast one",
            f"configure the proxy: {_PROXY}; or the `ip` of the client",
            30,
        ),
        _own(
            PROXY_HEADER_MISSING,
            "`TRACKER_HTTP__PROXY_PROTOCOL` is on, and a trusted proxy sends plain HTTP. The connection is closed",
            f"set it to false, or let the proxy send the header: {_PROXY}",
            30,
        ),
        _own(
            PROXY_HEADER_UNEXPECTED,
            "a proxy sends a PROXY protocol header, but `TRACKER_HTTP__PROXY_PROTOCOL` is off, or "
            "`TRACKER_HTTP__TRUSTED_PROXIES` does not name it",
            f"set both, or let the proxy send plain HTTP: {_PROXY}",
            30,
        ),
        _own(
            UPGRADE_MISSING,
            "a browser asked for a WebSocket, and a proxy removed the header",
            "configure the proxy: [webtorrent.md](webtorrent.md#behind-a-proxy)",
        ),
        _own(
            "UDP announces must not come through the proxy",
            "the packet came from a network in `TRACKER_HTTP__TRUSTED_PROXIES`",
            "[udp.md](udp.md)",
        ),
        _own(
            "connection id expired",
            "over UDP: the client's address changed, or its id is too old. Not counted as a failure",
            "nothing: the client connects again by itself",
            1,
        ),
    ),
    "limits": (
        Reason(
            "too many announces",
            "your client announces too often; it will retry",
            5,
            "more than twice `TRACKER_LIMITS__PEER_ANNOUNCES_MINUTE` early announces of one peer; or, from one address "
            "in one torrent, more than twice `TRACKER_LIMITS__TORRENT_ANNOUNCES_MINUTE` joins, stops, early and "
            "refused announces, and announces with another peer's id",
            "nothing; a client that keeps to its interval never gets this",
        ),
        Reason(
            "too many new peers",
            "too many new peers from your address; your client will retry",
            5,
            "more joins than twice `TRACKER_LIMITS__JOINS_MINUTE`",
            _RAISE,
        ),
        Reason(
            "too many requests",
            "too many requests from your address; your client will retry",
            5,
            "more announces, scrapes and other requests than twice `TRACKER_LIMITS__ADDRESS_REQUESTS_MINUTE`",
            _RAISE,
        ),
        Reason(
            "too many unknown passkeys",
            "too many unknown passkeys from your address; try again later",
            5,
            "someone at that address guesses passkeys; passkeys that worked recently still work",
            "nothing",
        ),
    ),
    "tracker": (
        Reason(
            "store unavailable",
            "tracker temporarily unavailable; your client will retry",
            1,
            "Redis or Valkey does not answer, or refuses work",
            "`tracker doctor`; announces work again when the store is back",
        ),
        Reason(
            "busy",
            "the tracker is busy; your client will retry",
            5,
            "more than `TRACKER_REDIS__MAX_WAITING` announces wait for the store; each client gets a random time of 1 "
            "to 5 minutes",
            "in a flood nothing; else [sizing.md](sizing.md)",
        ),
        Reason(
            "store full",
            "the tracker is full; your client will retry",
            5,
            "the store reached `maxmemory`; joins are refused, other announces work",
            "give the store more memory (private store: `TRACKER_DATA__MAX_MEMORY_MB`)",
        ),
        Reason(
            "internal error",
            "internal error",
            5,
            "a bug in the tracker, or keys of a wrong type in the store",
            "see the tracker's log",
        ),
    ),
    "request": (
        _own("this is a BitTorrent tracker: open this URL in a torrent client", "a browser opened the announce URL"),
        _own(
            "this address is for BitTorrent clients",
            "a browser sent an announce or scrape for a web page, for example as an image; visitors of a page must "
            "not join swarms",
        ),
        _own("no such path: announce to /announce or /<passkey>/announce", "a misspelt announce URL"),
        _own("announce and scrape are GET requests", "POST and others are refused"),
        _own("an announce is for one info_hash, this one has two", _BROKEN),
        _own("info_hash is missing", _BROKEN),
        _own("info_hash must be exactly 20 bytes", _AS_TEXT, _UNCHANGED),
        _own("peer_id must be exactly 20 bytes", _AS_TEXT, _UNCHANGED),
        _own("info_hash must be the raw 20 bytes, not 40 hexadecimal digits", "a script", "percent-encode the bytes"),
        _own("info_hash must be the raw 20 bytes, percent-encoded", "a script", _ENCODE),
        _own("uploaded must be a number from 0 to 2^64", _NO_NUMBER),
        _own("downloaded must be a number from 0 to 2^64", _NO_NUMBER),
        _own("left must be a number from 0 to 2^64", _NO_NUMBER),
        _own("port must be from 1 to 65535", "the client has no listening port"),
        _own(
            "a scrape needs an info_hash: full scrapes are disabled",
            "the request asks for all torrents",
            "`TRACKER_TORRENTS__FULL_SCRAPE=true` allows full scrapes",
        ),
        _own(
            "GET string too long: scrape fewer torrents at once",
            "more info hashes than `TRACKER_TORRENTS__MAX_SCRAPE`, or more bytes than "
            "`TRACKER_HTTP__MAX_REQUEST_LINE_BYTES`. Transmission knows the beginning of this text, and scrapes fewer "
            "torrents at once from then on",
        ),
        _own(
            "malformed URL: every byte of info_hash and peer_id must be percent-encoded",
            "the URL contains raw bytes that the parser rejects",
        ),
        _own("malformed request line: spaces in the URL must be percent-encoded", "the URL contains spaces"),
        _own(
            "a header line of the request is too long",
            "more than `TRACKER_HTTP__MAX_HEADER_BYTES`, for example a cookie or a header added by a proxy",
        ),
        _own("the request has too many header lines", "more than 64"),
        _own(
            "an HTTP/1.1 request needs a Host header",
            "a script, or a proxy outside `TRACKER_HTTP__TRUSTED_PROXIES` that turns HTTP/1.0 into HTTP/1.1",
        ),
        _own(
            "not an HTTP request: check the scheme and port of the announce URL",
            "the announce URL says `https://` or `udp://`, but the port serves HTTP",
        ),
        _own("malformed HTTP request", "any other malformed request"),
        _own("a message must be a JSON object", "a WebSocket message that is none, or that is too long"),
        _own("the action of a message must be announce or scrape", _BROKEN),
        _own("offers must be a list", _BROKEN),
        _own("an answer needs to_peer_id, offer_id and a session description", _BROKEN),
        _own(
            "a connection has one peer id for each torrent",
            "a WebSocket client announced a torrent with a second peer id before the first one stopped",
        ),
        _own(
            "too many torrents on this connection",
            "a WebSocket client announced more torrents than `TRACKER_WEBTORRENT__MAX_TORRENTS`",
        ),
    ),
}
REASONS: dict[str, Reason] = {each.name: each for reasons in SUBJECTS.values() for each in reasons}
"""By name."""
DROPPED, SHED = Label("dropped"), Label("load shedding")
TOO_MANY_CONNECTIONS, TOO_MUCH_HELD = Label("too many connections"), Label("too much held in memory")
CLOSED: dict[Label, str] = {
    DROPPED: "the address continued beyond a rate limit",
    SHED: "load shedding closed the waiting connection",
    TOO_MANY_CONNECTIONS: "a limit on connections closed one",
    TOO_MUCH_HELD: "a limit on the memory of connections closed one",
}
"""What is counted without a reply, by label: the connection was closed, and why."""


NAMES = sorted({each.counted_as for each in REASONS.values() if each.name != each.text} | CLOSED.keys())
"""The short names that count failures; the others are counted by their text."""


def explained(label: str) -> list[Reason]:
    """The reasons that ``label`` counts; none for one of CLOSED, and for an unknown one."""
    return [each for each in REASONS.values() if each.counted_as == label]


class Refusal(ClientError):
    """A refusal of an announce or a scrape, by the name of a reason. An unknown name is an internal error. ``own_text``
    is an operator's text, or empty; it replaces the text of reasons that have one."""

    def __init__(self, name: str, own_text: str = "") -> None:
        reason = REASONS.get(name) or REASONS["internal error"]
        super().__init__(own_text if own_text and reason.has_own_text else reason.text)
        self.retry_in: RetryIn = reason.retry_in
        self.interval_seconds = reason.interval_seconds
        self.label = reason.counted_as


class SilentlyDropped(Refusal):
    """Refused without an answer: the connection is closed. A trusted proxy's connection stays open."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.label = DROPPED


class Busy(Refusal):
    """Refused because of overload. The connection is closed after the reply, since each further request costs time. The
    retry times are spread, so that clients do not all return at once."""

    def __init__(self) -> None:
        super().__init__("busy")
        assert self.retry_in != "never"
        self.retry_in = random.randint(1, self.retry_in)
