"""The URL of the store as an operator writes it, checked before connecting.

redis-py accepts any query parameter as an option, which ends in a traceback later, and reads an invalid path as
database 0. Errors do not show the invalid part: it may be a piece of a password.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from tracker.errors import StartupError

Address = tuple[str, int]
"""Host and port."""
SENTINEL_PORT = 26379
_SERVERS = ("redis", "rediss", "unix")
_NETWORK = ("redis", "rediss")
_SENTINELS = ("redis+sentinel", "rediss+sentinel")
_QUERY = re.compile(r"(?:db=([0-9]{1,9}))?")
_DATABASE = re.compile(r"(/[0-9]{0,9})?")
_SENTINEL_PATH = re.compile(r"/([A-Za-z0-9._-]+)(?:/([0-9]{0,9}))?")
_HOSTS_URL = re.compile(r"(rediss?(?:\+sentinel)?)://([^/?#\s]*)([^?#\s]*)(?:\?([^#\s]*))?(?:#(\S*))?", re.IGNORECASE)
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:\[\]/@,]+))(?::([0-9]{1,5}))?")
_SCHEMES_SHOWN = "use redis://, rediss:// or unix://, or redis+sentinel:// or rediss+sentinel://"
_SENTINEL_SHOWN = (
    "sentinels are written redis+sentinel://user:password@host:26379,host:26379/<name of the master>/<database>"
)


@dataclass(frozen=True, slots=True)
class SentinelUrl:
    """Sentinels that know where the store is. User and password are those of the store, not of the sentinels."""

    sentinels: tuple[Address, ...]
    master: str
    database: int = 0
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False


def parse_url(url: str) -> SentinelUrl | None:
    """None for a server's own URL that redis-py will understand; raises StartupError for what is no URL of a store."""
    try:
        parts = _split(url)
    except ValueError:
        raise bad_url() from None
    if not url.lower().startswith(f"{parts.scheme}://") or parts.scheme not in (*_SERVERS, *_SENTINELS):
        raise bad_url()
    if not _QUERY.fullmatch(parts.query) or parts.fragment:
        raise bad_url("only ?db=<number> may follow the rest, and ? # in a password are written %3F %23")
    if parts.scheme in _SENTINELS:
        return _sentinel_url(parts)
    _check_server_url(parts)
    return None


def node_urls(url: str) -> list[str]:
    """A URL for each node that ``url`` names: several only of a cluster. Any URL that names sentinels stays whole."""
    parts = _split(url)
    credentials, at, hosts = parts.netloc.rpartition("@")
    if parts.scheme not in _NETWORK:
        return [url]
    return [parts._replace(netloc=f"{credentials}{at}{host}").geturl() for host in hosts.split(",")]


def _split(url: str) -> SplitResult:
    """Splits by hand what may name several hosts: urlsplit may reject an IPv6 address that is not the only one. CPython
    3.14 does so, and 3.13.5, which Debian 13 has; 3.13.0 does not."""
    found = _HOSTS_URL.fullmatch(url)
    if found is None:
        return urlsplit(url)
    scheme, *others = found.groups(default="")
    return SplitResult(scheme.lower(), *others)


def _check_server_url(parts: SplitResult) -> None:
    try:
        nodes = [urlsplit(each) for each in node_urls(parts.geturl())]
        hosts = [(each.hostname, each.port)[0] for each in nodes]  # a port that is none raises
    except ValueError:
        raise bad_url() from None
    if len(hosts) > 1 and not all(hosts):
        raise bad_url("the nodes of a cluster are written redis://user:password@host:6379,host:6379")
    if parts.scheme == "unix":
        if any(hosts) or parts.path in ("", "/"):
            raise bad_url("a socket is written unix:///path/to/socket?db=<number>")
    elif not _DATABASE.fullmatch(parts.path):
        raise bad_url("its path is the number of a database, and / in a password is written %2F")
    elif parts.path.strip("/") and parts.query:
        raise bad_url("it names a database twice")


def _sentinel_url(parts: SplitResult) -> SentinelUrl:
    credentials, at, hosts = parts.netloc.rpartition("@")
    user, colon, password = credentials.partition(":")
    found = [_HOST.fullmatch(host) for host in hosts.split(",")]
    path, query = _SENTINEL_PATH.fullmatch(parts.path), _QUERY.fullmatch(parts.query)
    if path is None or query is None:
        raise bad_url(_SENTINEL_SHOWN)
    if path[2] and query[1]:
        raise bad_url("it names a database twice")
    sentinels = tuple((each[1] or each[2], int(each[3] or SENTINEL_PORT)) for each in found if each)
    if len(sentinels) < len(found) or any(not 0 < port < 65536 for _, port in sentinels):
        raise bad_url(_SENTINEL_SHOWN)
    return SentinelUrl(
        sentinels,
        path[1],
        int(path[2] or query[1] or 0),
        unquote(user) if at and user else None,
        unquote(password) if colon else None,
        parts.scheme.startswith("rediss"),
    )


def url_at(url: str, address: Address) -> str:
    """The URL of another server with the same user, password and encryption."""
    parts = _split(url)
    credentials, at, _ = parts.netloc.rpartition("@")
    host, port = address
    shown = f"[{host}]" if ":" in host else host
    return parts._replace(netloc=f"{credentials}{at}{shown}:{port}").geturl()


def bad_url(reason: str = _SCHEMES_SHOWN) -> StartupError:
    return StartupError(f"TRACKER_REDIS__URL is not a URL of a store: {reason}")


def check_ca_file(path: str, url: str) -> None:
    """Raises StartupError for a file of certificates that is not there, or has no use."""
    if not url.lower().startswith("rediss"):
        raise StartupError("TRACKER_REDIS__TLS_CA_FILE is set, but only a rediss:// URL in TRACKER_REDIS__URL uses TLS")
    if not Path(path).is_file():
        raise StartupError(f"TRACKER_REDIS__TLS_CA_FILE is no file: {path}")
