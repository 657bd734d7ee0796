"""Results of connecting to peers: which endpoints accepted a connection, and which users' clients did."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tracker.bittorrent import Endpoint
from tracker.store.schema.lenient_numbers import whole
from tracker.store.sharding.shards import Part

KEEP_SECONDS = 86_400
"""A result counts for a day. Then the endpoint is checked again."""


class ConnectCheck(NamedTuple):
    connectable: bool | None
    """None if the check showed neither."""
    at: int
    """Epoch seconds."""


class ConnectChecks(Part):
    """The results under one key prefix. ``clock`` returns epoch seconds."""

    async def note(self, endpoint: Endpoint, user_id: str, connectable: bool | None) -> None:
        """Saves a result of now, also for the user of the peer; ``user_id`` is empty if it has none."""
        result = "?" if connectable is None else str(int(connectable))
        await self._scripts.note_connectable([endpoint.hex(), result, int(self._clock()), KEEP_SECONDS, user_id])

    async def of(self, endpoints: Sequence[Endpoint]) -> dict[Endpoint, ConnectCheck]:
        """Returns the results of the last day; endpoints that were not checked are left out."""
        if not endpoints:
            return {}
        values = await self._connection.command("MGET", *map(self._keys.connectable, endpoints))
        pairs = zip(endpoints, values, strict=True)
        texts = {each: value.partition(b" ") for each, value in pairs if value is not None}
        known = {b"1": True, b"0": False}
        return {each: ConnectCheck(known.get(result), whole(at)) for each, (result, _, at) in texts.items()}

    async def of_user(self, user_id: str) -> ConnectCheck | None:
        """Returns the result for a user: connectable if a client of the user accepted a connection in the last day.
        None if no client was checked then."""
        fields = "connectable_at", "unconnectable_at"
        values = await self._connection.command("HMGET", self._keys.user(user_id), *fields)
        for connectable, value in zip((True, False), values, strict=True):
            at = whole(value)
            if at > self._clock() - KEEP_SECONDS:
                return ConnectCheck(connectable, at)
        return None


def any_connectable(checks: Mapping[Endpoint, ConnectCheck], endpoints: Sequence[Endpoint]) -> bool | None:
    """Whether one of a peer's endpoints accepted a connection in the last day; None if that is not known."""
    results = {checks[endpoint].connectable for endpoint in endpoints if endpoint in checks}
    return True if True in results else False if False in results else None
