"""Operations on torrents: registering, .torrent files, fields, states, lists."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Unpack, get_args

from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.errors import ClientError, existing
from tracker.names import clean_text
from tracker.store.schema.multipliers import MultiplierFields, RuleChange, join_ends
from tracker.store.schema.record import Field
from tracker.store.sharding.listing import ListPage
from tracker.store.store import Store
from tracker.store.torrents.hybrids import V1_IS_UNREGISTERED
from tracker.store.torrents.listing import TorrentFilter
from tracker.store.torrents.records import STORED_NAMES, Enabled
from tracker.store.torrents.torrents import Torrent, Torrents, checked_fields
from tracker.system.torrent_files import SHARDS, TorrentFiles
from tracker.wire.torrent_file import MAX_BYTES, parse_torrent_file

NOT_SERVED = "this torrent is not served here"
"""The failure reason of a torrent that was disabled or denied without one."""
TorrentAction = Literal["enable", "pend", "disable", "deny", "allow", "remove"]
TORRENT_ACTIONS: tuple[TorrentAction, ...] = get_args(TorrentAction)
_SWITCHES: dict[TorrentAction, Enabled] = {"enable": True, "pend": "pending", "disable": False}
State = Literal["registered", "pending", "disabled", "denied", "unregistered"]
# One file at a time: parsing a large one takes much memory, and blocks the interpreter for seconds.
_READER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torrent-file")
_V2_HEX = re.compile(r"[0-9a-fA-F]{64}")
_FILES_A_CALL = 500
_PAGE = 500
_PLACE = re.compile(r"f([0-9]{1,12})", re.ASCII)
_OF_BOTH_HALVES = ("enabled", "reason", "multi_up", "multi_dn")
"""Stored fields that the halves of a hybrid torrent share: whether it is served, and what counts for users."""


@dataclass(frozen=True, slots=True)
class Added:
    """A registered torrent."""

    info_hash: InfoHash
    torrent_id: str
    new: Annotated[bool, Field("false: already registered; torrent ID and statistics stay.")]
    name: str


async def add_file(
    store: Store,
    data: bytes,
    *,
    name: str | None = None,
    private: bool = False,
    pending: bool = False,
    labels: Sequence[str] | None = None,
    reset_score: bool = False,
    files: TorrentFiles,
    max_bytes: int = MAX_BYTES,
    **multipliers: Unpack[MultiplierFields],
) -> list[Added]:
    """Registers the torrent of a .torrent file; a hybrid one under its v1 and its v2 hash, as halves of one torrent.

    A known torrent keeps its name, and stays private; ``name`` replaces it, and the name in the file. ``private`` marks
    the torrent as private even if the file does not.
    ``pending``: it waits for approval. The file is kept in ``files`` if they are enabled. ``multipliers``: as of
    ``torrent_fields``. Raises ClientError for an invalid file or multiplier, if the file cannot be kept, and if one
    hash is a half of another hybrid torrent.
    """
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(_READER, lambda: parse_torrent_file(data, max_bytes=max_bytes))
    fields = torrent_fields(
        name=found.name if name is None else name,
        private=private or found.private,
        enabled="pending" if pending else None,
        size=found.size_bytes,
        labels=labels,
        **multipliers,
    ) | {"kept": kept_fields(found.private or private, name)}
    hashes = found.announce_hashes
    if len(hashes) == 2:
        await store.hybrids.check(hashes[1], hashes[0])
    for info_hash in hashes:
        await loop.run_in_executor(_READER, keep_file, files, info_hash, found.bare)
    added = [await add_torrent(store, info_hash, fields, reset_score=reset_score) for info_hash in hashes]
    if len(hashes) == 2:
        await link_halves(store, hashes[1], hashes[0])
    return added


async def add_torrent(
    store: Store, info_hash: InfoHash, fields: Mapping[str, str], *, reset_score: bool = False
) -> Added:
    """Registers an info hash, or changes the fields of a known one. Raises ClientError as Torrents.add does, and as
    Hybrids.link does."""
    row = await _without_half(store, info_hash, fields)
    torrent_id, new = await store.torrents.add(info_hash, row, reset_score=reset_score)
    await _link(store, info_hash, fields)
    if not new or "hybrid_of" in fields:
        await _share(store, [(info_hash, row)])
    stored = None if new else await store.torrents.get(info_hash)
    return Added(info_hash, torrent_id, new, stored.name if stored else clean_text(fields.get("name", "")))


def kept_fields(private: bool, name: str | None = None) -> str:
    """Which fields of a .torrent file a known torrent keeps if it has them. ``name``: the caller's own."""
    return " ".join(["name"] * (name is None) + ["private"] * (not private))


