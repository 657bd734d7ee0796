"""Multipliers of credited traffic: rules, each with an end and a name, as stored: `2 1790000000 donor, 1.5 group`."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypedDict

from tracker.errors import ClientError

_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?", re.ASCII)
_END = re.compile(r"[1-9][0-9]{0,12}", re.ASCII)
_STORED = re.compile(r" *([0-9.]+)(?= |\Z) ?([0-9]{0,12})(?<! )(?= |\Z) ?([A-Za-z][A-Za-z0-9_-]*|) *", re.ASCII)
_SPAN = re.compile(r"([1-9][0-9]{0,5})([dhm])", re.ASCII)
_UNITS = {"d": 86_400, "h": 3600, "m": 60}
_DAYS = {"today": 0, "yesterday": 86_400}
MULTIPLIERS = ("upload_multiplier", "download_multiplier")
"""Names of the fields, in the API, on the command line and in files. That of an end is `<name>_until`."""
MAX_MULTIPLIER = 1000
MAX_END = 10**13 - 1
MAX_RULE_END = 10**12 - 1
RULE_NAME = "[A-Za-z][A-Za-z0-9_-]{0,63}"
"""A regular expression for the name of a rule."""
RULE = rf"[0-9]{{1,4}}(\.[0-9]{{1,6}})?( [1-9][0-9]{{0,11}})?( {RULE_NAME})?"
"""A regular expression for a rule."""
MAX_RULES, MAX_RULES_BYTES = 8, 255
"""Limits of one field. lua/lib/rules.lua has the same."""
_TOO_MANY = f"at most {MAX_RULES} rules in {MAX_RULES_BYTES} characters; remove some first"
_RULE = re.compile(RULE, re.ASCII)
_NUMBERS_OF_LUA = ("inf", "infinity", "nan")
"""No names of rules: they were meant as an end."""


@dataclass(frozen=True, slots=True)
class Multiplier:
    """A rule: traffic counts ``factor`` times until ``until`` (epoch s; None: for ever). A factor of 1 means none."""

    factor: float = 1.0
    until: int | None = None
    name: str = ""

    def is_active(self, now: float) -> bool:
        return self.until is None or self.until > now

    def __str__(self) -> str:
        """As stored."""
        return with_end(self.factor, self.until, self.name)


Rules = tuple[Multiplier, ...]
"""The rules of one field."""
NO_MULTIPLIER: Rules = ()


def multipliers_of(text: str) -> Rules:
    """Parses stored rules. Leaves out text of another form, which a site may have written, and rules beyond MAX_RULES;
    an announce does the same. Also a 1 without a name, which says that there is none."""
    if len(text.encode()) > MAX_RULES_BYTES:
        return ()
    parts = [part for part in text.split(",") if part][:MAX_RULES]
    return tuple(rule for part in parts if (rule := _stored_rule(part)) and (rule.name or rule.factor != 1))


def _stored_rule(text: str) -> Multiplier | None:
    found = _STORED.fullmatch(text)
    try:
        factor = float(found[1]) if found else -1
    except ValueError:
        return None
    if not found or factor > MAX_MULTIPLIER or found[3].lower() in _NUMBERS_OF_LUA:
        return None
    return Multiplier(factor, int(found[2]) if found[2] else None, found[3])


def checked_multipliers(text: str) -> str:
    """Rules as stored. Raises ClientError if one is invalid, and for too many. float() accepts more than Lua's
    tonumber(), so only plain decimals are valid."""
    for rule in text.split(", "):
        value, *rest = rule.split(" ")
        if not _NUMBER.fullmatch(value) or float(value) > MAX_MULTIPLIER:
            raise ClientError("a multiplier is a number from 0 to 1000")
        if not _RULE.fullmatch(rule) or (rest[-1:] and rest[-1].lower() in _NUMBERS_OF_LUA):
            raise ClientError(
                "after a multiplier come its end (epoch seconds) and its name, which begins with a letter"
            )
    names = [rule.name for rule in multipliers_of(text) if rule.name]
    if len(set(names)) < len(names):
        raise ClientError("two rules have the same name")
    if text.count(",") >= MAX_RULES or len(text) > MAX_RULES_BYTES:
        raise ClientError(_TOO_MANY)
    return text


def multiplier_text(factor: float) -> str:
    """A multiplier as stored, with at most six decimals and no exponent."""
    return f"{factor:.6f}".rstrip("0").rstrip(".")


def rules_text(rules: Iterable[Multiplier]) -> str:
    """Rules as stored."""
    return ", ".join(map(str, rules))


def refuse_ended(texts: Iterable[str], now: float) -> None:
    """Raises ClientError if one of the rules in these texts has ended."""
    if not all(rule.is_active(now) for text in texts for rule in multipliers_of(text)):
        raise ClientError("the end of a multiplier must be in the future")


def factors(upload: Rules, download: Rules, now: float) -> tuple[float, float]:
    """The multipliers that apply: the highest of upload, the lowest of download. 1 means none."""
    ups, downs = (
        [rule.factor for rule in rules if rule.is_active(now) and rule.factor != 1] for rules in (upload, download)
    )
    return max(ups, default=1.0), min(downs, default=1.0)


def is_neutral(upload: Rules, download: Rules, now: float) -> bool:
    """Whether nothing counts on a torrent with these rules."""
    return all(any(not rule.factor and rule.is_active(now) for rule in rules) for rules in (upload, download))


class RuleChange(NamedTuple):
    """The rule of one name, as stored: an empty text for none. An empty name is that of the rules without one. The
    first arguments of set_rule.lua; a passkey and an info hash follow, both empty for all users."""

    now: int
    name: str
    upload: str = ""
    download: str = ""


def rule_change(
    now: float,
    name: str,
    upload: float | str | None = None,
    download: float | str | None = None,
    until: int | None = None,
) -> RuleChange:
    """Sets the rule ``name``, which may be empty. Raises ClientError for an invalid name, multiplier or end, and if
    there is no multiplier."""
    if upload is None and download is None:
        raise ClientError("a rule needs a multiplier of upload or download")
    if (name and not re.fullmatch(RULE_NAME, name)) or name.lower() in _NUMBERS_OF_LUA:
        raise ClientError("the name of a rule is 1 to 64 letters, digits, _ or -, and begins with a letter")
    texts = [
        "" if factor is None else checked_multipliers(with_end(factor, until, name)) for factor in (upload, download)
    ]
    refuse_ended(texts, now)
    return RuleChange(int(now), name, *texts)


def has_changed(answer: Sequence[Any]) -> bool:
    """Reads an answer of set_rule.lua: False if there was no rule to remove. Raises ClientError for too many."""
    if answer[0] == -1:
        raise ClientError(_TOO_MANY)
    return bool(answer[0])


class MultiplierFields(TypedDict, total=False):
    """Both multipliers and their ends, as ``join_ends`` reads them."""

    upload_multiplier: float | str | None
    upload_multiplier_until: int | str | None
    download_multiplier: float | str | None
    download_multiplier_until: int | str | None


def join_ends(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields, with each of MULTIPLIERS and its end as one text, as stored. None counts as absent. A multiplier is a
    number or its text; an end is epoch seconds, or a text that ``parse_time`` reads. Raises ClientError for an invalid
    end, and for one without its multiplier."""
    row = dict(fields)
    for name in MULTIPLIERS:
        factor, end = row.pop(name, None), row.pop(f"{name}_until", None)
        if factor is None and end is not None:
            raise ClientError(f"{name}_until needs {name}")
        if factor is not None:
            row[name] = with_end(factor, parse_time(end) if isinstance(end, str) else end)
    return row


