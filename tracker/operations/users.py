"""Lists of users' torrents, pending hit-and-runs and freeleech tokens, with the names of the torrents."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tracker.operations.peers import to_integer
from tracker.store.schema.record import Field, fields_of
from tracker.store.store import Store

_STORED = {"total_seconds": "total_time", "seed_seconds": "seed_time"}
_ACCOUNT_TOTALS = {"downloaded": "downloaded", "uploaded": "uploaded", **_STORED}
"""Fields of a user's account on a torrent, by name."""


async def pending_hit_and_runs(store: Store, offset: int = 0, count: int = 100) -> list[dict[str, Any]]:
    """``count`` torrents whose users are in the grace period, from ``offset`` on; the next to be decided first.

    They become hit-and-runs at ``at`` (epoch s). Bytes and seconds; ``info_hash`` None: the torrent was removed.
    """
    found = await store.hit_and_runs.pending(offset, count)
    accounts = await store.users.accounts([(pending.user_id, pending.torrent_id) for pending in found])
    totals = [{n: to_integer(account.get(stored)) for n, stored in _ACCOUNT_TOTALS.items()} for account in accounts]
    rows = await _with_names(store, [pending._asdict() for pending in found])
    return [{**row, **numbers} for row, numbers in zip(rows, totals, strict=True)]


@dataclass(frozen=True, slots=True)
class Share:
    """A user's totals on a torrent, over all of the user's clients."""

    torrent_id: Annotated[str, Field()]
    info_hash: Annotated[str | None, Field("null if the torrent was removed.")]
    name: Annotated[str, Field()]
    uploaded: Annotated[int, Field()]
    downloaded: Annotated[int, Field()]
    total_seconds: Annotated[int, Field()]
    seed_seconds: Annotated[int, Field()]
    completed_at: Annotated[int | None, Field(unit="epoch s")]
    peers: Annotated[int, Field("The user's active clients on the torrent.")]
    credit_cut: Annotated[int, Field("Bytes that were not credited because of the maximum rate of credit.")]
    unreported: Annotated[
        int, Field("Bytes downloaded but not reported: `left` fell without `downloaded` rising. Not charged.")
    ]


async def shares(store: Store, user_id: str, torrent_ids: Sequence[str]) -> list[Share]:
    """In the order of ``torrent_ids``."""
    torrents, accounts = await asyncio.gather(
        store.torrents.by_ids(torrent_ids), store.users.on_torrents(user_id, torrent_ids)
    )
    known = {torrent.torrent_id: torrent for torrent in torrents}
    found: list[Share] = []
    for torrent_id, account in zip(torrent_ids, accounts, strict=True):
        torrent = known.get(torrent_id)
        info_hash, name = (torrent.info_hash.hex(), torrent.name) if torrent else (None, "")
        totals: dict[str, Any] = {
            each: to_integer(account.get(_STORED.get(each, each))) for each in [*fields_of(Share)][3:]
        }
        totals["completed_at"] = totals["completed_at"] or None
        found.append(Share(torrent_id, info_hash, name, **totals))
    return found


async def freeleech_tokens(store: Store, user_id: str, offset: int = 0, count: int = 100) -> list[dict[str, Any]]:
    """``count`` freeleech tokens of a user, from ``offset`` on. ``info_hash`` None: the torrent was removed."""
    return await _with_names(store, [t._asdict() for t in await store.freeleech.page(user_id, offset, count)])


async def _with_names(store: Store, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Adds info hash and name to rows with a ``torrent_id``."""
    found = await store.torrents.by_ids([row["torrent_id"] for row in rows])
    names = {t.torrent_id: {"info_hash": t.info_hash.hex(), "name": t.name} for t in found}
    return [{**row, **names.get(row["torrent_id"], {"info_hash": None, "name": ""})} for row in rows]