async def add_torrents(
    store: Store, rows: Sequence[tuple[InfoHash, Mapping[str, str]]]
) -> list[tuple[str, bool] | ClientError]:
    """The outcomes of Torrents.add_many, in order. Rows with ``hybrid_of`` come after all others, one by one; theirs
    may also be what Hybrids.link raises."""
    plain = [row for row in rows if "hybrid_of" not in row[1]]
    added = await store.torrents.add_many(plain)
    await _share(
        store, [row for row, each in zip(plain, added, strict=True) if isinstance(each, tuple) and not each[1]]
    )
    left, outcomes = iter(added), list[tuple[str, bool] | ClientError]()
    for info_hash, fields in rows:
        if "hybrid_of" not in fields:
            outcomes.append(next(left))
            continue
        try:
            half = await add_torrent(store, info_hash, fields)
            outcomes.append((half.torrent_id, half.new))
        except ClientError as error:
            outcomes.append(error)
    return outcomes


async def edit_torrent(store: Store, info_hash: InfoHash, fields: Mapping[str, str]) -> None:
    """Sets fields of a registered torrent; whether it is served and multipliers also of the other half of a hybrid
    torrent. Raises ClientError as Torrents.edit and Hybrids.link do; an empty ``hybrid_of`` ends the link."""
    row = await _without_half(store, info_hash, fields)
    checked_fields(row)
    await _link(store, info_hash, fields)
    await store.torrents.edit(info_hash, row)
    await _share(store, [(info_hash, row)])


async def change_torrent_rule(store: Store, info_hash: InfoHash, change: RuleChange) -> bool:
    """Sets or removes a rule of a registered torrent, and of the other half of a hybrid one; whether there was one.
    Raises ClientError."""
    changed = await store.torrents.change_rule(info_hash, change)
    for other in (await store.hybrids.others([info_hash])).values():
        with suppress(ClientError):  # it was removed meanwhile
            await store.torrents.change_rule(other, change)
    return changed


async def _without_half(store: Store, info_hash: InfoHash, fields: Mapping[str, str]) -> dict[str, str]:
    """The fields without ``hybrid_of``. Raises ClientError if the torrent cannot be that half."""
    if text := fields.get("hybrid_of"):
        v1 = parse_info_hash(text)
        await store.hybrids.check(info_hash, v1)
        if await store.torrents.unregistered([v1]):
            raise ClientError(V1_IS_UNREGISTERED)
    return {name: value for name, value in fields.items() if name != "hybrid_of"}


async def _link(store: Store, info_hash: InfoHash, fields: Mapping[str, str]) -> None:
    if text := fields.get("hybrid_of"):
        await link_halves(store, info_hash, parse_info_hash(text))
    elif text is not None:
        await store.hybrids.unlink(info_hash)


async def link_halves(store: Store, v2: InfoHash, v1: InfoHash) -> None:
    """As Hybrids.link. If the v1 half is disabled, pending or denied, so is the v2 half from now on."""
    await store.hybrids.link(v2, v1)
    for found in await store.torrents.get_all([v1]):
        if not found.enabled:
            await store.torrents.edit(v2, {"enabled": "pending" if found.pending else "0", "reason": found.reason})
        if found.denied is not None:
            await store.torrents.deny(v2, found.denied)


async def _share(store: Store, rows: Sequence[tuple[InfoHash, Mapping[str, str]]]) -> None:
    """Sets the fields that halves share of both: linking may have disabled one."""
    shared = {
        info_hash: row
        for info_hash, fields in rows
        if (row := {name: fields[name] for name in _OF_BOTH_HALVES if name in fields})
    }
    others = await store.hybrids.others(list(shared)) if shared else {}
    for halves in others.items():
        with suppress(ClientError):  # one was removed meanwhile
            for each in halves:
                await store.torrents.edit(each, shared[halves[0]])


async def deny_torrent(store: Store, info_hash: InfoHash, reason: str) -> None:
    """Denies a torrent, and the other half of a hybrid one."""
    for each in (info_hash, *(await store.hybrids.others([info_hash])).values()):
        await store.torrents.deny(each, reason)


async def allow_torrent(store: Store, info_hash: InfoHash) -> bool:
    """Removes a torrent, and the other half of a hybrid one, from the deny list. False if neither was on it."""
    halves = (info_hash, *(await store.hybrids.others([info_hash])).values())
    return any([await store.torrents.allow(each) for each in halves])


async def counting_torrent(store: Store, info_hash: InfoHash) -> Torrent:
    """The torrent that counts for users: the v1 half of a v2 half, else the torrent itself. Raises NotFound."""
    (counting,) = await store.hybrids.counting([info_hash])
    torrent = await store.torrents.get(counting)
    return existing(torrent if torrent and torrent.torrent_id else None, "torrent")


def keep_file(files: TorrentFiles, info_hash: InfoHash, bare: bytes) -> None:
    """Blocks. Raises ClientError if the file cannot be written."""
    try:
        files.keep(info_hash, bare)
    except OSError as error:
        raise ClientError(f"cannot keep the .torrent file: {error.strerror or error}") from error


