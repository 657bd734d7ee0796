"""Adopts users and allowed clients that a site wrote into the store directly: finds unlisted ones and lists them."""

from dataclasses import dataclass

from tracker.store.client.scripts import Scripts
from tracker.store.schema.keys import Keys

KEYS_A_STEP = 100
"""Takes the store about 0.3 ms, or 1 ms if every key is a user to list."""
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


class Adoption:
    """Adopts users and clients under one key prefix."""

    def __init__(self, scripts: Scripts, keys: Keys) -> None:
        self._scripts = scripts
        self._keys = keys

    async def step(self, cursor: bytes = START) -> AdoptionStep:
        """Checks about KEYS_A_STEP keys. A walk from START to START covers every key that exists throughout it."""
        after, keys, users, unusable, clients = await self._scripts.adopt(
            [cursor, KEYS_A_STEP, self._keys.prefix_pattern]
        )
        return AdoptionStep(after, int(keys), _texts(users), _texts(unusable), tuple(clients))


def _texts(values: list[bytes]) -> tuple[str, ...]:
    return tuple(value.decode("utf-8", "backslashreplace") for value in values)