def with_end(factor: float | str, until: int | None, name: str = "") -> str:
    """A multiplier with its end and its name. Raises ClientError if the text has some of its own."""
    text = factor if isinstance(factor, str) else multiplier_text(factor)
    if " " in text and (name or until is not None):
        raise ClientError("the end of a multiplier, or its name, is given apart only for one number")
    return " ".join(part for part in (text, "" if until is None else str(until), name) if part)


def split_ends(upload: Rules, download: Rules) -> dict[str, float | int | str | None]:
    """Both multipliers and their ends, each as a field: the reverse of ``join_ends``."""
    upload_name, download_name = MULTIPLIERS
    return split_end(upload_name, upload) | split_end(download_name, download)


def split_end(name: str, rules: Rules) -> dict[str, float | int | str | None]:
    """A multiplier and its end, each as a field. An end of None: never. One rule without a name is a number. Others are
    the text that is stored."""
    first, *others = rules or (Multiplier(),)
    is_plain = not others and not first.name
    return {name: first.factor if is_plain else rules_text(rules), f"{name}_until": first.until if is_plain else None}


def with_end_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names of fields, each of MULTIPLIERS followed by that of its end."""
    return tuple(each for name in names for each in ((name, f"{name}_until") if name in MULTIPLIERS else (name,)))


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
        raise ClientError("a time is a date such as 2026-12-31 or 2026-12-31T18:00 (UTC), or a span such as 3d or 12h")
    return end


def parse_past(text: str, now: float) -> int | None:
    """A time in the past in epoch seconds: `3d`, `12h` or `30m` ago, `today` or `yesterday` (UTC), or a time as
    ``parse_time`` reads it. None for an empty text. Raises ClientError for anything else."""
    if found := _SPAN.fullmatch(text):
        return int(now) - int(found[1]) * _UNITS[found[2]]
    if text in _DAYS:
        return int(now) // _UNITS["d"] * _UNITS["d"] - _DAYS[text]
    return parse_time(text) if text else None
