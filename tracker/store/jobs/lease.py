"""The right to do something that one of the trackers of a store does."""

import secrets
from collections.abc import Callable
from contextlib import suppress

from redis.exceptions import RedisError

from tracker.errors import StoreUnavailable
from tracker.store.client.scripts import Scripts


class Lease:
    """It ends by itself ``seconds`` after the last ``hold``. ``kind`` and ``name`` say for what it is, ``token`` names
    the holder; ``clock`` returns epoch seconds."""

    def __init__(
        self, scripts: Scripts, kind: str, name: str, seconds: int, clock: Callable[[], float], token: str = ""
    ) -> None:
        self.held = False
        """Whether this tracker had it when it asked last."""
        self.seconds = seconds
        self._scripts = scripts
        self._what = (kind, name, token or secrets.token_hex(8))
        self._clock = clock

    async def hold(self) -> int:
        """Takes or extends it. Returns how many leases of the kind are held now; 0: another tracker has this one.
        Raises StoreUnavailable and redis.exceptions.RedisError."""
        held: int = await self._scripts.hold_lease([*self._what, int(self._clock()), self.seconds])
        self.held = held > 0
        return held

    async def release(self) -> None:
        """Lets another tracker take it at once. Without the store it ends by itself."""
        if self.held:
            self.held = False
            with suppress(StoreUnavailable, RedisError):
                await self._scripts.hold_lease([*self._what, int(self._clock()), 0])
