"""Rules of multipliers that are set and removed one at a time, by several callers at once."""

import asyncio
from typing import Any

import pytest

from tests.store.harness import ALICE, START, Store, info_hash
from tracker.errors import ClientError
from tracker.store.schema.multipliers import Multiplier, RuleChange, rule_change


def rule(name: str, upload: float | None, download: float | None = None, until: int | None = None) -> RuleChange:
    return rule_change(START, name, upload, download, until)


@pytest.mark.parametrize("level", ["torrent", "user", "all"])
async def test_a_rule_is_set_and_removed_beside_others(private: Store, level: str) -> None:
    """Rules that have ended, and text that is none, go when the field is written."""
    await private.torrents.add(info_hash(1))

    async def change(change: RuleChange) -> bool:
        if level == "torrent":
            return await private.torrents.change_rule(info_hash(1), change)
        if level == "user":
            return await private.users.change_rule(ALICE, change)
        return await private.multipliers.change_rule(change)

    async def stored() -> tuple[str, str]:
        if level == "torrent":
            found = await private.redis.hmget(private.keys.torrent(info_hash(1)), "multi_up", "multi_dn")
        elif level == "user":
            found = await private.redis.hmget(private.keys.passkey(ALICE), "upload_multiplier", "download_multiplier")
        else:
            names = private.keys.upload_multiplier(), private.keys.download_multiplier()
            found = await private.redis.mget(*names)
        up, down = ((text or b"").decode() for text in found)
        return up, down

    assert not await change(RuleChange(START, "donor"))
    assert await change(rule("donor", 2, 0, until=START + 9))
    assert await change(rule("", 1.5))
    assert await change(rule("group", None, 0.5))
    assert await stored() == (f"2 {START + 9} donor, 1.5", f"0 {START + 9} donor, 0.5 group")
    assert await change(rule("donor", 3))
    assert await stored() == ("3 donor, 1.5", "0.5 group")
    assert await change(rule("event", 4)._replace(now=START + 50))
    assert await change(RuleChange(START + 50, "group"))
    assert await stored() == ("3 donor, 1.5, 4 event", "")
    assert not await change(RuleChange(START, "group"))
    assert await change(RuleChange(START, ""))
    assert await stored() == ("3 donor, 4 event", "")
    for number in range(6):
        assert await change(rule(f"r{number}", 2))
    with pytest.raises(ClientError, match="at most 8"):
        await change(rule("r6", 2))
    assert await change(rule("r5", 2.5))
    assert (await stored())[0].endswith("2 r4, 2.5 r5")


async def test_rules_that_have_ended_make_room(private: Store) -> None:
    held = ", ".join(f"2 {START + number} r{number}" for number in range(8))
    await private.redis.hset(private.keys.passkey(ALICE), "upload_multiplier", f"{held}, oops")
    await private.users.change_rule(ALICE, rule("new", 3)._replace(now=START + 6))
    stored = await private.redis.hget(private.keys.passkey(ALICE), "upload_multiplier")
    assert stored == f"2 {START + 7} r7, 3 new".encode()


async def test_rules_set_at_the_same_time_all_stay(private: Store) -> None:
    await private.torrents.add(info_hash(1))
    names = [f"rule{number}" for number in range(8)]
    await asyncio.gather(
        *(private.users.change_rule(ALICE, rule(name, 2)) for name in names),
        *(private.torrents.change_rule(info_hash(1), rule(name, None, 0.5)) for name in names),
        *(private.multipliers.change_rule(rule(name, 2, 0.5)) for name in names),
    )
    torrent, of_all = await private.torrents.get(info_hash(1)), await private.multipliers.get()
    assert torrent
    found = [(await private.users.find("7")).upload_multiplier, torrent.download_multiplier, *of_all]
    assert [{each.name for each in rules} for rules in found] == [set(names)] * 4


async def test_one_multiplier_for_all_users_is_replaced_without_the_other(private: Store) -> None:
    await private.multipliers.set("2", "0.5")
    await asyncio.gather(private.multipliers.set(upload="3"), private.multipliers.set(download="0"))
    assert await private.multipliers.get() == ((Multiplier(3),), (Multiplier(0),))


async def test_rules_of_unknown_users_and_torrents_are_not_set(private: Store) -> None:
    with pytest.raises(ClientError, match="no such user"):
        await private.users.change_rule("x" * 20, rule("donor", 2))
    with pytest.raises(ClientError, match="unknown torrent"):
        await private.torrents.change_rule(info_hash(9), rule("donor", 2))
    assert not await private.redis.exists(private.keys.passkey("x" * 20), private.keys.torrent(info_hash(9)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "2nd"}, "the name of a rule"),
        ({"name": "NaN"}, "the name of a rule"),
        ({"name": "a b"}, "the name of a rule"),
        ({"upload": None}, "needs a multiplier"),
        ({"upload": "2, 3"}, "one number"),
        ({"upload": float("inf")}, "a number from 0"),
        ({"upload": float("nan")}, "a number from 0"),
        ({"until": START}, "in the future"),
        ({"until": 10**12}, "its end"),
    ],
)
def test_an_invalid_rule_is_refused(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"name": "donor", "upload": 2, "until": START + 9} | changes
    with pytest.raises(ClientError, match=message):
        rule_change(START, **given)
