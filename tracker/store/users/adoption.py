"""Adopts users and allowed clients that a site wrote into the store directly: finds unlisted ones and lists them.

Lists users by their names too, which a site may have written or changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tracker.names import fold_name
from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys, pattern_of

KEYS_A_STEP = 100
"""Takes the store about 0.5 ms, or 1 ms if every key is a user to list."""
START = b"0"
"""The cursor of the first step. The last step returns it."""


@dataclass(frozen=True, slots=True)
class AdoptionStep:
    """The result of one step. ``cursor`` starts the next step."""

    cursor: bytes
    keys: int
    """Number of keys in the store."""
    users: tuple[str, ...]
    """Ids of the users that this step listed."""
    unusable: tuple[str, ...]
    """Ids that are not positive numbers or that belong to another passkey. Such users are rejected and not listed."""
    clients: tuple[bytes, ...]
    """Peer-id prefixes of the clients that this step listed."""
    names: tuple[str, ...] = ()
    """Ids of the users whose names this step listed, or whose listed names it removed."""


class Adoption:
    """Adopts users and clients under one key prefix."""

    def __init__(self, scripts: Scripts, keys: Keys) -> None:
        self._scripts = scripts
        self._keys = keys

    async def step(self, cursor: bytes = START) -> AdoptionStep:
        """Checks about KEYS_A_STEP keys. A walk from START to START covers every key that exists throughout it."""
        after, keys, users, unusable, clients, names = await self._scripts.adopt(
            [cursor, KEYS_A_STEP, pattern_of(self._keys.prefix)]
        )
        named = await self._list_names(names)
        return AdoptionStep(after, int(keys), _texts(users), _texts(unusable), tuple(clients), named)

    async def _list_names(self, found: Sequence[bytes]) -> tuple[str, ...]:
        """``found``: user id, name and listed name of each. Returns the ids of those whose listed name was wrong."""
        rows = [
            (user_id, name, folded)
            for user_id, name, listed in zip(found[::3], found[1::3], found[2::3], strict=True)
            if (folded := fold_name(name.decode("utf-8", "replace")).encode()) != listed
        ]
        if rows:
            await self._scripts.name_users([part for row in rows for part in row])
        return _texts([user_id for user_id, _, _ in rows])


def _texts(values: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(value.decode("utf-8", "backslashreplace") for value in values)
