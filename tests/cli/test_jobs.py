"""``tracker jobs`` on a real store (rows Q1, Q4, Q11, Q14)."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.commands import Command, rows
from tests.store.harness import Store
from tests.store.jobs.harness import claim_one, end, jobs_of
from tests.waiting import eventually
from tracker.store.jobs.jobs import Jobs
from tracker.store.jobs.records import Outcome
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

Do = Callable[[Callable[[Jobs], Awaitable[None]]], None]


@pytest.fixture
def jobs(tracker: Command) -> Command:
    return partial(tracker, "jobs")


@pytest.fixture
def do(redis_url: str, prefix: str) -> Do:
    """Runs ``work`` on the queues, as a tracker would."""

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
    """1 is completed, 2 failed, 3 running, 4 pending; 5 is in another queue."""
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
    assert "'--status': 'x' is not one of 'pending'" in jobs("list", "--status", "x", code=2).stderr
    assert "error: a queue name" in jobs("list", "--queue", "a:b", code=1).stderr


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
    """Q4: one failure does not stop the others."""
    do(several)
    result = jobs("retry", "1", "3", "99", "2", code=1)
    assert result.stdout == "2 queued\n"
    assert result.stderr == "error: 1: is completed already\nerror: 3: is running already\nerror: 99: unknown job\n"
    assert json.loads(jobs("show", "2", "--json").stdout)["status"] == "pending"


def test_jobs_are_purged_after_confirmation(jobs: Command, do: Do) -> None:
    """Q11: finished jobs by default; running jobs stay."""
    do(several)
    assert "completed and failed jobs of all queues" in jobs("purge", typed="n\n", code=1).stdout
    assert len(rows(jobs("list"))) == 5
    assert jobs("purge", "--queue", "sweep", "--status", "failed", "--yes").stdout == "deleted 0\n"
    assert jobs("purge", typed="y\n").stdout.endswith("deleted 2\n")
    assert [row[0] for row in rows(jobs("list"))] == ["4", "3", "5"]
    assert jobs("purge", "--status", "pending", "--yes").stdout == "deleted 2\n"
    assert "'--status': 'running' is not one of" in jobs("purge", "--status", "running", "--yes", code=2).stderr


def test_queues_are_listed_with_their_sizes(jobs: Command, do: Do) -> None:
    assert jobs("queues").stdout == ""
    do(several)
    assert jobs("limit", "sweep", "--concurrency", "2", "--priority", "-3").stdout == "changed sweep\n"
    assert "concurrency is" in jobs("limit", "sweep", "--concurrency", "257", code=1).stderr
    assert rows(jobs("queues")) == [
        ["process_torrent", "1", "1", "0", "1", "1", "", ""],
        ["sweep", "1", "0", "0", "0", "0", "2", "-3"],
    ]
    first, _ = jobs("queues", "--json").stdout.splitlines()
    assert json.loads(first) == {
        "queue": "process_torrent",
        "pending": 1,
        "running": 1,
        "retry": 0,
        "completed": 1,
        "failed": 1,
        "concurrency": None,
        "priority": None,
    }
    jobs("limit", "sweep")
    assert rows(jobs("queues"))[1][-2:] == ["", ""]
    assert "queue name" in jobs("limit", "no queue", code=1).stderr


def test_recent_jobs_are_kept_with_older_than(jobs: Command, do: Do) -> None:
    do(several)
    asked = jobs("purge", "--older-than", "1.5", typed="y\n").stdout
    assert "that finished more than 1.5 hours ago" in asked and asked.endswith("deleted 0\n")
    asked = jobs("purge", "--older-than", "1.5", "--status", "pending", typed="y\n").stdout
    assert "that could have started more than 1.5 hours ago" in asked and asked.endswith("deleted 0\n")
    for hours in ("inf", "nan", "1e300"):
        assert "--older-than" in jobs("purge", "--older-than", hours, "--yes", code=2).stderr
    assert jobs("purge", "--older-than", "0", "--yes").stdout == "deleted 2\n"


def walking(outcome: Outcome) -> Callable[[Jobs], Awaitable[None]]:
    """A tracker that runs the rescoring job and ends it with this outcome; on success it scores two torrents."""

    async def work(queues: Jobs) -> None:
        async def is_enqueued() -> bool:
            return bool(await queues.waiting("reprocess"))

        async with asyncio.timeout(60):
            await eventually(is_enqueued)
            walk = await claim_one(queues, "reprocess")
            if outcome == "completed":
                await queues.enqueue_many("process_torrent", [{"torrent_id": "1"}, {"torrent_id": "2"}])
            await end(queues, walk, outcome, "" if outcome == "completed" else "no way")
            for _ in range(await queues.waiting("process_torrent")):
                await end(queues, await claim_one(queues, "process_torrent"))

    return work


def test_rescoring_is_a_job_with_a_filter(jobs: Command) -> None:
    """Q14: queued twice, it is one job."""
    assert jobs("reprocess", "--min-score", "0.5", "--max-seeders", "3").stdout == "1 queued\n"
    assert jobs("reprocess", "--max-seeders", "3", "--min-score", "0.50").stdout == "1 is already queued or running\n"
    assert jobs("reprocess").stdout == "2 queued\n"
    shown = json.loads(jobs("show", "1", "--json").stdout)
    assert (shown["queue"], shown["payload"]) == ("reprocess", '{"max_seeders":3,"min_score":0.5}')
    assert jobs("reprocess", "--min-score", "nan", code=1).stderr == "error: a score is a number\n"


@pytest.mark.parametrize("options", [(), ("--min-score", "0")])
def test_a_command_waits_for_rescoring(jobs: Command, do: Do, options: tuple[str, ...]) -> None:
    """Waits until the last torrent is scored, not only queued."""
    with ThreadPoolExecutor(1) as pool:
        tracker = pool.submit(do, walking("completed"))
        assert jobs("reprocess", "--wait", *options).stdout == "1 queued\nall torrents are scored\n"
        tracker.result()
    assert rows(jobs("queues"))[0][:6] == ["process_torrent", "0", "0", "0", "2", "0"]


def test_a_failed_rescoring_ends_the_waiting(jobs: Command, do: Do) -> None:
    with ThreadPoolExecutor(1) as pool:
        tracker = pool.submit(do, walking("fatal"))
        said = jobs("reprocess", "--wait", code=1).stderr
        tracker.result()
    assert said == "error: rescoring stopped: no way\n"


def test_an_empty_filter_range_is_refused(jobs: Command) -> None:
    """Q14."""
    said = jobs("reprocess", "--min-score", "2", "--max-score", "0.5", code=1).stderr
    assert said == "error: a minimum exceeds its maximum\n"
    assert "a minimum exceeds" in jobs("reprocess", "--min-seeders", "4", "--max-seeders", "3", code=1).stderr
    assert jobs("list").stdout == ""


def test_a_sweep_can_be_queued(jobs: Command) -> None:
    """Queued twice, it is one job."""
    assert jobs("sweep").stdout == "1 queued\n"
    assert jobs("sweep").stdout == "1 is already queued or running\n"
    shown = json.loads(jobs("show", "1", "--json").stdout)
    assert (shown["queue"], shown["payload"], shown["status"]) == ("sweep", "{}", "pending")


def test_help_names_the_accepted_values(jobs: Command) -> None:
    """Running jobs cannot be purged; a limit without a maximum is shown as all."""
    purge = " ".join(jobs("purge", "--help").stdout.split())
    assert "<pending|retry|completed|failed>" in purge
    assert "9007199254740992" not in jobs("list", "--help").stdout
