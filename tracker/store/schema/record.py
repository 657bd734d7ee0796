"""Records: what the store keeps of a user, a project, a torrent or a job, each field declared once.

A record is a dataclass whose annotations carry a ``Field``. The models and the document of the API, the options and
columns of the command line, files, the audit log and the stored values derive from it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tracker.errors import ClientError
from tracker.names import clean_text
from tracker.store.schema.lenient_numbers import whole
from tracker.store.schema.multipliers import Rules, checked_multipliers, multipliers_of, rules_text, split_end

Kind = Literal["flag", "number", "limit", "rules", "text", "choice", "names", "other"]
MAX_EXACT = 2**53 - 1
"""The largest number that is exact in JSON and in the store's scripts."""
_NUMBER = re.compile(r"[0-9]{1,16}|-[1-9][0-9]{0,15}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record, besides its type and its default."""

    about: str = ""
    part: str = ""
    """Where it is stored, for a field that programs set; empty: they do not."""
    unit: str = ""
    """``epoch s``: a time."""
    lowest: int = 0
    highest: int = MAX_EXACT
    max_length: int = 255
    """Of a text; of ``names``: how many there may be."""
    off: str = ""
    """The option of the command line that sets a flag to false; empty: ``no-<name>``."""
    attribute: str = ""
    """The attribute of the record that has what programs see; empty: that of its name."""
    column: int = 0
    """Width of its column in tables; 0: it has none."""
    name: str = ""
    kind: Kind = "other"
    hint: Any = None
    """The type."""
    default: Any = None
    choices: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.name.replace("_", " ").capitalize()

    def stored(self, value: object) -> str:
        """The value as stored; empty: none. Raises ClientError if it is invalid."""
        text = str(int(value)) if isinstance(value, bool) else str(value)
        if self.kind == "rules":
            return checked_multipliers(text)
        if self.kind == "flag":
            if text not in ("0", "1"):
                raise ClientError(f"{self.name} is 0 or 1")
            return text if text == "1" or self.default else ""
        if self.kind == "limit" and (not text or (text == "-1" and self.lowest >= 0)):
            return ""
        if self.kind in ("number", "limit"):
            if not self._is_number(text):
                lowest = f" from {self.lowest}" if self.lowest else ""
                or_none = ", or -1" if self.kind == "limit" and self.lowest >= 0 else ""
                raise ClientError(f"{self.name} is a whole number{lowest} up to {self.highest}{or_none}")
            return text
        return clean_text(text).strip()[: self.max_length]

    def read(self, value: bytes | None) -> Any:
        """The value of what is stored. Of a value that a site has overwritten, the default or 0."""
        if self.kind == "number":
            return whole(value)
        text = (value or b"").decode("utf-8", "replace")
        if self.kind == "flag":
            return text != "0" if self.default else text == "1"
        if self.kind == "limit":
            return int(text) if self._is_number(text) else None
        return multipliers_of(text) if self.kind == "rules" else clean_text(text)

    def _is_number(self, text: str) -> bool:
        return bool(_NUMBER.fullmatch(text)) and self.lowest <= int(text) <= self.highest


@cache
def fields_of(record: Any, *, plain: bool = False) -> Mapping[str, Field]:
    """The fields of a record that carry a ``Field``, by name; with the ``plain`` ones all fields of a dataclass."""
    hints = get_type_hints(record, include_extras=True)
    found: dict[str, Field] = {}
    for each in fields(record):
        hint, about = hints[each.name], _PLAIN
        if get_origin(hint) is Annotated:
            hint, about = get_args(hint)
        elif not plain:
            continue
        is_choice = get_origin(hint) is Literal
        kind: Kind = "choice" if is_choice else _KINDS.get(hint, "other")
        choices = get_args(hint) if is_choice else ()
        found[each.name] = replace(about, name=each.name, kind=kind, hint=hint, default=each.default, choices=choices)
    return found


_KINDS: Mapping[Any, Kind] = {
    bool: "flag",
    int: "number",
    int | None: "limit",
    str: "text",
    Rules: "rules",
    tuple[str, ...]: "names",
}


def settable(record: type) -> Mapping[str, Field]:
    """The fields that programs set."""
    return {name: each for name, each in fields_of(record).items() if each.part}


def shown(found: Any, among: Iterable[str] | None = None) -> dict[str, Any]:
    """The values of these fields, or of all, as the API and files have them: a multiplier and its end are two."""
    row: dict[str, Any] = {}
    known = fields_of(found.__class__)
    for name in known if among is None else among:
        field = known.get(name, _PLAIN)
        value = getattr(found, field.attribute or name)
        if field.unit == "epoch s" and value is not None:
            value = int(value)
        row |= split_end(name, value) if field.kind == "rules" else {name: value}
    return row


def audited(found: Any, among: Iterable[str]) -> dict[str, Any]:
    """The values of these fields as the audit log compares them."""
    known = fields_of(found.__class__)
    row = {name: getattr(found, known.get(name, _PLAIN).attribute or name) for name in among}
    for name, value in row.items():
        if isinstance(value, tuple):
            row[name] = (rules_text(value) or "1") if known[name].kind == "rules" else " ".join(value)
    return row


_PLAIN = Field()
