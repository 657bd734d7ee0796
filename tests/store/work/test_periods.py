"""The months and weeks of leaderboards."""

import random
from datetime import UTC, datetime

from tests.store.harness import START, Store
from tracker.store.client.scripts import _LUA
from tracker.store.work.periods import WEEKS_KEPT, current, ended, possible, shown, week_of, weeks_ago


def test_weeks_are_those_of_iso_8601_in_utc() -> None:
    monday = datetime(2027, 1, 4, tzinfo=UTC).timestamp()
    assert (week_of(monday - 1), week_of(monday)) == ("2026-W53", "2027-W01")
    assert current(monday - 1) == ("2027-01", "2026-W53")


def test_no_week_is_left_out_or_repeated() -> None:
    weeks = weeks_ago(START, range(60))
    assert len(set(weeks)) == 60 and weeks == sorted(weeks, reverse=True)


def test_periods_that_have_ended_are_not_shown_and_can_be_deleted() -> None:
    assert len(shown(START)) == WEEKS_KEPT + 13
    assert not set(shown(START)) & set(ended(START))
    assert {*shown(START), *ended(START)} < set(possible(START))


async def test_the_scripts_name_the_same_periods(store: Store) -> None:
    """Leaderboards are written by a script and read by their names here."""
    chance = random.Random(7)
    years = [datetime(year, 1, 1, tzinfo=UTC).timestamp() // 86_400 for year in (*range(1970, 2110), 2400, 9998)]
    days = [int(day) + near for day in years for near in (-4, -3, -2, -1, 0, 1, 2, 3, 4, 58, 59, 60)]
    days = [day for day in [*days, *(chance.randrange(2_000_000) for _ in range(2000))] if day >= 0]
    script = (_LUA / "work/work_rank.lua").read_text("utf-8")
    fragment = (_LUA / "lib/calendar.lua").read_text("utf-8")
    fragment += script[script.index("-- The UTC month") : script.index("-- The leaderboards")]
    found = await store.redis.eval(
        f"{fragment}local found = {{}} for i, day in ipairs(ARGV) do found[i] = periods_of(tonumber(day)) end "
        "return found",
        0,
        *days,
    )
    assert [each.decode() for each in found] == [" ".join(current(86_400.0 * day)) for day in days]
