"""``tracker changes`` on a real store."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from loadtest import trackers
from tests.commands import Command, command, set_store
from tests.store.harness import Store, info_hash, running, update
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules


@pytest.fixture
def changes(redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    set_store(monkeypatch, redis_url, prefix)
    monkeypatch.setenv("TRACKER_CHANGES__MAX_ENTRIES", "1000")
    with command("changes") as run:
        yield run


def announce(redis_url: str, prefix: str, *events: str) -> None:
    async def inside() -> None:
        async with running(Store(redis_url, Keys(prefix), SwarmRules(max_changes=1000))) as store:
            for event in events:
                await store.announce(update(1, event))

    asyncio.run(inside())


def test_the_feed_is_printed_from_a_position_on(changes: Command, redis_url: str, prefix: str) -> None:
    assert changes().stdout == ""
    announce(redis_url, prefix, "s", "x")
    found = [json.loads(line) for line in changes("--json").stdout.splitlines()]
    assert [(row["change"], row["info_hash"], row["leechers"]) for row in found] == [
        ("joined", info_hash(1).hex(), 1),
        ("stopped", info_hash(1).hex(), 0),
    ]
    (line,) = changes("--since", found[0]["id"]).stdout.splitlines()
    assert "stopped" in line.split("\t") and found[1]["id"] in line
    late = changes("--since", "5-0")
    assert len(late.stdout.splitlines()) == 2 and "changes are missing" in late.stderr
    assert "not the id of a change" in changes("--since", "x", code=1).stderr


def test_a_feed_that_is_off_is_an_error(changes: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKER_CHANGES__MAX_ENTRIES", "0")
    assert "TRACKER_CHANGES__MAX_ENTRIES" in changes(code=1).stderr


def test_follow_prints_changes_as_they_happen(changes: Command, redis_url: str, prefix: str) -> None:
    del changes  # its environment is inherited
    lines: list[str] = []
    settings = {name: value for name, value in os.environ.items() if name.startswith("TRACKER_")}
    command = [sys.executable, "-m", "tracker", "changes", "--follow", "--json"]
    with trackers.starter(command, env=trackers.environment(settings), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for event in ("s", "x"):
                announce(redis_url, prefix, event)
                lines.append(process.stdout.readline())
        finally:
            process.terminate()
    assert [json.loads(line)["change"] for line in lines] == ["joined", "stopped"]
