"""The fields of projects: the checks of what admins set, and how they are stored."""

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, get_args

from tracker.errors import ClientError
from tracker.store.schema.lenient_numbers import whole
from tracker.store.work.records import (
    CONTROL,
    DOMAINS,
    MAX_ITEM_BYTES,
    PROJECT_FIELDS,
    Kind,
    Order,
    Project,
    Verify,
    are_domains,
    check_project_name,
    domains_text,
)


def project_row(project: Project, names: Sequence[str] = PROJECT_FIELDS) -> list[str]:
    """Fields and values as they are stored. Raises ClientError for an invalid value."""
    row: list[str] = []
    for name in names:
        value = getattr(project, name)
        if name == "domains":
            value = domains_text(value)
        row += (name, str(int(value)) if isinstance(value, bool | int) else value)
    return row


_CHOICES: dict[str, tuple[str, ...]] = {
    "kind": get_args(Kind),
    "order": get_args(Order),
    "verify": get_args(Verify),
}
_AT_LEAST_1 = ("start_budget", "budget", "lease_seconds", "target")
_MAX_NUMBER = 10**15


def check_project(project: Project) -> Project:
    """Raises ClientError for the first invalid field."""
    for each in fields(Project):
        value = getattr(project, each.name)
        if not _has_type(value, each.type):
            raise ClientError(f"{each.name} has a wrong type")
        if each.name in _CHOICES and value not in _CHOICES[each.name]:
            raise ClientError(f"{each.name} is one of {', '.join(_CHOICES[each.name])}")
        if isinstance(value, int) and not int(each.name in _AT_LEAST_1) <= value <= _MAX_NUMBER:
            raise ClientError(f"{each.name} is out of range")
        if isinstance(value, str) and (len(value) > MAX_ITEM_BYTES or CONTROL.search(value)):
            raise ClientError(f"{each.name} is too long, or has control characters")
    check_project_name(project.name)
    if not are_domains(project.domains) or len(set(project.domains)) < len(project.domains):
        raise ClientError(DOMAINS)
    if project.kind == "seeding" and not project.keep_done_days:
        raise ClientError("keep_done_days is at least 1 in a seeding project")
    if project.verify == "address" and project.passkeys:
        raise ClientError("claimants are known by passkeys or verified by their addresses, not both")
    if project.kind == "items" and project.verify != "none":
        raise ClientError("a project of kind items verifies nothing")
    return project


def _has_type(value: object, kind: Any) -> bool:
    """Whether a value can be a field of this type: a choice is text."""
    if kind in (bool, int):
        return type(value) is kind
    if kind == tuple[str, ...]:
        return isinstance(value, tuple) and all(isinstance(each, str) for each in value)
    return isinstance(value, str)


_BOOLS = frozenset(each.name for each in fields(Project) if each.type is bool)
_NUMBERS = frozenset(each.name for each in fields(Project) if each.type is int)


def project_of(name: str, row: Sequence[bytes | None]) -> Project | None:
    """The project of the stored values of PROJECT_FIELDS; None without a known kind. Other invalid values become the
    default."""
    stored = {
        field: value.decode("utf-8", "replace")
        for field, value in zip(PROJECT_FIELDS, row, strict=True)
        if value is not None
    }
    if stored.get("kind") not in _CHOICES["kind"]:
        return None
    values: dict[str, Any] = {}
    for each, text in stored.items():
        if each in _BOOLS:
            values[each] = text == "1"
        elif each in _NUMBERS:
            values[each] = whole(text.encode())
        elif each == "domains":
            values[each] = _names(text)
        elif each not in _CHOICES or text in _CHOICES[each]:
            values[each] = text
    return Project(name, **values)


def _names(text: str) -> tuple[str, ...]:
    try:
        names = json.loads(text or "[]")
    except ValueError:
        return ()
    return tuple(map(str, names)) if isinstance(names, list) else ()
