"""The settings as people read them: name, value in force, default and sentence; secrets masked."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from tracker.reloading import is_reloaded
from tracker.settings import FIELDS, Settings, variable
from tracker.tracker_url import parse_tracker_url

MASK = "***"

_SECRET_QUERY = re.compile(r"([?&][^=&]*(?:password|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)
_URLS = frozenset({"url", "upstreams"})
"""Secrets that are URLs, and of which much may be shown; of any other nothing is, whatever it looks like."""
_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
_HEAD = """# Settings

Every setting can be given, first wins, as an environment variable, as the same line in a file `.env` in the working directory, or in a
TOML file named by `--config`, where `TRACKER_HTTP__LISTEN` is `listen` in the table `[http]`:

```toml
[http]
listen = ["0.0.0.0:6969", "[::]:6969"]
```

A list in a variable is written with commas (`0.0.0.0:80,[::]:80`) or as JSON. An empty variable counts as unset. A name that begins with
`TRACKER_` and is no setting stops the start, and so does a value that is not allowed; what Kubernetes and Docker add by themselves for a
service named `tracker` is left alone. Settings marked `SIGHUP` change without a restart, when the running tracker gets that signal
([operations.md](operations.md#change-settings-without-a-restart)). `tracker settings` prints what is in force, with passwords masked.

This page is made from `tracker/settings.py` by `make docs`.
"""


@dataclass(frozen=True, slots=True)
class Described:
    """One setting; ``value`` and ``default`` are written as a variable would hold them, empty when unset."""

    name: str
    value: str
    default: str
    sentence: str
    allowed: str
    reloaded: bool = False
    """Whether a running tracker takes it over on SIGHUP."""


def describe(settings: Settings) -> list[Described]:
    """Every setting in the order of the sections, with its value in force."""
    return list(_rows(settings))


def _rows(settings: Settings) -> Iterator[Described]:
    for (section, name), field in FIELDS.items():
        yield Described(
            name=variable(section, name),
            value=_text(getattr(getattr(settings, section), name), is_url=name in _URLS),
            default=_text(field.default),
            sentence=field.description or "",
            allowed=_allowed(field),
            reloaded=is_reloaded(section, name),
        )


def mask_url(url: str) -> str:
    """A URL that may be shown: user, host and database stay, the password goes.

    Written for URLs that are wrong as well: up to the last ``@`` anything may be part of a password.
    """
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
        return _masked(value.get_secret_value()) if is_url else MASK
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(_text(item, is_url=is_url) for item in value)
    return str(value)


def _masked(secret: str) -> str:
    """A tracker's passkey stands in its path; a store's password does not."""
    try:
        return parse_tracker_url(secret).masked
    except ValueError:
        return mask_url(secret)


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


def as_markdown() -> str:
    """docs/settings.md."""
    return _HEAD + "".join(_section(name) for name in Settings.model_fields)


def _section(section: str) -> str:
    part = Settings.model_fields[section].default
    rows = [row for row in describe(Settings()) if row.name.startswith(variable(section, ""))]
    lines = "\n".join(
        f"| `{row.name}` | {f'`{row.default}`' if row.default else 'unset'} | {row.allowed} | {'SIGHUP' if row.reloaded else ''} "
        f"| {row.sentence} |"
        for row in rows
    )
    return f"""
## {section}

{" ".join((part.__doc__ or "").split())}

| variable | default | allowed | reloaded | what it does |
|---|---|---|---|---|
{lines}
"""