async def remove_torrent(store: Store, files: TorrentFiles, info_hash: InfoHash) -> bool:
    """Unregisters a torrent and deletes its kept file. False if it was not registered. The other half of a hybrid
    torrent stays, and counts for itself from now on."""
    await store.hybrids.unlink(info_hash)
    removed = await store.torrents.remove(info_hash)
    await asyncio.to_thread(files.delete, info_hash)
    return removed


async def stale_files(torrents: Torrents, files: TorrentFiles, *, delete: bool = False) -> AsyncIterator[InfoHash]:
    """Kept .torrent files whose torrent is not registered, such as those of torrents that a site removed."""
    for shard in range(SHARDS):
        listed = await asyncio.to_thread(files.listed, shard)
        for first in range(0, len(listed), _FILES_A_CALL):
            batch = listed[first : first + _FILES_A_CALL]
            for info_hash in set(batch) - await torrents.registered(batch):
                if delete:
                    await asyncio.to_thread(files.delete, info_hash)
                yield info_hash


def parse_hash(text: str) -> InfoHash:
    """40 hexadecimal digits, or 64 of a v2 torrent, whose first 20 bytes clients announce (BEP 52)."""
    return parse_info_hash(text[:40] if _V2_HEX.fullmatch(text) else text)


def torrent_fields(
    *,
    name: str | None = None,
    private: bool | None = None,
    enabled: Enabled | None = None,
    reason: str | None = None,
    size: int | str | None = None,
    labels: Sequence[str] | None = None,
    snatches: int | str | None = None,
    torrent_id: str | None = None,
    hybrid_of: str | None = None,
    **multipliers: Unpack[MultiplierFields],
) -> dict[str, str]:
    """The stored fields for add_torrent and edit_torrent that are not None. A torrent that is not disabled has no
    reason, but a pending one may be given one.

    ``multipliers``: MULTIPLIERS and their ends. Raises ClientError for the end of a multiplier without the multiplier.
    """
    if enabled is not None and reason is None:
        reason = "" if enabled else NOT_SERVED
    given: dict[str, str | int | None] = {
        **{"name": name, "reason": reason, "hybrid_of": hybrid_of, "private": private, "enabled": enabled},
        **{STORED_NAMES[field]: text for field, text in join_ends(multipliers).items()},
        **{"size": size, "snatches": snatches, "torrent_id": torrent_id},
        "labels": None if labels is None else " ".join(labels),
    }
    return {
        field: str(int(value) if isinstance(value, bool) else value)
        for field, value in given.items()
        if value is not None
    }


def state_of(torrent: Torrent) -> State:
    if torrent.denied is not None:
        return "denied"
    if not torrent.enabled:
        return "pending" if torrent.pending else "disabled"
    return "registered" if torrent.registered else "unregistered"


async def find_torrents(
    store: Store, wanted: TorrentFilter, text: str, cursor: str = "", count: int = 100
) -> ListPage[Torrent]:
    """At most ``count`` torrents that fit and match ``text``. A page may be short before the end. Without a filter, the
    text may also be the start of an info hash. Raises ClientError for an invalid cursor."""
    if wanted.is_selective:
        return await store.torrent_listing.filtered(replace(wanted, name=text), cursor, count)
    if text:
        return ListPage(*await store.torrents.search(text, count, cursor))
    place = _PLACE.fullmatch(cursor or "f0")
    if place is None:
        raise ClientError("invalid cursor")
    return await store.torrent_listing.page(wanted, int(place[1]), count)


async def listed_torrents(
    store: Store, wanted: TorrentFilter, text: str, limit: int
) -> AsyncIterator[ListPage[Torrent]]:
    """The first ``limit`` torrents of the list, in pages."""
    cursor = ""
    while limit > 0:
        page = await find_torrents(store, wanted, text, cursor, min(limit, _PAGE))
        yield page
        limit -= len(page.rows)
        cursor = page.cursor
        if not cursor:
            return


async def change_torrents(
    store: Store, files: TorrentFiles, action: TorrentAction, info_hashes: Sequence[InfoHash], reason: str
) -> int:
    """Returns how many were changed; unknown torrents are left out. ``reason``: of ``disable`` and ``deny``."""

    async def change(info_hash: InfoHash) -> bool:
        if action == "remove":
            return await remove_torrent(store, files, info_hash)
        if action == "allow":
            return await allow_torrent(store, info_hash)
        if action == "deny":
            await deny_torrent(store, info_hash, reason)
            return True
        fields = torrent_fields(enabled=_SWITCHES[action], reason=(reason or None) if action == "disable" else None)
        try:
            await edit_torrent(store, info_hash, fields)
        except ClientError:
            return False
        return True

    return sum([await change(info_hash) for info_hash in info_hashes])
