"""Which tracker samples the sizes of the store: one of those that share it."""

from tracker.store.client.scripts import Scripts

SAMPLED = ("seeders", "leechers", "torrents", "users")
"""The distributions that hold the samples."""
SAMPLED_PARTS = tuple(
    f"{kind}.{part}" for part in ("v4", "v6", "http", "udp") for kind in ("seeders", "leechers")
)
"""The same of what the sweep has counted last."""
SAMPLE_SECONDS = 5
LEASE_SECONDS = 15
_KIND, _NAME = "samples", "sizes"


class SizeSamples:
    """``token`` names a tracker, ``now`` is epoch seconds. Raises StoreUnavailable and RedisError."""

    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def take(self, token: str, now: int) -> bool:
        """Takes or renews the lease. False where another tracker has it."""
        return bool(await self._scripts.named_lease([_KIND, _NAME, token, now, now + LEASE_SECONDS]))

    async def release(self, token: str, now: int) -> None:
        await self._scripts.named_lease([_KIND, _NAME, token, now, ""])
