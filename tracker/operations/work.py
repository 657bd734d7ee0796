"""Operations on work distribution: projects, items, the policy."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.errors import ClientError
from tracker.operations.torrents import parse_hash
from tracker.store.store import Store
from tracker.store.work.items import MAX_BATCH
from tracker.store.work.policy import Change
from tracker.store.work.records import Added as ItemsAdded
from tracker.store.work.records import Kind, NewItem, Place, Project

_SEEDING: dict[str, Any] = {"verify": "announce", "order": "weakest", "passkeys": True, "keep_done_days": 30}
"""Defaults of projects of kind ``seeding`` that differ from those of kind ``items``."""


async def create_project(store: Store, name: str, kind: Kind, settings: Mapping[str, Any]) -> Project:
    """Creates a project of work distribution. Raises Conflict if there is one of this name, and ClientError for an
    invalid setting."""
    defaults = _SEEDING if kind == "seeding" else {}
    if settings.get("verify") == "address":
        defaults = {**defaults, "passkeys": False}
    return await store.work.projects.create(Project(name, kind, **{**defaults, **settings}))


def items_of(text: str) -> list[str]:
    """The items of a text, one a line; without empty lines."""
    return [item for line in text.split("\n") if (item := line.strip())]


async def add_items(store: Store, project: str, items: Sequence[NewItem], *, again: bool = False) -> ItemsAdded:
    """Adds items to a project; in one of kind ``seeding`` they are info hashes of registered torrents. For the v2 half
    of a hybrid torrent its v1 half is added. Raises UnknownProject, and ClientError for an invalid item: then none is
    added."""
    if (await store.work.projects.get(project)).kind == "seeding":
        items = [replace(item, name=parse_hash(item.name).hex()) for item in items]
        counting: list[InfoHash] = []
        for first in range(0, len(items), MAX_BATCH):
            hashes = [parse_info_hash(item.name) for item in items[first : first + MAX_BATCH]]
            unknown = await store.torrents.unregistered(hashes)
            if unknown:
                raise ClientError(f"torrent {unknown[0].hex()} is not registered")
            counting += await store.hybrids.counting(hashes)
        items = [replace(item, name=each.hex()) for item, each in zip(items, counting, strict=True)]
    return await store.work.items.add(project, items, again=again)


async def purge_items(store: Store, project: str, place: Place, *, before: float | None = None) -> int:
    """Removes all items of a queue, or finished items, those done before ``before`` (epoch s). Claims stay. Raises
    UnknownProject."""
    items = store.work.items
    await store.work.projects.get(project)
    removed, cursor, more = 0, "", True
    while more:
        page = await items.page(project, place, cursor=cursor, count=MAX_BATCH)
        old = [name for name, at in page.entries if before is None or place != "done" or at < before]
        removed += await items.purge(project, old, place, before)
        cursor, more = page.cursor, bool(page.cursor) and len(old) == len(page.entries)
    return removed


async def policy_preview(store: Store, project: str, *, max_torrents: int | None = None) -> list[Change]:
    """What a run of the policy would change now in a project of kind ``seeding``, without changing it. It looks at
    ``max_torrents``, or as many as a run. Raises UnknownProject, and ClientError for another kind."""
    definition = await store.work.projects.get(project)
    if definition.kind != "seeding":
        raise ClientError("only projects of kind seeding have a policy")
    from tracker.workers.work import WorkPolicy  # noqa: PLC0415  # no other operation needs it

    policy = WorkPolicy(store.work.projects, store.work.policy)
    if max_torrents is not None:
        half = max(1, max_torrents // 2)
        policy = WorkPolicy(store.work.projects, store.work.policy, max_managed=half, max_weak=half)
    return [change async for change in policy.changes(definition, dry_run=True)]
