"""Options of the command line that derive from a record, rows of it, and columns of a table of it."""

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, cast

from typer import Option

from tracker.cli.commands import Command
from tracker.cli.commands.multipliers import shown_multiplier
from tracker.cli.terminal import Column, Moment, Row, Value
from tracker.store.schema.multipliers import MULTIPLIERS
from tracker.store.schema.record import Field, fields_of, settable, shown

Given = Mapping[str, Any] | None
"""What the options of a record give to a command; None only in the declaration."""


def options_of(*records: type, without: Iterable[str] = ()) -> Callable[[Command], Command]:
    """The command has an option for each field of the records that programs set. Its parameter ``given`` gets those
    that were given, by name."""
    fields = {name: field for record in records for name, field in settable(record).items() if name not in without}

    def decorate(command: Command) -> Command:
        parameters: list[Parameter] = []
        for each in signature(command).parameters.values():
            parameters += map(_option, fields.values()) if each.name == "given" else [each]

        def collect(arguments: Mapping[str, Any]) -> dict[str, Any]:
            given = {name: arguments[name] for name in fields if arguments[name] is not None}
            for name in [name for name in given if fields[name].kind == "names"]:
                given[name] = tuple(filter(None, map(str.strip, given[name].split(","))))
            return {**{name: value for name, value in arguments.items() if name not in fields}, "given": given}

        @wraps(command)
        def run(**arguments: Any) -> Any:
            return command(**collect(arguments))

        run.collect = collect  # type: ignore[attr-defined]  # for ``checks``
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


_TYPES: dict[str, type] = {"flag": bool, "number": int}


def _option(field: Field) -> Parameter:
    option = f"--{field.name.replace('_', '-')}"
    if field.kind == "flag":
        option += f"/--{field.off or f'no-{option[2:]}'}"
    about = f"{field.about} One of {', '.join(field.choices)}." if field.choices else field.about
    about += " Separated by commas." if field.kind == "names" else ""
    hint: Any = _TYPES.get(field.kind, str)
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
