"""The rules that many users share: the multipliers for all users, and the groups of users."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import orjson

from tracker.errors import ClientError
from tracker.store.access.copies import divided_groups, loaded_groups, restore_access, whole_groups
from tracker.store.client.pipe import Argument
from tracker.store.schema.multipliers import (
    NO_MULTIPLIER,
    RuleChange,
    Rules,
    checked_multipliers,
    has_changed,
    multipliers_of,
)
from tracker.store.schema.record import Field, fields_of, settable
from tracker.store.sharding.shards import Shard, StorePart
from tracker.store.users.fields import Value

MAX_GROUPS = 200


@dataclass(frozen=True, slots=True)
class Group:
    """Rules for all users whose field ``group`` is its id."""

    group_id: int
    name: Annotated[str, Field("Name, such as power-user; empty: none.", "group", max_length=64, column=20)] = ""
    may_announce: Annotated[bool, Field("Accept announces of its users, or refuse them.", "group", column=13)] = True
    can_leech: Annotated[bool, Field("Let its users download.", "group", column=10)] = True
    max_downloads: Annotated[
        int | None,
        Field(
            "Torrents that each user downloads at once; 0: any number, -1: as many as the setting allows (null in "
            "replies). A user's own number comes first.",
            "group",
            highest=999_999,
            column=14,
        ),
    ] = None
    upload_multiplier: Annotated[
        Rules, Field("Factor for its users' upload, 0 to 1000; 1: none. Text has several rules.", "group")
    ] = NO_MULTIPLIER
    download_multiplier: Annotated[
        Rules, Field("Factor for its users' download; 0: freeleech, 1: none. Text has several rules.", "group")
    ] = NO_MULTIPLIER
    hnr_exempt: Annotated[bool, Field("Its users get no hit-and-runs.", "group", column=11)] = False


GROUP_FIELDS = tuple(settable(Group))


class SharedRules(StorePart):
    """The values under the main prefix, with copies in the other shards. A change applies from the next announce. While
    the main prefix is empty, shards keep theirs (access/copies.py)."""

    async def _restore(self) -> None:
        """Before a part of a text is changed: a main prefix that has lost everything gets back what the shards have."""
        if not await self._connection.command("EXISTS", self._keys.layout()):
            await restore_access(self._shards)

    async def _copy_to_others(self) -> None:
        """One that is unavailable gets them when it is back."""
        await self._shards.gather(self.copy_to, self._shards.others)

    async def outdated(self, shards: Sequence[Shard]) -> list[Shard]:
        """Those that have other ones than the main prefix. One round trip for each node."""
        wanted = await self._texts()
        if wanted is None:
            return []
        found = await self._shards.send([(shard, ("MGET", *_keys_in(shard))) for shard in shards])
        return [
            shard for shard, copies in zip(shards, found, strict=True) if [text or b"" for text in copies] != wanted
        ]

    async def copy_to(self, shard: Shard) -> None:
        """Raises StoreUnavailable; a later call heals that."""
        if (texts := await self._texts()) is not None:
            pairs = zip(_keys_in(shard), texts, strict=True)
            await shard.connection.command("MSET", *(part for pair in pairs for part in pair))

    async def _texts(self) -> list[bytes] | None:
        """As the shards have them; None if the main prefix has no layout: it is new, or has lost everything."""
        main = self._shards.main
        reads = ("MGET", *_keys_in(main)), ("EXISTS", self._keys.layout())
        texts, exists = await self._shards.send([(main, read) for read in reads])
        upload, download, groups = (text or b"" for text in texts)
        return [upload, download, divided_groups(groups, len(self._shards))] if exists else None


class Multipliers(SharedRules):
    async def get(self) -> tuple[Rules, Rules]:
        """(of upload, of download)"""
        found = await self._shards.main_or_copy(lambda shard: shard.connection.command("MGET", *_keys_in(shard)[:2]))
        upload, download = (multipliers_of((text or b"").decode("utf-8", "replace")) for text in found)
        return upload, download

    async def set(self, upload: str | None = None, download: str | None = None) -> None:
        """Replaces the rules of upload, those of download, or both, each as stored. Raises ClientError if one is
        invalid."""
        given = zip(_keys_in(self._shards.main), (upload, download), strict=False)
        pairs = [part for key, text in given if text is not None for part in (key, checked_multipliers(text))]
        await self._connection.command("MSET", *pairs)
        await self._copy_to_others()

    async def change_rule(self, change: RuleChange) -> bool:
        """Sets or removes one rule. False if there is none to remove. Raises ClientError for too many."""
        await self._restore()
        changed = has_changed(await self._scripts.set_rule([*change, "", ""]))
        await self._copy_to_others()
        return changed


class Groups(SharedRules):
    """The groups of users: at most MAX_GROUPS, which announces read in one piece."""

    async def all(self) -> list[Group]:
        """By id."""
        rows = loaded_groups(await self._text()).items()
        stored = {int(key): row for key, row in rows if key.isascii() and key.isdigit() and isinstance(row, dict)}
        known = fields_of(Group).items()
        return [
            Group(group_id, **{name: field.read(_stored(row.get(name))) for name, field in known})
            for group_id, row in sorted(stored.items())
        ]

    async def _text(self) -> bytes:
        found = await self._shards.main_or_copy(lambda shard: shard.connection.command("GET", shard.keys.groups()))
        return whole_groups(found or b"")

    async def get(self, group_id: int) -> Group | None:
        return next((group for group in await self.all() if group.group_id == group_id), None)

    async def hidden_users(self) -> frozenset[str]:
        """The ids of users whose peers are in no reply to others, which announces read with the groups."""
        stored = loaded_groups(await self._text())
        return frozenset(str(stored.get("hidden", "")).split())

    async def save(self, group_id: int, fields: Mapping[str, Value], *, replace: bool = False) -> bool:
        """Adds a group, or sets some of its GROUP_FIELDS; with ``replace``, clears those that are not given. Returns
        whether the group is new. If its users may not announce any more, their peers leave within seconds. Raises
        ClientError for an unknown field, an invalid value or too many groups."""
        known = settable(Group)
        if not set(fields) <= set(known):
            raise ClientError("a group has no such field")
        row = {name: known[name].stored(value) for name, value in fields.items()}
        arguments: list[Argument] = [group_id, orjson.dumps(row), int(replace), MAX_GROUPS]
        await self._restore()
        saved, is_refused = await self._scripts.save_group(arguments)
        if saved < 0:
            raise ClientError(f"there are at most {MAX_GROUPS} groups")
        await self._copy_to_others()
        if is_refused:
            entries = dict.fromkeys(self._shards, ("user:*",))
            await self._shards.run(lambda shard: shard.scripts.begin_removal, entries)
        return int(saved) > 1

    async def delete(self, group_id: int) -> bool:
        """False if there is none. Users of the group stay, without its rules."""
        await self._restore()
        deleted, _ = await self._scripts.save_group([group_id, "", 0, MAX_GROUPS])
        await self._copy_to_others()
        return bool(deleted)


def _keys_in(shard: Shard) -> tuple[str, str, str]:
    return shard.keys.upload_multiplier(), shard.keys.download_multiplier(), shard.keys.groups()


def _stored(value: object) -> bytes | None:
    """A field, which is text; None for what another program wrote in its place."""
    return value.encode() if isinstance(value, str) else None
