"""The items of projects: adding them, and where they are."""

import random
from collections.abc import Callable, Iterable, Sequence

from tracker.errors import ClientError
from tracker.store.client.pipe import Argument
from tracker.store.client.scripts import Scripts
from tracker.store.work.projects import Projects
from tracker.store.work.records import (
    QUEUES,
    Added,
    NewItem,
    Project,
    UnknownProject,
    check_item,
    is_claimant,
)

MAX_BATCH = 500
"""Max items in one script call."""
_MAX_COPIES = 1000
_MAX_ASKED = 10


class Items:
    """``chance`` returns random numbers from 0 to 1, for the places of items."""

    def __init__(
        self, scripts: Scripts, projects: Projects, chance: Callable[[], float] = random.random
    ) -> None:
        self._scripts = scripts
        self._projects = projects
        self._chance = chance

    async def add(self, project: str, items: Iterable[NewItem], *, again: bool = False) -> Added:
        """Adds items, MAX_BATCH per script call. Skips those that are wanted or out, and those that are done unless
        ``again``.

        Raises UnknownProject, and ClientError for an invalid item: then nothing was added.
        """
        definition = await self._projects.get(project)
        checked = [_checked(definition, item) for item in items]
        added = 0
        for first in range(0, len(checked), MAX_BATCH):
            argv: list[Argument] = [project, int(again)]
            for item in checked[first : first + MAX_BATCH]:
                argv += (item.name, queue_key(item.queue), " ".join(item.claimants), item.copies)
                argv.append(repr(self._place(definition, item)))
            answer = await self._scripts.work_add(argv)
            if answer is None:
                raise UnknownProject
            added += int(answer)
        return Added(len(checked), added)

    def _place(self, project: Project, item: NewItem) -> float:
        if project.order == "random" or item.place is None:
            return self._chance()
        return float(item.place)


def queue_key(queue: str) -> str:
    """The end of the key of a shared queue."""
    return "todo" if queue == "todo" else f"todo:{queue}"


def _checked(project: Project, item: NewItem) -> NewItem:
    check_item(project.kind, item.name)
    if item.queue not in QUEUES:
        raise ClientError(f"a queue is one of {', '.join(QUEUES)}")
    if not 1 <= item.copies <= _MAX_COPIES:
        raise ClientError(f"an item has 1 to {_MAX_COPIES} copies")
    if len(item.claimants) > _MAX_ASKED or not _are_claimants(project, item.claimants):
        raise ClientError(f"claimants are at most {_MAX_ASKED} names or user ids, each given once")
    if item.place is not None and not -1e15 <= item.place <= 1e15:  # NaN too
        raise ClientError("a place is a number")
    return item


def _are_claimants(project: Project, claimants: Sequence[str]) -> bool:
    return len(set(claimants)) == len(claimants) and all(is_claimant(project.kind, c) for c in claimants)
