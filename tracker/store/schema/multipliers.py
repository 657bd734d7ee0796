"""Multipliers of credited traffic, as stored: a number, or a number, a space and the time when it ends (epoch s)."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from tracker.errors import ClientError

_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?", re.ASCII)
_END = re.compile(r"[1-9][0-9]{0,12}", re.ASCII)
_SPAN = re.compile(r"([1-9][0-9]{0,5})([dhm])", re.ASCII)
_UNITS = {"d": 86_400, "h": 3600, "m": 60}
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


def multiplier_field(name: str, factor: float | None, until: int | None) -> str | None:
    """A multiplier as stored; None for none. Raises ClientError for an end without its multiplier."""
    if factor is not None:
        return multiplier_text(factor, until)
    if until is not None:
        raise ClientError(f"{name}_until needs {name}")
    return None


def parse_end(text: str, now: float) -> int | None:
    """An end time as people write it, in epoch seconds: `3d`, `12h` or `30m` from ``now`` on, a date, or a date with a
    time (UTC), or epoch seconds. None for an empty text. Raises ClientError for anything else."""
    if not text:
        return None
    if found := _SPAN.fullmatch(text):
        return int(now) + int(found[1]) * _UNITS[found[2]]
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
