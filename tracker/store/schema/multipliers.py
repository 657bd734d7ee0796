"""Multipliers of credited traffic, as stored: a number, or a number, a space and the time when it ends (epoch s)."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

from tracker.errors import ClientError

_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?", re.ASCII)
_END = re.compile(r"[1-9][0-9]{0,12}", re.ASCII)
_SPAN = re.compile(r"([1-9][0-9]{0,5})([dhm])", re.ASCII)
_UNITS = {"d": 86_400, "h": 3600, "m": 60}
MULTIPLIERS = ("upload_multiplier", "download_multiplier")
"""Names of the fields, in the API, on the command line and in files. That of an end is `<name>_until`."""
MAX_MULTIPLIER = 1000
MAX_END = 10**13 - 1


@dataclass(frozen=True, slots=True)
class Multiplier:
    """Traffic counts ``factor`` times until ``until`` (epoch s; None: for ever). A factor of 1 means none."""

    factor: float = 1.0
    until: int | None = None

    def at(self, now: float) -> float:
        """The factor that applies at ``now`` (epoch s)."""
        return 1.0 if self.until is not None and self.until <= now else self.factor


NO_MULTIPLIER = Multiplier()


def multiplier_of(text: str) -> Multiplier:
    """Parses a stored multiplier; a factor of 1 for a text of another form, which a site may have written."""
    number, _, end = text.partition(" ")
    if not _NUMBER.fullmatch(number) or (end and not _END.fullmatch(end)):
        return Multiplier()
    return Multiplier(min(float(number), MAX_MULTIPLIER), int(end) if end else None)


def checked_multiplier(text: str) -> str:
    """A multiplier as stored. Raises ClientError if it is invalid.

    float() accepts more than Lua's tonumber(), so only plain decimals are valid.
    """
    number, _, end = text.partition(" ")
    if not _NUMBER.fullmatch(number) or float(number) > MAX_MULTIPLIER:
        raise ClientError("a multiplier is a number from 0 to 1000")
    if text != number and not _END.fullmatch(end):
        raise ClientError("the end of a multiplier is a time in epoch seconds")
    return text


def multiplier_text(factor: float, until: int | None = None) -> str:
    """A multiplier as stored, with at most six decimals and no exponent."""
    number = f"{factor:.6f}".rstrip("0").rstrip(".")
    return number if until is None else f"{number} {until}"


class MultiplierFields(TypedDict, total=False):
    """Both multipliers and their ends, as ``join_ends`` reads them."""

    upload_multiplier: float | str | None
    upload_multiplier_until: int | str | None
    download_multiplier: float | str | None
    download_multiplier_until: int | str | None


def join_ends(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, with each of MULTIPLIERS and its end as one text, as stored. None counts as absent.

    A multiplier is a number or its text; an end is epoch seconds, or a text that ``parse_time`` reads. Raises
    ClientError for an invalid end, and for one without its multiplier.
    """
    row = dict(fields)
    for name in MULTIPLIERS:
        factor, end = row.pop(name, None), row.pop(f"{name}_until", None)
        if factor is None and end is not None:
            raise ClientError(f"{name}_until needs {name}")
        if factor is not None:
            number = factor if isinstance(factor, str) else multiplier_text(factor)
            until = parse_time(end) if isinstance(end, str) else end
            row[name] = number if until is None else f"{number} {until}"
    return row


def split_ends(upload: Multiplier, download: Multiplier) -> dict[str, float | int | None]:
    """Both multipliers and their ends, each as a field: the reverse of ``join_ends``. An end of None: never."""
    row: dict[str, float | int | None] = {}
    for name, multiplier in zip(MULTIPLIERS, (upload, download), strict=True):
        row |= {name: multiplier.factor, f"{name}_until": multiplier.until}
    return row


def with_end_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names of fields, each of MULTIPLIERS followed by that of its end."""
    return tuple(
        each for name in names for each in ((name, f"{name}_until") if name in MULTIPLIERS else (name,))
    )


def parse_end(text: str, now: float) -> int | None:
    """An end time in epoch seconds: `3d`, `12h` or `30m` from ``now`` on, or a time as ``parse_time`` reads it. None
    for an empty text. Raises ClientError for anything else."""
    if found := _SPAN.fullmatch(text):
        return int(now) + int(found[1]) * _UNITS[found[2]]
    return parse_time(text) if text else None


def parse_time(text: str) -> int:
    """A time as people write it, in epoch seconds: a date, a date with a time (UTC), or epoch seconds. Raises
    ClientError for anything else."""
    if _END.fullmatch(text) and len(text) > len("20261231"):
        return int(text)
    try:
        then = datetime.fromisoformat(text)
        end = int((then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        end = 0
    if not 0 < end <= MAX_END:
        raise ClientError(
            "an end is a date such as 2026-12-31 or 2026-12-31T18:00 (UTC), or a span such as 3d or 12h"
        )
    return end
