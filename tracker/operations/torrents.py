"""Operations on torrents: registering, .torrent files, fields, states."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Unpack

from tracker.bittorrent import InfoHash, parse_info_hash
from tracker.errors import ClientError
from tracker.store.schema.multipliers import MultiplierFields, join_ends
from tracker.store.torrents.records import STORED_NAMES, Enabled
from tracker.store.torrents.torrents import Torrent, Torrents
from tracker.system.torrent_files import SHARDS, TorrentFiles
from tracker.wire.torrent_file import MAX_BYTES, parse_torrent_file

NOT_SERVED = "this torrent is not served here"
"""The failure reason of a torrent that was disabled or denied without one."""
State = Literal["registered", "pending", "disabled", "denied", "unregistered"]
# One file at a time: parsing a large one takes much memory, and blocks the interpreter for seconds.
_READER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torrent-file")
_V2_HEX = re.compile(r"[0-9a-fA-F]{64}")
_FILES_A_CALL = 500


@dataclass(frozen=True, slots=True)
class Added:
    """A registered torrent; ``new`` is false if it was registered before."""

    info_hash: InfoHash
    torrent_id: str
    new: bool
    name: str


async def add_file(
    torrents: Torrents,
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
    """Registers the torrent of a .torrent file; a hybrid one under its v1 and its v2 hash.

    ``name`` replaces the name in the file. ``private`` marks the torrent as private even if the file does not.
    ``pending``: it waits for approval. The file is kept in ``files`` if they are enabled. ``multipliers``: as of
    ``torrent_fields``. Raises ClientError for an invalid file or multiplier, and if the file cannot be kept.
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
    )
    for info_hash in found.announce_hashes:
        await loop.run_in_executor(_READER, keep_file, files, info_hash, found.bare)
    return [
        await add_torrent(torrents, info_hash, fields, reset_score=reset_score)
        for info_hash in found.announce_hashes
    ]


async def add_torrent(
    torrents: Torrents, info_hash: InfoHash, fields: Mapping[str, str], *, reset_score: bool = False
) -> Added:
    """Registers an info hash, or changes the fields of a known one. Raises ClientError as Torrents.add does."""
    torrent_id, new = await torrents.add(info_hash, fields, reset_score=reset_score)
    return Added(info_hash, torrent_id, new, fields.get("name", ""))


def keep_file(files: TorrentFiles, info_hash: InfoHash, bare: bytes) -> None:
    """Blocks. Raises ClientError if the file cannot be written."""
    try:
        files.keep(info_hash, bare)
    except OSError as error:
        raise ClientError(f"cannot keep the .torrent file: {error.strerror or error}") from error


async def remove_torrent(torrents: Torrents, files: TorrentFiles, info_hash: InfoHash) -> bool:
    """Unregisters a torrent and deletes its kept file. False if it was not registered."""
    removed = await torrents.remove(info_hash)
    await asyncio.to_thread(files.delete, info_hash)
    return removed


async def stale_files(
    torrents: Torrents, files: TorrentFiles, *, delete: bool = False
) -> AsyncIterator[InfoHash]:
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
    **multipliers: Unpack[MultiplierFields],
) -> dict[str, str]:
    """The stored fields for Torrents.add and .edit that are not None. A torrent that is not disabled has no reason, but
    a pending one may be given one.

    ``multipliers``: MULTIPLIERS and their ends. Raises ClientError for the end of a multiplier without the multiplier.
    """
    if enabled is not None and reason is None:
        reason = "" if enabled else NOT_SERVED
    switches = {"private": private, "enabled": None if enabled == "pending" else enabled}
    counts = {"size": size, "snatches": snatches}
    return {
        **{field: text for field, text in (("name", name), ("reason", reason)) if text is not None},
        **{field: str(int(on)) for field, on in switches.items() if on is not None},
        **({"enabled": enabled} if enabled == "pending" else {}),
        **{STORED_NAMES[name]: text for name, text in join_ends(multipliers).items()},
        **{field: str(count) for field, count in counts.items() if count is not None},
        **({} if labels is None else {"labels": " ".join(labels)}),
    }


def state_of(torrent: Torrent) -> State:
    if torrent.denied is not None:
        return "denied"
    if not torrent.enabled:
        return "pending" if torrent.pending else "disabled"
    return "registered" if torrent.registered else "unregistered"
