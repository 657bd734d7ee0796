"""The settings as text: name, current value, default, description; secrets masked."""

import ast
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from tracker.settings.model import FIELDS, RELOADED, Settings, variable
from tracker.wire.tracker_url import parse_tracker_url

MASK = "***"

_SECRET_QUERY = re.compile(r"([?&][^=&]*(?:password|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)
_URLS = frozenset({"url", "upstreams"})
"""Fields of secret URLs: only their secret parts are masked. Every other secret is masked whole."""
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
_HEAD = """# Settings

Each setting can be given in three places, the first one wins: an environment variable, the same line in a file `.env`
in the working directory, or a TOML file named by `--config`. In TOML, `TRACKER_HTTP__LISTEN` is `listen` in the table
`[http]`:

```toml
[http]
listen = ["0.0.0.0:6969", "[::]:6969"]
```

Write a list in a variable with commas (`0.0.0.0:80,[::]:80`) or as JSON. An empty variable counts as unset. The tracker
does not start with an invalid value, or with an unknown name that begins with `TRACKER_`. Variables that Kubernetes and
Docker add for a service named `tracker` are ignored.

Settings marked `SIGHUP` change without a restart when the running tracker gets that signal
([operations.md](operations.md#change-settings-without-a-restart)). `tracker settings` prints the current values, with
secrets masked.

This page is generated from `tracker/settings/` by `make docs`.
"""


GROUPS: Mapping[str, tuple[str, str]] = {
    "First things to set": (
        "Where the tracker listens, what it serves, and where it keeps its data.",
        "http.listen udp.listen announce.urls admin.url redis.url data.directory users.private torrents.mode "
        "torrents.keep_files announce.private_addresses http.workers",
    ),
    "Proxies and addresses": (
        "For a tracker behind a proxy or a load balancer.",
        "http.trusted_proxies http.proxy_protocol http.ip_parameter_from_private http.stop_delay_seconds",
    ),
    "Announces and scrapes": (
        "Replies to peers, and when timed-out peers are removed.",
        "announce reaper torrents.full_scrape torrents.max_scrape",
    ),
    "Open mode: how many torrents": (
        "Bounds for torrents that register themselves at their first announce.",
        "torrents",
    ),
    "Users and clients: who may announce": (
        "Passkeys, totals per user, hit-and-runs, and the lists of allowed and denied clients. `tracker user` manages "
        "the users.",
        "users clients.allow_list clients.deny_list",
    ),
    "Limits per address": (
        "An address (IPv6: a /64) beyond a limit gets longer intervals and fewer peers. Beyond twice the limit it is "
        "refused (most stops still pass). Beyond four times the limit its connections are closed without an answer.",
        "limits",
    ),
    "Limits per connection": ("Bounds for clients of the public ports.", "http udp"),
    "Store": (
        "An existing Redis or Valkey server (`TRACKER_REDIS__URL`), or the private server and its memory.",
        "redis data",
    ),
    "Statistics: locations, unique users, client programs": ("Statistics about peers.", "geoip uniques clients"),
    "Scores and jobs": ("Background work.", "scoring jobs"),
    "Connections to peers": ("Checks whether peers have what they announce.", "probe"),
    "Sending statistics": ("To StatHat or to a StatsD server.", "stathat statsd"),
    "Telling a site": ("The change feed and its webhooks ([changes.md](changes.md)).", "changes"),
    "A site's own database": (
        "Its tables, which the tracker keeps ([sync.md](sync.md)).",
        "site.database site.mapping site.sync_in_tracker site.sync_seconds site.full_pass_hour",
    ),
    "A site's own code": ("Calls as UNIT3D and Gazelle make them ([calls.md](calls.md)).", "site"),
    "Work distribution": (
        "The port where claimants ask for torrents to seed, or for other items ([work.md](work.md)).",
        "work limits.work_requests_minute",
    ),
    "WebTorrent": (
        "Browsers announce over WebSockets, on the HTTP port ([webtorrent.md](webtorrent.md)).",
        "webtorrent",
    ),
    "DHT node": ("A node of the BitTorrent DHT, for public torrents ([dht.md](dht.md)).", "dht"),
    "Admin port": (
        "Dashboard, API and metrics. Everything but the probes and the sign-in page requires a token.",
        "admin",
    ),
    "Logging": ("The log goes to standard error.", "log http.access_log"),
}
"""Settings for one task by title: a sentence, and members, separated by spaces: settings (``http.listen``) or sections
(``http``: what no group names)."""


@dataclass(frozen=True, slots=True)
class Described:
    """One setting. ``value`` and ``default`` are written like the value of a variable, empty when unset."""

    name: str
    value: str
    default: str
    sentence: str
    allowed: str
    reloaded: bool = False
    """Whether SIGHUP changes it in a running tracker."""


def describe(settings: Settings) -> list[Described]:
    """Every setting in the order of the sections, with its current value."""
    return [
        Described(name, value, _text(field.default), sentences()[key], _allowed(field), key in RELOADED)
        for (name, value), (key, field) in zip(values(settings).items(), FIELDS.items(), strict=True)
    ]


def values(settings: Settings) -> dict[str, str]:
    """Every setting as the value of a variable, by its name."""
    return {
        variable(section, name): _text(getattr(getattr(settings, section), name), is_url=name in _URLS)
        for section, name in FIELDS
    }


@cache
def sentences() -> dict[tuple[str, str], str]:
    """What each setting does: the text after its field in the source, which only this reads."""
    found: dict[tuple[str, str], str] = {}
    section_of = {type(part.default).__name__: section for section, part in Settings.model_fields.items()}
    for path in Path(__file__).parent.glob("*.py"):
        for part in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(part, ast.ClassDef) and part.name in section_of:
                for pair in pairwise(part.body):
                    match pair:
                        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                            found[section_of[part.name], name] = " ".join(text.split())
    return found


def mask_url(url: str) -> str:
    """The URL without its password; user, host and database stay. Invalid URLs are masked too: everything up to the
    last ``@`` may be part of a password."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return MASK
    credentials, at, address = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    shown = f"{user}:{MASK}@" if colon else at and f"{user}@"
    masked = _SECRET_QUERY.sub(rf"\g<1>{MASK}", address)
    return f"{scheme}://{shown}{masked}"


def _text(value: Any, *, is_url: bool = False) -> str:
    if value is None:
        return ""
    if isinstance(value, SecretStr):
        if not is_url:
            return MASK
        try:  # the passkey of a tracker is part of the path; the password of a store is not
            return parse_tracker_url(value.get_secret_value()).masked
        except ValueError:
            return mask_url(value.get_secret_value())
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(_text(item, is_url=is_url) for item in value)
    return str(value)


def _allowed(field: FieldInfo) -> str:
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    if field.annotation is bool:
        return "`true`, `false`"
    return ", ".join(
        f"{sign} {getattr(bound, name)}"
        for bound in field.metadata
        for name, sign in _BOUNDS.items()
        if hasattr(bound, name)
    )


def grouped() -> dict[str, list[tuple[str, str]]]:
    """By title of a group: its settings, each setting in one group."""
    named = {member for _, members in GROUPS.values() for member in members.split()}
    return {
        title: [
            (section, name)
            for member in members.split()
            for section, name in FIELDS
            if member == f"{section}.{name}" or (member == section and f"{section}.{name}" not in named)
        ]
        for title, (_, members) in GROUPS.items()
    }


def as_markdown() -> str:
    """docs/settings.md."""
    rows, page = {row.name: row for row in describe(Settings())}, _HEAD
    for title, fields in grouped().items():
        page += f"\n## {title}\n\n{textwrap.fill(GROUPS[title][0], 120)}\n\n"
        page += "| variable | default | allowed | reloaded | description |\n|---|---|---|---|---|\n"
        for row in (rows[variable(*field)] for field in fields):
            default, reloaded = f"`{row.default}`" if row.default else "unset", "SIGHUP" if row.reloaded else ""
            page += f"| `{row.name}` | {default} | {row.allowed} | {reloaded} | {row.sentence} |\n"
    return page
