"""Limits that change while the tracker serves: an operator under attack cannot wait for a restart."""

import asyncio

from tests.desk import Desk, open_desk
from tests.store.harness import ALICE
from tracker.errors import ClientError
from tracker.reloading import is_reloaded
from tracker.settings import Settings
from tracker.settings_limits import LimitSettings

ATTACKER = "11.7.7.7"


async def join(desk: Desk, first: int, number: int, address: str = ATTACKER) -> int:
    """How many of so many new peers of an address were served."""
    outcomes = await asyncio.gather(
        *(desk.announce(n, "started", address=address) for n in range(first, first + number)),
        return_exceptions=True,
    )
    await desk.share_limits()
    return sum(not isinstance(outcome, ClientError) for outcome in outcomes)


def test_every_limit_is_taken_over() -> None:
    assert all(is_reloaded("limits", name) for name in LimitSettings.model_fields)


async def test_a_lower_limit_holds_from_now_on(redis_url: str, prefix: str) -> None:
    settings = Settings.model_validate({"limits": {"joins_minute": 1000}})
    async with open_desk(redis_url, prefix, settings) as desk:
        assert await join(desk, 1, 100) == 100
        assert await join(desk, 101, 10) == 10
        desk.limits.go_by(LimitSettings(joins_minute=16))
        assert await join(desk, 201, 100) == 100
        assert await join(desk, 301, 10) == 0


async def test_what_is_switched_off_forgives_at_once(redis_url: str, prefix: str) -> None:
    settings = Settings.model_validate({"limits": {"joins_minute": 16}})
    async with open_desk(redis_url, prefix, settings) as desk:
        await join(desk, 1, 100)
        assert await join(desk, 101, 10) == 0
        desk.limits.go_by(LimitSettings(enabled=False))
        assert not desk.limits.strict and desk.limits.known == 0
        await desk.share_limits()
        assert not desk.limits.strict, "what the store was asked before means nobody any more"
        assert await join(desk, 201, 100) == 100
        desk.limits.go_by(LimitSettings(joins_minute=1000))
        await desk.share_limits()
        assert await join(desk, 301, 10) == 0, "verdicts that are out hold until their time is over"


async def test_fewer_guesses_are_borne_from_now_on(redis_url: str, prefix: str) -> None:
    settings = Settings.model_validate({"users": {"private": True}})
    async with open_desk(redis_url, prefix, settings) as desk:
        desk.limits.go_by(LimitSettings(unknown_passkeys_minute=8))
        for n in range(40):
            await desk.refused(n, passkey=f"{n:032x}", address=ATTACKER)
        await desk.share_limits()
        error = await desk.refused(1, passkey=ALICE, address=ATTACKER)
        assert "passkeys" in error.text
