"""``tracker client seen`` on a real store; test_main.py tests the allow-list."""

import asyncio
import json
from functools import partial

import pytest

from tests.commands import Command, rows
from tests.store.harness import START, Store, count_software
from tracker.store.schema.keys import Keys
from tracker.store.stats.client_software import MAX_BATCH
from tracker.store.stats.slices import month_of, month_start
from tracker.store.swarms.rules import SwarmRules

LATER = month_start(START, 1).timestamp()


@pytest.fixture
def client(tracker: Command) -> Command:
    return partial(tracker, "client")


@pytest.fixture
def heard(redis_url: str, prefix: str) -> None:
    """Two programs joined, one of them a month later. One was refused for two reasons."""

    async def fill() -> None:
        store = Store(redis_url, Keys(prefix), SwarmRules())
        refused = {("qB 5", "unknown torrent"): 4, ("qB 5", "not: here"): 1}
        await count_software(store.client_software, 1, {("qB 5", ""): 3, ("TR 4", ""): 2, **refused}, START)
        await count_software(store.client_software, 2, {("TR 4", ""): 2}, LATER)
        await store.connection.close()

    asyncio.run(fill())


@pytest.mark.usefixtures("heard")
def test_programs_are_listed_by_joins(client: Command) -> None:
    assert rows(client("seen")) == [["4", "TR 4"], ["3", "qB 5"]]
    assert rows(client("seen", "--month", month_of(START))) == [["3", "qB 5"], ["2", "TR 4"]]
    (line,) = client("seen", "--month", month_of(LATER), "--json").stdout.splitlines()
    assert json.loads(line) == {"joins": 2, "program": "TR 4"}
    assert rows(client("seen", "--limit", "1")) == [["4", "TR 4"]]


@pytest.mark.usefixtures("heard")
def test_refused_programs_are_listed_with_their_reasons(client: Command) -> None:
    assert rows(client("seen", "--failures")) == [["4", "qB 5", "unknown torrent"], ["1", "qB 5", "not: here"]]
    line = client("seen", "--failures", "--json").stdout.splitlines()[0]
    assert json.loads(line) == {"failures": 4, "program": "qB 5", "reason": "unknown torrent"}


def test_no_clients_counted_is_a_note(client: Command) -> None:
    result = client("seen")
    assert result.stdout == "" and result.stderr.startswith("note: no client was counted yet")
    assert "in 2020-01" in client("seen", "--month", "2020-01").stderr
    assert client("seen", "--json").stderr == ""
    assert "such as 2026-11" in client("seen", "--month", "2026-13", code=2).stderr


def test_long_lists_come_in_pages(client: Command, redis_url: str, prefix: str) -> None:
    async def fill() -> None:
        store = Store(redis_url, Keys(prefix), SwarmRules())
        for number in range(3):
            first = number * MAX_BATCH
            await count_software(
                store.client_software, number, {(f"x{n}", ""): n + 1 for n in range(first, first + MAX_BATCH)}, START
            )
        await store.connection.close()

    asyncio.run(fill())
    listed = rows(client("seen", "--limit", "240"))
    assert [int(row[0]) for row in listed] == list(range(3 * MAX_BATCH, 3 * MAX_BATCH - 240, -1))
