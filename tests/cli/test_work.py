"""``tracker work`` on a real store (rows W11, W12, W15, W18, W20)."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from loadtest import trackers
from tests.commands import Command, rows
from tests.store.harness import START, Clock, Store
from tests.store.work.harness import claimed, rank
from tests.store.work.policy import swarm
from tests.waiting import until
from tracker.cli.commands.work.claims import locked, write
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.store.work.log import FinishedClaim
from tracker.store.work.periods import week_of
from tracker.store.work.records import NewItem

HASH, OTHER = "ab" * 20, "cd" * 20
Do = Callable[[Callable[[Store], Awaitable[None]]], None]


@pytest.fixture
def do(redis_url: str, prefix: str) -> Do:
    """Runs ``work`` on the store, as a tracker would."""

    def run(work: Callable[[Store], Awaitable[None]]) -> None:
        async def inside() -> None:
            store = Store(redis_url, Keys(prefix), SwarmRules(), Clock())
            try:
                await work(store)
            finally:
                await store.connection.close()

        asyncio.run(inside())

    return run


def finishing(count: int) -> Callable[[Store], Awaitable[None]]:
    """Claimants who finish this many items."""

    async def work(store: Store) -> None:
        await store.work.projects.edit("proj", {"start_budget": 1000, "budget": 1000})
        await store.work.items.add("proj", [NewItem(f"item {number}") for number in range(count)])
        for number in range(count):
            who = f"claimant{number % 3}"
            claim = await claimed(store, who, address="192.0.2.1")
            done = await store.work.claims.done(
                "proj", who, claim.item, token=claim.token, address="192.0.2.1", reported={"data": number}
            )
            assert done.counted
        await rank(store)

    return work


async def two_claims(store: Store) -> None:
    await store.work.items.add("proj", [NewItem("one/a"), NewItem("two/b")])
    await claimed(store, "alice", address="192.0.2.1")
    await claimed(store, "alice")


def test_projects_are_created_changed_and_deleted(tracker: Command) -> None:
    """W20: deleting a project leaves the others."""
    assert tracker("work", "create", "proj", "--title", "A <b>").stdout == "created proj\n"
    assert tracker("work", "create", "keep", "--kind", "seeding", "--target", "5").stdout == "created keep\n"
    listed = [json.loads(line) for line in tracker("work", "projects", "--json").stdout.splitlines()]
    assert [(row["name"], row["kind"], row["todo"], row["title"]) for row in listed] == [
        ("keep", "seeding", 0, ""),
        ("proj", "items", 0, "A <b>"),
    ]
    assert tracker("work", "edit", "proj", "--per-minute", "5", "--domains", "b, a,").stdout == "changed proj\n"
    assert "error: per_minute" in tracker("work", "edit", "proj", "--per-minute", "-1", code=1).stderr
    assert "nothing to change" in tracker("work", "edit", "proj", code=2).stderr
    assert "exists" in tracker("work", "create", "proj", code=1).stderr
    assert (
        "'--kind': 'y' is not one of 'items', 'seeding'" in tracker("work", "create", "x", "--kind", "y", code=2).stderr
    )
    assert "everything in it" in tracker("work", "delete", "proj", typed="n\n", code=1).stdout
    assert tracker("work", "delete", "proj", "--yes").stdout == "deleted proj\n"
    assert [row[0] for row in rows(tracker("work", "projects"))] == ["keep"]
    assert tracker("work", "delete", "proj", "--yes", code=1).stderr == "error: there is no such project\n"


def test_items_are_added_once_and_found(tracker: Command, tmp_path: Path) -> None:
    """W18: adding twice adds once."""
    tracker("work", "create", "proj", "--order", "weakest")
    (tmp_path / "list.txt").write_text("a\n\nb b\r\n é \n")
    assert tracker("work", "add", "proj", "list.txt").stdout == "processed 3, added 3\n"
    assert tracker("work", "add", "proj", "-", typed="a\nc\n").stdout == "processed 2, added 1\n"
    assert tracker("work", "add", "proj", "--queue", "redo", typed="r\n").stdout == "processed 1, added 1\n"
    assert tracker("work", "add", "proj", "--for", "alice", typed="own\n").stdout == "processed 1, added 1\n"
    assert {row[0] for row in rows(tracker("work", "list", "proj"))} == {"a", "b b", "é", "c"}
    assert [row[0] for row in rows(tracker("work", "list", "proj", "--queue", "redo"))] == ["r"]
    shown = json.loads(tracker("work", "show", "proj", "own", "--json").stdout)
    assert (shown["status"], shown["claimants"], shown["copies"]) == ("todo", "", 1)
    assert [row[0] for row in rows(tracker("work", "list", "proj", "--for", "alice"))] == ["own"]
    assert tracker("work", "show", "proj", "none", code=1).stderr == "error: unknown item\n"
    assert tracker("work", "remove", "proj", "a", "none").stdout == "removed 1\n"
    assert tracker("work", "purge", "proj", "--status", "todo", "--yes").stdout == "removed 3\n"
    assert rows(tracker("work", "list", "proj")) == []
    assert json.loads(tracker("work", "projects", "--json").stdout)["todo"] == 2


def test_hostile_items_are_refused_or_escaped(tracker: Command) -> None:
    """W11: one invalid item, and none is added."""
    tracker("work", "create", "proj")
    assert "without control characters" in tracker("work", "add", "proj", typed="ok\nx\x1b[2J\n", code=1).stderr
    assert "1 to 255 bytes" in tracker("work", "add", "proj", typed="x" * 256, code=1).stderr
    assert rows(tracker("work", "list", "proj")) == []
    tracker("work", "add", "proj", typed="\u202e<script>\n")
    assert rows(tracker("work", "list", "proj"))[0][0] == "\\u202e<script>"
    assert "reserved" in tracker("work", "create", "a/b", code=1).stderr


def test_items_of_seeding_are_registered_torrents(tracker: Command) -> None:
    tracker("work", "create", "keep", "--kind", "seeding")
    tracker("torrent", "add", HASH)
    assert f"{OTHER} is not registered" in tracker("work", "add", "keep", typed=f"{HASH}\n{OTHER}\n", code=1).stderr
    assert rows(tracker("work", "list", "keep")) == []
    assert tracker("work", "add", "keep", typed=f"{HASH.upper()}\n").stdout == "processed 1, added 1\n"
    assert rows(tracker("work", "list", "keep"))[0][0] == HASH


def test_claims_are_listed_and_released(tracker: Command, do: Do) -> None:
    """W12: by age, claimant, item and prefix."""
    tracker("work", "create", "proj")
    do(two_claims)
    claims = [
        json.loads(line) for line in tracker("work", "list", "proj", "--status", "out", "--json").stdout.splitlines()
    ]
    assert {(row["item"], row["claimant"], row["address"]) for row in claims} == {
        ("one/a", "alice", claims[0]["address"]),
        ("two/b", "alice", claims[1]["address"]),
    }
    assert "give --older-than" in tracker("work", "release", "proj", code=2).stderr
    assert tracker("work", "release", "proj", "--claimant", "bob").stdout == "released 0\n"
    assert tracker("work", "release", "proj", "--prefix", "one").stdout == "released 1\n"
    assert tracker("work", "release", "proj", "--item", "one/a").stdout == "released 0\n"
    assert tracker("work", "release", "proj", "--item", "two/b", "--claimant", "alice").stdout == "released 1\n"
    assert len(rows(tracker("work", "list", "proj"))) == 2


def test_the_policy_is_previewed(tracker: Command, do: Do) -> None:
    tracker("work", "create", "seeds", "--kind", "seeding")

    async def weak_torrent(store: Store) -> None:
        store.clock.now = time.time()
        await swarm(store, 1, [1] * 72)

    do(weak_torrent)
    shown = rows(tracker("work", "policy", "seeds", "--dry-run"))
    assert shown == [[f"{1:040x}", "1", "1", "2", "todo", "weak"]]
    assert rows(tracker("work", "list", "seeds")) == []
    assert "give --dry-run" in tracker("work", "policy", "seeds", code=2).stderr
    tracker("work", "create", "proj")
    assert "kind seeding" in tracker("work", "policy", "proj", "--dry-run", code=1).stderr


def test_a_claimant_is_blocked_and_unblocked(tracker: Command) -> None:
    tracker("work", "create", "proj")
    assert tracker("work", "block", "proj", "alice", "192.0.2.1").stdout == "blocked alice\nblocked 192.0.2.1\n"
    assert tracker("work", "block", "proj", "alice").stdout == "alice was blocked already\n"
    assert tracker("work", "block", "--everywhere", "2001:db8::/64").stdout == "blocked 2001:db8::/64\n"
    assert rows(tracker("work", "blocked", "proj")) == [["192.0.2.1"], ["alice"]]
    assert rows(tracker("work", "blocked")) == [["2001:db8::/64"]]
    assert tracker("work", "unblock", "proj", "alice").stdout == "unblocked alice\n"
    assert tracker("work", "unblock", "proj", "alice", code=1).stderr == "error: alice: is not blocked\n"
    assert "give a project" in tracker("work", "block", "proj", code=2).stderr
    refused = tracker("work", "block", "proj", "10.0.0.0/8", "bob", code=1)
    assert "10.0.0.0/8: " in refused.stderr and "/64" in refused.stderr and refused.stdout == "blocked bob\n"


def test_the_leaderboard_and_the_log_are_printed(tracker: Command, do: Do) -> None:
    tracker("work", "create", "proj")
    do(finishing(7))
    assert rows(tracker("work", "top", "proj")) == [
        ["claimant0", "3", "9", "0"],
        ["claimant2", "2", "7", "0"],
        ["claimant1", "2", "5", "0"],
    ]
    assert [row[0] for row in rows(tracker("work", "top", "proj", "--by", "bytes", "--limit", "1"))] == ["claimant0"]
    assert len(rows(tracker("work", "top", "proj", "--month", "2027-01"))) == 3
    assert rows(tracker("work", "top", "proj", "--month", "2026-01")) == []
    assert len(rows(tracker("work", "top", "proj", "--week", week_of(START)))) == 3
    assert rows(tracker("work", "top", "proj", "--week", "2026-W01")) == []
    for wrong in (["--week", "2026-47"], ["--week", "2026-W47", "--month", "2026-11"]):
        assert "--week" in tracker("work", "top", "proj", *wrong, code=2).stderr
    newest = json.loads(tracker("work", "log", "proj", "--limit", "1", "--json").stdout)
    assert (newest["claimant"], newest["bytes"], newest["address"]) == ("claimant0", 6, "192.0.2.1")


# Drain


def drained(directory: Path) -> list[str]:
    """Ids in the files, in order, with repeats; without lines that were cut off."""
    found = []
    for file in sorted(directory.glob("proj-*.jsonl")):
        for line in file.read_bytes().splitlines():
            try:
                found.append(str(json.loads(line)["id"]))
            except ValueError:
                continue
    return found


def test_finished_claims_are_drained_to_files(tracker: Command, do: Do, tmp_path: Path) -> None:
    """W15: each once, and later ones by the next command."""
    tracker("work", "create", "proj")
    do(finishing(3))
    assert tracker("work", "drain", "proj", "out").stdout == "written 3\n"
    (file,) = (tmp_path / "out").iterdir()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["bytes"] for line in lines] == [{"data": 0}, {"data": 1}, {"data": 2}]
    assert lines[0]["project"] == "proj" and lines[0]["address"] == "192.0.2.1"
    assert file.stat().st_mode & 0o777 == 0o600
    assert tracker("work", "drain", "proj", "out").stdout == "written 0\n"
    assert "no such project" in tracker("work", "drain", "none", "out", code=1).stderr


def test_a_line_that_was_cut_off_swallows_no_other(tmp_path: Path) -> None:
    """W15."""
    entry = FinishedClaim("1800000000000-0", 1.8e9, "a", "alice", "", "", "")
    write(tmp_path, "proj", [entry])
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:20])
    write(tmp_path, "proj", [entry])
    assert file.read_bytes() == whole + whole[:20] + b"\n" + whole


@pytest.mark.slow
@pytest.mark.long
def test_a_killed_drain_loses_no_line(tracker: Command, do: Do, tmp_path: Path, redis_url: str, prefix: str) -> None:
    """W15: killed after ever more bytes; the last command completes the files."""
    tracker("work", "create", "proj")
    do(finishing(4000))
    settings = {"TRACKER_REDIS__URL": redis_url, "TRACKER_REDIS__PREFIX": prefix}
    out = tmp_path / "out"

    def size() -> int:
        return sum(file.stat().st_size for file in out.glob("*.jsonl"))

    for _ in range(4):
        before = size()
        with subprocess.Popen(
            [sys.executable, "-m", "tracker", "work", "drain", "proj", str(out)],
            cwd=tmp_path,
            env=trackers.environment(settings),
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        ) as process:
            until(lambda: size() > before or process.poll() is not None, poll_seconds=0.0001)  # noqa: B023
            process.kill()
    tracker("work", "drain", "proj", str(out))
    found = drained(out)
    assert len(set(found)) == 4000
    assert tracker("work", "drain", "proj", str(out)).stdout == "written 0\n"


def test_two_drains_of_a_directory_exclude_each_other(tracker: Command, tmp_path: Path) -> None:
    tracker("work", "create", "proj")
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out"):
        assert "another command" in tracker("work", "drain", "proj", "out", code=1).stderr
