"""The projects of work distribution: what they are called, and their settings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracker.errors import ClientError, Conflict
from tracker.store.client.pipe import Argument
from tracker.store.schema.record import Field, fields_of
from tracker.store.sharding.shards import Part
from tracker.store.work import periods
from tracker.store.work.records import (
    CONTROL,
    DOMAINS,
    MAX_DOMAINS,
    PROJECT_FIELDS,
    Project,
    UnknownProject,
    are_domains,
    are_targets,
    check_project_name,
    domains_text,
    is_project_name,
    known,
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


KEPT_LOG, KEPT_ENTRIES = 100_000, 100_000
"""Entries of a log, and of each other list, that are kept."""
MAX_TRIMMED = 1000
_DELETED_PER_CALL = 200


class Projects(Part):
    """The projects under one key prefix. ``clock`` returns epoch seconds."""

    async def create(self, project: Project) -> Project:
        """Raises Conflict if there is one of this name, and ClientError for an invalid field."""
        row = project_row(check_project(project))
        if not await self._scripts.work_save([project.name, "create", *row]):
            raise Conflict("a project of this name exists")
        return project

    async def edit(self, name: str, changes: Mapping[str, Any]) -> Project:
        """Changes fields by their names; the kind stays, and so does ``verify`` where it is ``address``. Valid from the
        next call on. Raises UnknownProject, and ClientError for an unknown or invalid field."""
        if not changes.keys() <= set(PROJECT_FIELDS) - {"kind"}:
            raise ClientError("a project has no such field, or it cannot be changed")
        before = await self.get(name)
        project = check_project(replace(before, **changes))
        if (before.verify == "address") != (project.verify == "address"):
            raise ClientError("verify address is chosen when a project is created, and stays")  # other claimants
        if not await self._scripts.work_save([name, "edit", *project_row(project, list(changes))]):
            raise UnknownProject
        return project

    async def get(self, name: str) -> Project:
        """Raises UnknownProject."""
        found = await self._read([name]) if is_project_name(name) else []
        if not found:
            raise UnknownProject
        return found[0]

    async def all(self) -> list[Project]:
        """All projects by name."""
        names = await self._connection.command("SMEMBERS", self._keys.work_projects())
        return await self._read(sorted(name.decode("utf-8", "replace") for name in names))

    async def trim(self, name: str) -> int:
        """Deletes what the project no longer keeps: old finished items, lapses, leaderboards and log entries. Returns
        how many of one kind at most; MAX_TRIMMED: there may be more. Raises UnknownProject."""
        now = self._clock()
        limits = (KEPT_LOG, KEPT_ENTRIES, MAX_TRIMMED)
        return int(known(await self._scripts.work_trim([name, int(now * 1000), *limits, *periods.ended(now)])))

    async def delete(self, name: str) -> None:
        """Deletes a project with all its keys and counters, and nothing else. It is gone at once; an interrupted
        deletion is completed by ``finish_deletions``. Raises UnknownProject."""
        await self.get(name)
        await self._delete(name)

    async def finish_deletions(self) -> int:
        """Completes deletions that were interrupted. Returns how many."""
        names = await self._connection.command("SMEMBERS", self._keys.work_projects())
        answers = await self._connection.pipeline(
            *(("HGET", self._keys.work_project(name.decode("utf-8", "replace")), "deleting") for name in names)
        )
        begun = [name.decode() for name, flag in zip(names, answers, strict=True) if flag == b"1"]
        for name in begun:
            await self._delete(name)
        return len(begun)

    async def _delete(self, name: str) -> None:
        argv: list[Argument] = [name, _DELETED_PER_CALL, *periods.possible(self._clock())]
        while await self._scripts.work_delete(argv) == 0:
            pass

    async def _read(self, names: Sequence[str]) -> list[Project]:
        rows = await self._connection.pipeline(
            *(("HMGET", self._keys.work_project(name), *PROJECT_FIELDS, "deleting") for name in names)
        )
        found = (
            project_of(name, row[:-1])
            for name, row in zip(names, rows, strict=True)
            if not isinstance(row, Exception) and row[-1] is None
        )
        return [project for project in found if project is not None]
