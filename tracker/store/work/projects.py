"""The projects of work distribution: what they are called, and their settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracker.errors import ClientError
from tracker.store.client.pipe import Argument
from tracker.store.sharding.shards import Part, Shard
from tracker.store.work import periods
from tracker.store.work.project_fields import check_project, project_of, project_row
from tracker.store.work.records import PROJECT_FIELDS, Project, ProjectExists, UnknownProject, is_project_name, known

KEPT_LOG = KEPT_ENTRIES = 100_000
MAX_TRIMMED = 1000
_DELETED_PER_CALL = 200


class Projects(Part):
    """The projects under one key prefix. ``clock`` returns epoch seconds; ``kept_log`` entries of a log are kept."""

    def __init__(self, shard: Shard, clock: Callable[[], float], *, kept_log: int = KEPT_LOG) -> None:
        super().__init__(shard, clock)
        self._kept_log = kept_log

    async def create(self, project: Project) -> Project:
        """Raises ProjectExists, and ClientError for an invalid field."""
        row = project_row(check_project(project))
        if not await self._scripts.work_save([project.name, "create", *row]):
            raise ProjectExists
        return project

    async def edit(self, name: str, changes: Mapping[str, Any]) -> Project:
        """Changes fields by their names; the kind stays, and so does ``verify`` where it is ``address``. Valid from
        the next call on.

        Raises UnknownProject, and ClientError for an unknown or invalid field.
        """
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
        how many of one kind at most; MAX_TRIMMED: there may be more.

        Raises UnknownProject.
        """
        now = self._clock()
        limits = (self._kept_log, KEPT_ENTRIES, MAX_TRIMMED)
        return int(known(await self._scripts.work_trim([name, int(now * 1000), *limits, *periods.ended(now)])))

    async def delete(self, name: str) -> None:
        """Deletes a project with all its keys and counters, and nothing else. It is gone at once; an interrupted
        deletion is completed by ``finish_deletions``.

        Raises UnknownProject.
        """
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
