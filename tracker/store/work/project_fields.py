"""The fields of projects: the checks of what admins set, and how they are stored."""

import json
from collections.abc import Sequence
from typing import Any

from tracker.errors import ClientError
from tracker.store.schema.record import Field, fields_of
from tracker.store.work.records import (
    CONTROL,
    DOMAINS,
    MAX_DOMAINS,
    PROJECT_FIELDS,
    Project,
    are_domains,
    are_targets,
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
        elif isinstance(value, tuple):
            value = json.dumps(value) if value else ""
        row += (name, str(int(value)) if isinstance(value, bool | int) else value)
    return row


def check_project(project: Project) -> Project:
    """Raises ClientError for the first invalid field."""
    for name, each in fields_of(Project).items():
        value = getattr(project, name)
        if not _has_type(value, each):
            raise ClientError(f"{name} has a wrong type")
        if each.choices and value not in each.choices:
            raise ClientError(f"{name} is one of {', '.join(each.choices)}")
        if each.kind == "number" and not each.lowest <= value <= each.highest:
            raise ClientError(f"{name} is out of range")
        if each.kind == "text" and (len(value) > each.max_length or CONTROL.search(value)):
            raise ClientError(f"{name} is too long, or has control characters")
    if not isinstance(project.name, str):
        raise ClientError("name has a wrong type")
    check_project_name(project.name)
    if not are_domains(project.domains) or len(set(project.domains)) < len(project.domains):
        raise ClientError(DOMAINS)
    if len(project.upload_targets) > MAX_DOMAINS or not are_targets(project.upload_targets):
        raise ClientError("upload_targets are at most 20 URLs of rsync, http or https that end in /")
    if project.kind == "seeding" and not project.keep_done_days:
        raise ClientError("keep_done_days is at least 1 in a seeding project")
    if project.verify == "address" and project.passkeys:
        raise ClientError("claimants are known by passkeys or verified by their addresses, not both")
    if project.kind == "items" and project.verify != "none":
        raise ClientError("a project of kind items verifies nothing")
    return project


def _has_type(value: object, field: Field) -> bool:
    """Whether a value can be one of the field: a choice is text."""
    if field.kind in ("flag", "number"):
        return type(value) is field.hint
    if field.kind == "names":
        return isinstance(value, tuple) and all(isinstance(each, str) for each in value)
    return isinstance(value, str)


def project_of(name: str, row: Sequence[bytes | None]) -> Project | None:
    """The project of the stored values of PROJECT_FIELDS; None without a known kind. Other invalid values become the
    default."""
    values: dict[str, Any] = {}
    for (field, each), value in zip(fields_of(Project).items(), row, strict=True):
        found = _names(value) if each.kind == "names" else each.read(value)
        if value is not None and not (each.choices and found not in each.choices):
            values[field] = found
    if "kind" not in values:
        return None
    return Project(name, **values)


def _names(value: bytes | None) -> tuple[str, ...]:
    try:
        names = json.loads(value or b"[]")
    except ValueError:
        return ()
    return tuple(map(str, names)) if isinstance(names, list) else ()
