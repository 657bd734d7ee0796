"""``tracker jobs`` on a real store (rows Q1, Q4, Q11, Q14)."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.commands import Command, command, rows, set_store
from tests.store.harness import Store
from tests.store.jobs import claim_one, end, jobs_of
from tracker.store.job import Outcome
from tracker.store.jobs import Jobs
from tracker.store.keys import Keys
from tracker.store.swarms import SwarmRules

Do = Callable[[Callable[[Jobs], Awaitable[None]]], None]


@pytest.fixture
def jobs(redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    set_store(monkeypatch, redis_url, prefix)
    with command("jobs") as run:
        yield run


@pytest.fixture
def do(redis_url: str, prefix: str) -> Do:
    """Something a tracker does with its queues meanwhile."""

    def run(work: Callable[[Jobs], Awaitable[None]]) -> None:
        async def inside() -> None:
            store = Store(redis_url, Keys(prefix), SwarmRules())
            try:
                await work(jobs_of(store, clock=time.time, max_retries=0))
            finally:
                await store.connection.close()

        asyncio.run(inside())

    return run


async def several(jobs: Jobs) -> None:
    """1 completed, 2 failed, 3 runs, 4 waits; 5 in another queue."""
    await jobs.enqueue_many("process_torrent", [{"torrent_id": str(number)} for number in range(4)])
    await end(jobs, await claim_one(jobs, "process_torrent"))
    await end(jobs, await claim_one(jobs, "process_torrent"), "failed", "no\x1b[2J route")
    await claim_one(jobs, "process_torrent")
    await jobs.enqueue("sweep", {"text": "\u202e"})


def test_jobs_are_listed_by_queue_and_status(jobs: Command, do: Do) -> None:
    """Q1."""
    assert jobs("list").stdout == ""
    do(several)
    listed = rows(jobs("list"))
    assert [row[:3] for row in listed] == [
        ["4", "process_torrent", "pending"],
        ["3", "process_torrent", "running"],
        ["1", "process_torrent", "completed"],
        ["2", "process_torrent", "failed"],
        ["5", "sweep", "pending"],
    ]
    assert listed[3][5:] == ['{"torrent_id":"1"}', "no\\x1b[2J route"]
    assert [row[0] for row in rows(jobs("list", "--status", "pending"))] == ["4", "5"]
    assert [row[0] for row in rows(jobs("list", "--queue", "sweep"))] == ["5"]
    assert [row[0] for row in rows(jobs("list", "--limit", "2"))] == ["4", "3"]
    assert json.loads(jobs("list", "--queue", "sweep", "--json").stdout)["status"] == "pending"
    assert "--status takes pending" in jobs("list", "--status", "x", code=2).stderr
    assert "error: a queue's name" in jobs("list", "--queue", "a:b", code=1).stderr


def test_long_lists_come_in_pages(jobs: Command, do: Do) -> None:
    """Q1."""

    async def many(queues: Jobs) -> None:
        await queues.enqueue_many("q", [{"n": number} for number in range(230)])

    do(many)
    assert len({row[0] for row in rows(jobs("list"))}) == 230
    assert len(rows(jobs("list", "--limit", "150"))) == 150


def test_a_job_is_shown(jobs: Command, do: Do) -> None:
    """Q1."""
    do(several)
    shown = json.loads(jobs("show", "2", "--json").stdout)
    assert (shown["status"], shown["error"], shown["max_retries"]) == ("failed", "no\x1b[2J route", 0)
    assert shown["finished"].endswith("Z") and shown["deadline"] == ""
    text = jobs("show", "2").stdout
    assert "no\\x1b[2J route" in text and "\x1b" not in text
    assert jobs("show", "99", code=1).stderr == "error: unknown job\n"


def test_failed_jobs_are_retried(jobs: Command, do: Do) -> None:
    """Q4: the others are done although one cannot be."""
    do(several)
    result = jobs("retry", "1", "3", "99", "2", code=1)
    assert result.stdout == "2 waits to run\n"
    assert (
        result.stderr
        == "error: 1: is completed already\nerror: 3: is running already\nerror: 99: unknown job\n"
    )
    assert json.loads(jobs("show", "2", "--json").stdout)["status"] == "pending"


def test_jobs_are_purged_when_it_is_meant(jobs: Command, do: Do) -> None:
    """Q11: finished ones, unless told otherwise; those that run stay."""
    do(several)
    assert "completed and failed jobs of all queues" in jobs("purge", typed="n\n", code=1).stdout
    assert len(rows(jobs("list"))) == 5
    assert jobs("purge", "--queue", "sweep", "--status", "failed", "--yes").stdout == "deleted 0\n"
    assert jobs("purge", typed="y\n").stdout.endswith("deleted 2\n")
    assert [row[0] for row in rows(jobs("list"))] == ["4", "3", "5"]
    assert jobs("purge", "--status", "pending", "--yes").stdout == "deleted 2\n"
    assert "--status takes" in jobs("purge", "--status", "running", "--yes", code=2).stderr


def test_queues_are_listed_with_their_sizes(jobs: Command, do: Do) -> None:
    assert jobs("queues").stdout == ""
    do(several)
    assert rows(jobs("queues")) == [
        ["process_torrent", "1", "1", "0", "1", "1"],
        ["sweep", "1", "0", "0", "0", "0"],
    ]
    first, _ = jobs("queues", "--json").stdout.splitlines()
    assert json.loads(first) == {
        "queue": "process_torrent",
        "pending": 1,
        "running": 1,
        "retry": 0,
        "completed": 1,
        "failed": 1,
    }


def test_young_jobs_are_kept_when_only_old_ones_are_meant(jobs: Command, do: Do) -> None:
    do(several)
    asked = jobs("purge", "--older-than", "1.5", typed="y\n").stdout
    assert "that finished more than 1.5 hours ago" in asked and asked.endswith("deleted 0\n")
    for hours in ("inf", "nan", "1e300"):
        assert "--older-than" in jobs("purge", "--older-than", hours, "--yes", code=2).stderr
    assert jobs("purge", "--older-than", "0", "--yes").stdout == "deleted 2\n"


def walking(outcome: Outcome) -> Callable[[Jobs], Awaitable[None]]:
    """A tracker that takes the walk up, and ends it so; when it is well, it scores two torrents behind it."""

    async def work(queues: Jobs) -> None:
        async with asyncio.timeout(60):
            while not await queues.waiting("reprocess"):
                await asyncio.sleep(0.02)
            walk = await claim_one(queues, "reprocess")
            if outcome == "completed":
                await queues.enqueue_many("process_torrent", [{"torrent_id": "1"}, {"torrent_id": "2"}])
            await end(queues, walk, outcome, "" if outcome == "completed" else "no way")
            for _ in range(await queues.waiting("process_torrent")):
                await end(queues, await claim_one(queues, "process_torrent"))

    return work


def test_reprocessing_is_a_job_with_a_filter(jobs: Command) -> None:
    """Q14: asked for twice it is one."""
    assert jobs("reprocess", "--min-score", "0.5", "--max-seeders", "3").stdout == "1 waits to run\n"
    assert jobs("reprocess", "--max-seeders", "3", "--min-score", "0.50").stdout == "1 is under way already\n"
    assert jobs("reprocess").stdout == "2 waits to run\n"
    shown = json.loads(jobs("show", "1", "--json").stdout)
    assert (shown["queue"], shown["payload"]) == ("reprocess", '{"max_seeders":3,"min_score":0.5}')
    assert jobs("reprocess", "--min-score", "nan", code=1).stderr == "error: a score is a number\n"


@pytest.mark.parametrize("options", [(), ("--min-score", "0")])
def test_reprocessing_is_waited_for(jobs: Command, do: Do, options: tuple[str, ...]) -> None:
    """Until the last torrent is scored, not only until the walk has passed it."""
    with ThreadPoolExecutor(1) as pool:
        tracker = pool.submit(do, walking("completed"))
        assert jobs("reprocess", "--wait", *options).stdout == "1 waits to run\nall are scored\n"
        tracker.result()
    assert rows(jobs("queues"))[0] == ["process_torrent", "0", "0", "0", "2", "0"]


def test_a_walk_that_fails_ends_the_waiting(jobs: Command, do: Do) -> None:
    with ThreadPoolExecutor(1) as pool:
        tracker = pool.submit(do, walking("fatal"))
        said = jobs("reprocess", "--wait", code=1).stderr
        tracker.result()
    assert said == "error: not all were scored: no way\n"


def test_a_filter_that_nothing_passes_is_refused(jobs: Command) -> None:
    """Q14."""
    said = jobs("reprocess", "--min-score", "2", "--max-score", "0.5", code=1).stderr
    assert said == "error: no torrent has at least the larger and at most the smaller of two figures\n"
    assert "no torrent has" in jobs("reprocess", "--min-seeders", "4", "--max-seeders", "3", code=1).stderr
    assert jobs("list").stdout == ""


def test_a_sweep_can_be_asked_for(jobs: Command) -> None:
    """Asked for twice it is one."""
    assert jobs("sweep").stdout == "1 waits to run\n"
    assert jobs("sweep").stdout == "1 is under way already\n"
    shown = json.loads(jobs("show", "1", "--json").stdout)
    assert (shown["queue"], shown["payload"], shown["status"]) == ("sweep", "{}", "pending")


def test_help_names_what_is_taken_and_what_is_meant(jobs: Command) -> None:
    """The status of jobs that run is none to purge; no limit is no number."""
    purge = " ".join(jobs("purge", "--help").stdout.split())
    assert "Only these: pending, retry, completed, failed." in purge
    assert "9007199254740992" not in jobs("list", "--help").stdout
