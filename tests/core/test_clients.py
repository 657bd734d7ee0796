"""Which client programs may announce, by the allow-list and the deny list (row T21)."""

import pytest

from tests.core.harness import open_tracker
from tracker.bittorrent import PeerId
from tracker.settings.model import Settings

OTHER = PeerId(b"-YY0001-" + bytes(12))


async def test_the_deny_list_counts_before_the_allow_list(redis_url: str, prefix: str) -> None:
    """T21. Without a reason, clients show a default text."""
    settings = Settings.model_validate({"clients": {"allow_list": True, "deny_list": True}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        store = tracker.store
        await store.allow_list.add(b"-XX")
        assert (await tracker.announce(1)).leechers == 1
        await store.deny_list.add(b"-XX0001-")
        await store.deny_list_cache.read()
        error = await tracker.refused(2)
        assert error.text == "your client is on the deny list of this tracker; use another one"
        assert (error.label, error.retry_in) == ("client denied", 60)
        await store.deny_list.add(b"-XX0001-", "update it")
        await store.deny_list_cache.read()
        assert (await tracker.refused(2)).text == "update it"
        assert (await tracker.announce(3, peer_id=PeerId(b"-XX0002-" + bytes(12)))).leechers == 2
        error = await tracker.refused(4, peer_id=OTHER)
        assert error.text == "your client is not allowed on this tracker"
        assert await tracker.counted() == (
            {"requests": 5, "announces": 2},
            {"client denied": 2, "your client is not allowed on this tracker": 1},
        )
        assert next(label for _, label in tracker.clients_seen if label) == "client denied"


@pytest.mark.parametrize("enabled", [False, True])
async def test_the_deny_list_applies_only_when_enabled(redis_url: str, prefix: str, enabled: bool) -> None:
    settings = Settings.model_validate({"clients": {"deny_list": enabled}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        await tracker.store.deny_list.add(b"-XX", "no")
        await tracker.store.deny_list_cache.read()
        if enabled:
            assert (await tracker.refused(1)).text == "no"
        else:
            assert (await tracker.announce(1)).leechers == 1
        assert (await tracker.announce(2, peer_id=OTHER)).leechers == 2 - enabled
