"""Adopts users and allowed clients that a site wrote into the store directly: finds unlisted ones and lists them. Lists
users by their names too, which a site may have written or changed."""

from collections.abc import Sequence
from dataclasses import dataclass

from tracker.names import fold_name
from tracker.store.schema.keys import pattern_of
from tracker.store.sharding.shards import Shard

KEYS_A_STEP = 100
"""Takes the store about 0.5 ms, or 1 ms if every key is a user to list."""
START = b"0"
"""The cursor of the first step. The last step returns it."""


@dataclass(frozen=True, slots=True)
class AdoptionStep:
    """The result of one step. ``cursor`` starts the next step."""

    cursor: bytes
    keys: int  # number of keys in the store
    users: tuple[str, ...]  # ids of the users that this step listed
    unusable: tuple[str, ...]
    """Ids that are not positive numbers or that belong to another passkey. Such users are rejected and not listed."""
    clients: tuple[bytes, ...]  # peer-id prefixes of the clients that this step listed
    names: tuple[str, ...] = ()  # ids of the users whose names this step listed, or whose listed names it removed


async def adopt_some(shard: Shard, cursor: bytes = START) -> AdoptionStep:
    """Checks about KEYS_A_STEP keys. A walk from START to START covers every key that exists throughout it."""
    how = (cursor, KEYS_A_STEP, pattern_of(shard.keys.prefix))
    after, keys, users, unusable, clients, names = await shard.scripts.adopt(how)
    # Of each: user id, name and listed name. Those whose listed name is wrong are listed again.
    rows = [
        (user_id, name, folded)
        for user_id, name, listed in zip(names[::3], names[1::3], names[2::3], strict=True)
        if (folded := fold_name(name.decode("utf-8", "replace")).encode()) != listed
    ]
    if rows:
        await shard.scripts.name_users([part for row in rows for part in row])
    named = _texts([user_id for user_id, _, _ in rows])
    return AdoptionStep(after, int(keys), _texts(users), _texts(unusable), tuple(clients), named)


def _texts(values: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(value.decode("utf-8", "backslashreplace") for value in values)
