"""``tracker unique`` on a real store."""

import asyncio
import json
from functools import partial

import pytest
from redis import Redis

from loadtest.servers import Server
from tests.commands import Command, rows
from tests.store.harness import START, Store, info_hash
from tracker.store.schema.keys import Keys
from tracker.store.stats.metric_names import place_names
from tracker.store.stats.slices import month_of
from tracker.store.stats.unique_users import UniqueUserEvent
from tracker.store.swarms.rules import SwarmRules

FIRST, SECOND = info_hash(1).hex(), info_hash(2).hex()
LONDON = place_names("United Kingdom", "London", "SW1A")
PARIS = place_names("France", "Paris", "75001")
LATER = START + 31 * 86_400


@pytest.fixture
def unique(tracker: Command) -> Command:
    return partial(tracker, "unique")


@pytest.fixture
def seen(redis_url: str, prefix: str) -> None:
    """Three users in London and one in Paris on torrent 1; a month later one in London on torrent 2."""

    async def fill() -> None:
        store = Store(redis_url, Keys(prefix), SwarmRules())
        await store.torrents.add(info_hash(1), {"name": "one\x1b[2J"})
        await store.torrents.add(info_hash(2))
        batch = [UniqueUserEvent(info_hash(1), f"192.0.2.{n}", PARIS if n == 3 else LONDON) for n in range(4)]
        await store.unique_users.count(batch, START)
        await store.unique_users.count([UniqueUserEvent(info_hash(2), "192.0.2.99", LONDON)], LATER)
        await store.connection.close()

    asyncio.run(fill())


@pytest.mark.usefixtures("seen")
def test_places_are_ranked(unique: Command) -> None:
    """B13: of all time and by month."""
    assert rows(unique("top", "countries")) == [["4", "United_Kingdom"], ["1", "France"]]
    assert rows(unique("top", "countries", "--month", month_of(START))) == [["3", "United_Kingdom"], ["1", "France"]]
    assert rows(unique("top", "cities", "--limit", "1")) == [["4", "United_Kingdom/London"]]
    (line,) = unique("top", "postcodes", "--month", month_of(LATER), "--json").stdout.splitlines()
    assert json.loads(line) == {"users": 1, "place": "United_Kingdom/SW1A"}
    nothing = unique("top", "countries", "--month", "2020-01")
    assert nothing.stdout == "" and "no unique users counted by place in 2020-01" in nothing.stderr


@pytest.mark.usefixtures("seen")
def test_torrents_are_ranked_with_their_names(unique: Command) -> None:
    """B13."""
    assert rows(unique("top", "torrents")) == [[FIRST, "4", "one[2J"], [SECOND, "1", ""]]
    assert rows(unique("top", "torrents", "--month", month_of(LATER))) == [[SECOND, "1", ""]]


@pytest.mark.usefixtures("seen")
def test_a_figure_is_for_all_time_or_for_a_month(unique: Command) -> None:
    """B13."""
    assert rows(unique("figure", "countries", "United_Kingdom", "France", "Germany")) == [
        ["4", "United_Kingdom"],
        ["1", "France"],
        ["0", "Germany"],
    ]
    later = ("--month", month_of(LATER))
    assert rows(unique("figure", "cities", "United_Kingdom/London", *later)) == [["1", "United_Kingdom/London"]]
    (line,) = unique("figure", "torrents", SECOND, *later, "--json").stdout.splitlines()
    assert rows(unique("figure", "torrents", SECOND.upper(), *later))[0][0] == str(json.loads(line)["users"])
    assert "40 hexadecimal" in unique("figure", "torrents", "GB", code=1).stderr
    assert json.loads(line) == {"users": 1, "name": SECOND}
    for wrong in ("", "a:b", "G B", "GB.users"):
        assert "as `tracker unique top` prints them" in unique("figure", "countries", wrong, code=2).stderr


@pytest.mark.usefixtures("seen")
def test_a_torrent_is_shown_with_its_places(unique: Command) -> None:
    shown = rows(unique("show", FIRST))
    assert shown[0] == ["4", "all", ""]
    assert sorted(shown[1:4]) == [
        ["3", "cities", "United_Kingdom/London"],
        ["3", "countries", "United_Kingdom"],
        ["3", "postcodes", "United_Kingdom/SW1A"],
    ]
    assert len(shown) == 7
    assert len(rows(unique("show", FIRST, "--limit", "2"))) == 3
    first, *_ = unique("show", SECOND, "--json").stdout.splitlines()
    assert json.loads(first) == {"users": 1, "scope": "all", "place": ""}


def test_a_note_says_that_no_users_were_counted(unique: Command) -> None:
    assert unique("top", "torrents").stderr == "note: no unique users counted yet\n"
    assert "by place yet; `tracker doctor` checks" in unique("top", "cities").stderr
    assert unique("top", "cities", "--json").output == ""


@pytest.mark.usefixtures("seen")
def test_numbers_that_may_be_too_high_have_a_note(unique: Command, valkey: Server, prefix: str) -> None:
    """On standard error, so that programs can parse the output."""
    with valkey.client() as client:
        client.hset(Keys(prefix).unique_forgotten(), "all", 9)
    for words in (("top", "countries"), ("figure", "countries", "France"), ("show", FIRST)):
        assert "at most 9 in total" in unique(*words).stderr
    assert unique("top", "countries", "--month", month_of(START)).stderr == ""


def test_what_is_wrong_is_one_line(unique: Command) -> None:
    assert unique("show", FIRST, code=1).stderr == "error: no unique users counted on this torrent\n"
    assert "40 hexadecimal digits" in unique("show", "x", code=1).stderr
    assert "such as 2026-11" in unique("top", "countries", "--month", "November", code=2).stderr
    assert ": 'planets' is not one of 'countries'" in unique("top", "planets", code=2).stderr


@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize("text", ["somebody's", "1.5", "-1", "9" * 5000])
def test_a_stored_figure_that_is_no_number_counts_as_zero(
    unique: Command, valkey: Server, prefix: str, text: str
) -> None:
    with valkey.client() as client:
        client.set(f"{prefix}torrents.{FIRST}.users", text)
    assert unique("show", FIRST, code=1).stderr == "error: no unique users counted on this torrent\n"


@pytest.mark.usefixtures("seen")
def test_flush_asks_before_it_deletes(unique: Command, valkey: Server, prefix: str) -> None:
    """B14: torrents stay."""
    assert "Torrents, scores and counters stay" in unique("flush", typed="n\n", code=1).stdout
    assert len(rows(unique("top", "countries"))) == 2
    with valkey.client() as client:
        before = _keys(client, prefix)
        said = unique("flush", "--yes").stdout
        left = _keys(client, prefix) - {f"{prefix}audit"}  # which names this command
    assert said == f"deleted {len(before) - len(left)} keys\n"
    assert unique("top", "countries").stdout == ""
    assert {f"{prefix}t:{FIRST}", f"{prefix}info_hash:{FIRST}", f"{prefix}i:seeders"} <= left
    assert not {key for key in left if ".users" in key or "unique" in key}
    assert unique("flush", "--yes").stdout == "deleted 0 keys\n"


def _keys(client: "Redis", prefix: str) -> set[str]:
    return {key.decode() for key in client.scan_iter(f"{prefix}*", 1000)}
