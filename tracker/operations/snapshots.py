"""The values of an object that the audit log shows when they change."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Literal

from tracker.errors import ClientError
from tracker.operations.peers import format_prefix, parse_prefix
from tracker.operations.torrents import parse_hash
from tracker.store.schema.multipliers import rules_text
from tracker.store.schema.record import audited
from tracker.store.store import Store
from tracker.store.torrents.records import TORRENT_FIELDS, StoredTorrent, Torrent
from tracker.store.users.fields import FIELDS, User, is_user_id
from tracker.store.users.rules import GROUP_FIELDS
from tracker.store.work.records import PROJECT_FIELDS, UnknownProject

Kind = Literal["torrent", "user", "client", "group", "multipliers", "project", "block", "queue", "job", "token"]
RowKind = Literal["torrent", "user"]
ALL_USERS = "all"
"""The id of the multipliers for all users."""
_MAX_FREELEECH = 20
Snapshot = tuple[str, Mapping[str, str]]
"""The id of an object, and its values by name; an empty id: the text names none. It may be a secret."""
Row = StoredTorrent | User
Rows = Mapping[str, Row]
"""Several objects, by id."""


async def snapshot(store: Store, kind: Kind, object_id: str) -> Snapshot:
    """The object as it is now; without values if it does not exist. Passkeys are not masked. Raises StoreUnavailable,
    and redis.exceptions.RedisError."""
    try:
        if read := _READERS.get(kind):
            return await read(store, object_id)
        return object_id, await _values(store, kind, object_id)
    except (ClientError, UnicodeEncodeError):
        return "", {}


async def read_rows(store: Store, kind: RowKind, object_ids: Sequence[str]) -> Rows:
    """Those objects that exist, in few round trips. A user's id may be a passkey. Raises StoreUnavailable, and
    redis.exceptions.RedisError."""
    if kind == "torrent":
        torrents = await store.torrents.stored([parse_hash(text) for text in dict.fromkeys(object_ids)])
        return {found.info_hash.hex(): found for found in torrents}
    users = await store.users.by_ids([who for who in object_ids if is_user_id(who)])
    users += await store.users.get_all([who for who in object_ids if not is_user_id(who)])
    return {found.user_id: found for found in users}


def values_of(row: Row | None) -> Mapping[str, str]:
    """The values of a row; none without one. Those of a user are without hit-and-runs and freeleech tokens, which no
    batch changes."""
    if row is None:
        return {}
    return _texts(_user_values(row) if isinstance(row, User) else _torrent_values(row.read()))


async def _torrent(store: Store, text: str) -> Snapshot:
    info_hash = parse_hash(text)
    found = await store.torrents.get(info_hash)
    return info_hash.hex(), {} if found is None else _texts(_torrent_values(found))


def _torrent_values(found: Torrent) -> dict[str, Any]:
    return audited(found, ("registered", *TORRENT_FIELDS, "hybrid", "denied"))


async def _user(store: Store, who: str) -> Snapshot:
    """``who`` may be a passkey, which is no id."""
    user_id = who if is_user_id(who) else (await store.users.find(who)).user_id
    found, tokens, sizes = await asyncio.gather(
        store.users.find(who), store.freeleech.page(user_id, 0, _MAX_FREELEECH), store.users.set_sizes(user_id)
    )
    values = {
        **_user_values(found),
        "hit_and_runs": sizes["hnr"],
        "freeleech": " ".join(f"{token.torrent_id}:{token.until or 'never'}" for token in tokens),
    }
    return found.user_id, _texts(values)


def _user_values(found: User) -> dict[str, Any]:
    return {"passkey": found.passkey, **audited(found, FIELDS)}


async def _client(store: Store, text: str) -> Snapshot:
    prefix = parse_prefix(text)
    allowed, denied = await store.allow_list.name(prefix), (await store.deny_list.all()).get(prefix)
    values = {"allowed": allowed, "denied": denied}
    return format_prefix(prefix), {name: value or "yes" for name, value in values.items() if value is not None}


async def _values(store: Store, kind: Kind, object_id: str) -> Mapping[str, str]:
    """The values of an object of the other kinds."""
    match kind:
        case "group":
            group = await store.groups.get(int(object_id)) if object_id.isascii() and object_id.isdigit() else None
            return {} if group is None else _texts(audited(group, GROUP_FIELDS))
        case "multipliers":
            upload, download = (rules_text(rules) or "1" for rules in await store.multipliers.get())
            return {"upload": upload, "download": download}
        case "project":
            with suppress(UnknownProject):
                return _texts(audited(await store.work.projects.get(object_id), ("name", *PROJECT_FIELDS)))
        case "block":  # project, empty for all of them, a slash, and who is blocked
            project, _, who = object_id.partition("/")
            return {"blocked": "true"} if who in await store.work.blocks.all(project or None) else {}
        case "queue":
            return _texts(asdict(await store.jobs.limits_of(object_id)))
        case "job":
            job = await store.jobs.get(object_id)
            return {} if job is None else {"queue": job.queue, "status": job.status}
    return {}


async def _token(store: Store, who: str) -> Snapshot:
    """``who``: an id or a name."""
    for token in await store.tokens.list():
        if who in (token.token_id, token.name):
            return token.token_id, _texts(audited(token, ("name", "role", "addresses", "expires")))
    return who, {}


_READERS: Mapping[Kind, Callable[[Store, str], Awaitable[Snapshot]]] = {
    "torrent": _torrent,
    "user": _user,
    "client": _client,
    "token": _token,
}
"""Of the kinds whose objects may be named in several ways."""


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """As text, without what is not set."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in values.items()
        if value is not None and value != ""
    }
