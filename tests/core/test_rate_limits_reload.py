"""Rate limits change without a restart: an operator under attack cannot wait for one."""

import asyncio

import pytest

from tests.core.harness import TrackerHarness, at, open_tracker
from tests.store.harness import ALICE
from tracker.refusals import Refusal
from tracker.settings.model import RELOADED, Settings
from tracker.settings.public import LimitSettings

ATTACKER = "11.7.7.7"


async def join(tracker: TrackerHarness, first: int, number: int, address: str = ATTACKER) -> int:
    """The number of new peers of an address that were served, of ``number``."""
    outcomes = await asyncio.gather(
        *(tracker.announce(n, "started", address=address) for n in range(first, first + number)), return_exceptions=True
    )
    await tracker.share_limits()
    return sum(not isinstance(outcome, Refusal) for outcome in outcomes)


def test_every_limit_setting_is_reloaded() -> None:
    assert all(("limits", name) in RELOADED for name in LimitSettings.model_fields)


async def test_a_lower_limit_applies_at_once(redis_url: str, prefix: str) -> None:
    settings = Settings.model_validate({"limits": {"joins_minute": 1000}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        assert await join(tracker, 1, 100) == 100
        assert await join(tracker, 101, 10) == 10
        tracker.limits.apply_settings(LimitSettings(joins_minute=16))
        assert await join(tracker, 201, 100) == 100
        assert await join(tracker, 301, 10) == 0


async def test_disabling_limits_ends_all_stages_at_once(redis_url: str, prefix: str) -> None:
    settings = Settings.model_validate({"limits": {"joins_minute": 16}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        await join(tracker, 1, 100)
        assert await join(tracker, 101, 10) == 0
        tracker.limits.apply_settings(LimitSettings(enabled=False))
        assert not tracker.limits.strict and not tracker.limits._decisions
        await tracker.share_limits()
        assert not tracker.limits.strict, "stages shared before limits were disabled do not apply"
        assert await join(tracker, 201, 100) == 100
        tracker.limits.apply_settings(LimitSettings(joins_minute=1000))
        await tracker.share_limits()
        assert await join(tracker, 301, 10) == 0, "stages in the store stay until they expire"


async def test_a_lower_limit_on_unknown_passkeys_applies_at_once(redis_url: str, prefix: str) -> None:
    settings = Settings.model_validate({"users": {"private": "required"}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        tracker.limits.apply_settings(LimitSettings(unknown_passkeys_minute=8))
        for n in range(40):
            await tracker.refused(n, passkey=f"{n:032x}", address=ATTACKER)
        await tracker.share_limits()
        error = await tracker.refused(1, passkey=ALICE, address=ATTACKER)
        assert "passkeys" in error.text


async def test_a_reload_applies_to_the_check_of_a_passkey(redis_url: str, prefix: str) -> None:
    settings = Settings.model_validate({"users": {"private": "required"}, "limits": {"unknown_passkeys_minute": 8}})
    async with open_tracker(redis_url, prefix, settings) as tracker:
        for n in range(40):
            await tracker.refused(n, passkey=f"{n:032x}", address=ATTACKER)
        await tracker.share_limits()
        for limits, reason in ((settings.limits, "too many"), (LimitSettings(enabled=False), "^unknown passkey")):
            tracker.decisions._live.current = settings.model_copy(update={"limits": limits})
            with pytest.raises(Refusal, match=reason):
                await tracker.decisions.check_passkey(ALICE, at(ATTACKER))
