"""Announce URLs of other trackers: parses them, derives the scrape URL (BEP 48), and masks secrets. An announce URL
often contains a secret: a passkey in its path or query, or credentials before its host. Only the scheme, host, port,
and the words ``announce`` and ``scrape`` are shown."""

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from urllib.parse import unquote

MAX_LENGTH = 2000
MASK = "***"

_PORTS = {"http": 80, "https": 443}
_MIN_SECRET_LENGTH = 4
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_URL = re.compile(
    r"(?P<scheme>(?i:https?|udp))://"
    r"(?:(?P<credentials>[^\x00-\x20/?#@\\]*)@)?"
    rf"(?P<host>\[[0-9A-Fa-f:.]{{2,45}}\]|{_LABEL}(?:\.{_LABEL})*)"
    r"(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>[/?][!-\"$-\[\]-~]*)?"
)
_SHOWN_WORD = re.compile(r"(?:announce|scrape)(?:\.[a-z]{1,5})?")


@dataclass(frozen=True, slots=True)
class TrackerUrl:
    scheme: str
    host: str
    """Lower case; IPv6 without brackets."""
    port: int
    target: str
    """Path and query as given; empty or starting with ``/``."""
    credentials: str = ""
    """``user:password`` as given; http and https only."""

    def __repr__(self) -> str:
        return f"TrackerUrl({self.masked!r})"

    @property
    def origin(self) -> str:
        """``scheme://host:port``, without credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS.get(self.scheme) else f":{self.port}"
        return f"{self.scheme}://{host}{port}"

    @property
    def scrape_target(self) -> str | None:
        """The target of a scrape, or ``None``. By convention the last path segment begins with ``announce``."""
        head, slash, tail = self.target.rpartition("/")
        if not slash or not tail.startswith("announce"):
            return None
        return f"{head}/scrape{tail.removeprefix('announce')}"

    @property
    def masked(self) -> str:
        """The URL without secrets, for logs and the dashboard."""
        path, mark, _ = self.target.partition("?")
        words = [word if not word or _SHOWN_WORD.fullmatch(word) else MASK for word in path.split("/")]
        scheme, separator, rest = self.origin.partition("://")
        origin = f"{scheme}{separator}{self.credentials and MASK + '@'}{rest}"
        return f"{origin}{'/'.join(words)}{mark and '?' + MASK}"

    def hide(self, text: str) -> str:
        """``text`` with the secrets of this URL masked. The tracker may have repeated them in it."""
        path, _, query = self.target.partition("?")
        parts = {*path.split("/"), *re.split("[&=]", query), *self.credentials.split(":"), self.credentials}
        secrets = {part for part in parts if len(part) >= _MIN_SECRET_LENGTH and not _SHOWN_WORD.fullmatch(part)}
        # Longer ones first, because one may contain another.
        for secret in sorted(secrets | {unquote(secret) for secret in secrets}, key=len, reverse=True):
            text = text.replace(secret, MASK)
        return text


def parse_tracker_url(text: str) -> TrackerUrl:
    """Parses an announce URL. A udp URL needs a port and has no credentials. Raises ValueError, with a text that
    contains no part of the URL."""
    match = _URL.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if match is None:
        raise ValueError("not an announce URL")
    scheme = match["scheme"].lower()
    port = int(match["port"] or _PORTS.get(scheme, 0))
    if not 0 < port < 65536 or (scheme == "udp" and match["credentials"] is not None):
        raise ValueError("not an announce URL")
    host, target = match["host"].lower(), match["target"] or ""
    if host.startswith("["):
        try:
            host = str(IPv6Address(host[1:-1]))
        except ValueError:
            raise ValueError("not an announce URL") from None
    return TrackerUrl(
        scheme=scheme,
        host=host,
        port=port,
        target=f"/{target}" if target.startswith("?") else target,
        credentials=match["credentials"] or "",
    )
