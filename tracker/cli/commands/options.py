"""Options of the command line that derive from a record, rows of it, and columns of a table of it; the options and the
output of multipliers."""

import time
from collections.abc import Iterable, Mapping
from inspect import Parameter
from typing import Annotated, Any, cast

from typer import BadParameter, Option

from tracker.cli.terminal import Column, Moment, Row, Value
from tracker.errors import ClientError
from tracker.store.schema.multipliers import (
    MULTIPLIERS,
    RuleChange,
    multipliers_of,
    parse_end,
    refuse_ended,
    rule_change,
    with_end,
)
from tracker.store.schema.record import Field, fields_of, settable, shown

Given = Mapping[str, Any] | None
"""What the options of a record give to a command; None only in the declaration."""


class OptionsOf:
    """An option for each field of the records that programs set."""

    def __init__(self, *records: type, without: Iterable[str] = ()) -> None:
        found = {name: field for record in records for name, field in settable(record).items() if name not in without}
        self._fields = found
        self.parameters = [*map(_option, found.values())]

    def collect(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments, with those of the options that were given as ``given``."""
        given = {name: arguments[name] for name in self._fields if arguments[name] is not None}
        for name in [name for name in given if self._fields[name].kind == "names"]:
            given[name] = tuple(filter(None, map(str.strip, given[name].split(","))))
        return {**{name: value for name, value in arguments.items() if name not in self._fields}, "given": given}


def _option(field: Field) -> Parameter:
    option = f"--{field.name.replace('_', '-')}"
    if field.kind == "flag":
        option += f"/--{field.off or f'no-{option[2:]}'}"
    about = f"{field.about} One of {', '.join(field.choices)}." if field.choices else field.about
    about += " Separated by commas." if field.kind == "names" else ""
    hint: Any = {"flag": bool, "number": int}.get(field.kind, str)
    annotation = Annotated[hint | None, Option(option, help=about)]
    return Parameter(field.name, Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=annotation)


def row_of(found: Any, among: Iterable[str]) -> Row:
    """These fields of a record for the output of a command."""
    return {name: _cell(name, value, found) for name, value in shown(found, among).items()}


def _cell(name: str, value: Any, found: Any) -> Value:
    if name.startswith(MULTIPLIERS):
        return shown_multiplier(name, value)
    if isinstance(value, tuple):
        return " ".join(value)
    field = fields_of(found.__class__).get(name)
    return Moment(value) if field and field.unit == "epoch s" and value is not None else cast("Value", value)


def columns_of(record: type) -> list[Column]:
    """Those of the fields that tables have; numbers stand on the right."""
    return [
        Column(name, field.column, right=field.kind in ("number", "limit"))
        for name, field in fields_of(record).items()
        if field.column
    ]


Until = Annotated[
    str | None,
    Option(
        metavar="WHEN",
        help="When the given multipliers end: 3d, 12h, 30m, or a date such as 2026-12-31T18:00 (UTC). Default: never.",
    ),
]
Rule = Annotated[str | None, Option("--rule", metavar="NAME", help="Set only the rule of this name; the others stay.")]
RemoveRule = Annotated[str | None, Option("--remove-rule", metavar="NAME", help="Remove the rule of this name.")]


class _Shown(str):
    """Several rules: as stored in JSON, with readable ends in text."""

    __slots__ = ()

    def __str__(self) -> str:
        rules = multipliers_of(self[:])
        return ", ".join(
            " ".join([f"{rule.factor:g}", *([f"until {Moment(rule.until)}"] if rule.until else []), rule.name]).rstrip()
            for rule in rules
        )


def given_multipliers(given: Mapping[str, Any], until: str | None) -> dict[str, Any]:
    """The fields that are given, those of MULTIPLIERS as stored, each with the end. Raises ClientError for an invalid
    end, and for one in the past."""
    multipliers = {name: given[name] for name in MULTIPLIERS if name in given}
    if until and not multipliers:
        raise BadParameter("--until needs a multiplier")
    end = parse_end(until or "", time.time())
    texts = {name: with_end(text, end) for name, text in multipliers.items()}
    refuse_ended(texts.values(), time.time())
    return {**given, **texts}


def given_rules(
    given: Mapping[str, Any], until: str | None, rule: str | None, remove_rule: str | None
) -> tuple[dict[str, Any], list[RuleChange]]:
    """(the fields to set, as of ``given_multipliers``; rules to change). Raises ClientError as that does."""
    now = time.time()
    changes = [] if remove_rule is None else [RuleChange(int(now), remove_rule)]
    if rule is None:
        return given_multipliers(given, until), changes
    others = {name: value for name, value in given.items() if name not in MULTIPLIERS}
    upload, download = map(given.get, MULTIPLIERS)
    return others, [*changes, rule_change(now, rule, upload, download, parse_end(until or "", now))]


def check_removed(changed: bool) -> None:
    """Raises ClientError."""
    if not changed:
        raise ClientError("there is no rule of this name")


def shown_multiplier(name: str, value: Any) -> Value:
    """A multiplier or its end, as ``split_ends`` makes them, for the output of a command."""
    if name in MULTIPLIERS:
        return _Shown(value) if isinstance(value, str) else f"{value:g}"
    return Moment(value) if isinstance(value, int) else None
