"""``tracker user show``, ``torrents``, ``owing`` and ``forgive`` on a real store; test_main.py tests the others."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from loadtest import trackers
from tests.commands import Command, command, rows
from tests.store.harness import ALICE, BOB, Store, info_hash, running, update
from tracker.bittorrent import PeerId
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules

HASH = info_hash(1).hex()


@pytest.fixture
def user(tracker: Command) -> Command:
    return partial(tracker, "user")


@pytest.fixture
def owing(redis_url: str, prefix: str) -> None:
    """User 7 has hit-and-runs on torrents 1 to 3 and seeds torrent 4; user 8 has one on torrent 1."""

    async def fill() -> None:
        rules = SwarmRules(accounts="required", hnr_min_bytes=100, hnr_threshold=1000)
        async with running(Store(redis_url, Keys(prefix), rules)) as store:
            for user_id, passkey in (("7", ALICE), ("8", BOB)):
                await store.users.add(user_id, passkey)
            await store.torrents.add(info_hash(1), {"name": "one\x1b[2J"})
            for passkey, torrent in ((ALICE, 1), (ALICE, 2), (ALICE, 3), (BOB, 1)):
                peer = torrent + (100 if passkey == BOB else 0)
                await store.announce(update(peer, "s", torrent, passkey=passkey))
                store.clock.now += 10
                await store.announce(update(peer, "x", torrent, passkey=passkey, downloaded=500))
            await store.announce(update(4, "s", 4, passkey=ALICE, bytes_left=0))

    asyncio.run(fill())


@pytest.mark.usefixtures("owing")
def test_a_user_is_shown_with_the_sizes_of_the_sets(user: Command) -> None:
    shown = json.loads(user("show", "7", "--json").stdout)
    sizes = {name: shown[name] for name in ("active", "complete", "incomplete", "hnr")}
    assert sizes == {"active": 1, "complete": 1, "incomplete": 3, "hnr": 3}


def test_cut_credit_is_in_each_list_and_can_be_set(user: Command, redis_url: str, prefix: str) -> None:
    async def announce_above_the_rate() -> None:
        rules = SwarmRules(accounts="required", max_credit=100)
        async with running(Store(redis_url, Keys(prefix), rules)) as store:
            await store.users.add("7", ALICE)
            await store.announce(update(1, "s", passkey=ALICE))
            store.clock.now += 10
            await store.announce(update(1, passkey=ALICE, uploaded=1234))

    asyncio.run(announce_above_the_rate())
    for words in (("show", "7"), ("list",), ("torrents", "7", "active")):
        assert json.loads(user(*words, "--json").stdout)["credit_cut"] in (234, "234"), words
        assert "234" in user(*words).stdout.split(), words
    user("edit", "7", "--credit-cut", "0", "--uploaded", "1234")
    shown = json.loads(user("show", "7", "--json").stdout)
    assert (shown["uploaded"], shown["credit_cut"]) == (1234, 0)


def test_unregistered_torrents_of_a_user_are_listed(user: Command, redis_url: str, prefix: str) -> None:
    user("add", "--id", "7")

    async def announce() -> None:
        rules = SwarmRules(accounts="required", open=False)
        async with running(Store(redis_url, Keys(prefix), rules)) as store:
            passkey = await store.users.passkey_of("7")
            store.clock.now = time.time()
            assert passkey and await store.refused(update(1, "s", passkey=passkey)) == "unknown torrent at first"

    asyncio.run(announce())
    (line,) = user("unregistered", "7", "--json").stdout.splitlines()
    assert json.loads(line)["info_hash"] == HASH
    user("unregistered", "8", code=1)


@pytest.mark.usefixtures("owing")
def test_the_torrents_of_a_set_are_listed_with_the_users_totals(user: Command) -> None:
    """Control characters of names are left out."""
    listed = sorted(rows(user("torrents", "7", "hnr")))
    assert listed[0] == ["1", "0", "500", "10", "0", "0", HASH, "one[2J"]
    assert [row[0] for row in listed] == ["1", "2", "3"]
    found = [json.loads(line) for line in user("torrents", ALICE, "active", "--json").stdout.splitlines()]
    assert [(row["torrent_id"], row["info_hash"]) for row in found] == [("4", info_hash(4).hex())]
    assert user("torrents", "8", "complete").stdout == ""
    assert "Invalid value" in user("torrents", "7", "all", code=2).stderr
    assert user("torrents", "99", "hnr", code=1).stderr == "error: there is no such user\n"


@pytest.mark.usefixtures("owing")
def test_users_with_hit_and_runs_are_listed_highest_first(user: Command) -> None:
    assert rows(user("owing")) == [["3", "7"], ["1", "8"]]
    assert rows(user("owing", "--limit", "1")) == [["3", "7"]]
    (first, _) = user("owing", "--json").stdout.splitlines()
    assert json.loads(first) == {"hit_and_runs": 3, "user_id": "7"}


def test_no_hit_and_runs_is_a_note(user: Command) -> None:
    result = user("owing")
    assert (result.stdout, result.stderr) == ("", "note: no user has a hit-and-run\n")
    assert user("owing", "--json").stderr == ""


@pytest.mark.usefixtures("owing")
def test_single_hit_and_runs_are_cleared_by_id_or_info_hash(user: Command) -> None:
    result = user("forgive", "7", HASH, "2", "9", "ab" * 20, code=1)
    assert result.stdout == (
        f"cleared the hit-and-run of user 7 on torrent {HASH}\ncleared the hit-and-run of user 7 on torrent 2\n"
    )
    assert result.stderr.splitlines() == [
        "error: 9: user 7 has no hit-and-run on this torrent",
        f"error: {'ab' * 20}: user 7 has no hit-and-run on this torrent",
    ]
    assert [row[0] for row in rows(user("torrents", "7", "hnr"))] == ["3"]
    assert rows(user("owing")) == [["1", "8"], ["1", "7"]]


@pytest.mark.usefixtures("owing")
def test_all_hit_and_runs_are_cleared_after_confirmation(user: Command) -> None:
    assert "all 3 hit-and-runs of user 7?" in user("forgive", "7", typed="n\n", code=1).stdout
    assert rows(user("owing"))[0] == ["3", "7"]
    assert user("forgive", "7", "--yes").stdout == "cleared 3 hit-and-runs of user 7\n"
    assert user("forgive", "7").stdout == "cleared 0 hit-and-runs of user 7\n"
    assert rows(user("owing")) == [["1", "8"]]
    assert user("forgive", "99", "--yes", code=1).stderr == "error: there is no such user\n"


def test_totals_are_added_to(user: Command) -> None:
    user("add", "--id", "7", "--uploaded", "100")
    gift = ("edit", "7", "--add-uploaded", "50", "--add-downloaded", "-5")
    assert "uploaded 150, downloaded 0" in user(*gift, "--idempotency-key", "order-1").stdout
    assert "uploaded 150, downloaded 0" in user(*gift, "--idempotency-key", "order-1").stdout
    assert "uploaded 200, downloaded 0" in user(*gift).stdout
    wrong = user("edit", "7", "--add-uploaded", "1", "--idempotency-key", "order-1", code=1)
    assert "another request had this idempotency key" in wrong.stderr
    assert "not both" in user("edit", "7", "--add-uploaded", "1", "--uploaded", "1", code=1).stderr


def test_a_user_is_added_and_edited_with_name_reason_and_totals(user: Command) -> None:
    user("add", "--id", "7", "--name", "Alice\x1b", "--uploaded", "100", "--disabled", "--reason", "unpaid")
    shown = json.loads(user("show", "7", "--json").stdout)
    assert (shown["name"], shown["uploaded"], shown["enabled"]) == ("Alice", 100, False)
    assert shown["reason"] == "unpaid" and "\x1b" not in user("show", "7").stdout
    user("edit", "7", "--downloaded", "50", "--snatches", "2", "--name", "Bob")
    shown = json.loads(user("show", "7", "--json").stdout)
    assert (shown["name"], shown["uploaded"], shown["downloaded"], shown["snatches"]) == ("Bob", 100, 50, 2)
    user("enable", "7")
    user("disable", "7", "--reason", "left")
    assert json.loads(user("show", "7", "--json").stdout)["reason"] == "left"
    assert "must be a whole number" in user("edit", "7", "--uploaded", "1e9", code=2).stderr
    assert "uploaded is a whole number" in user("edit", "7", "--uploaded", "-1", code=1).stderr


def test_users_are_sorted_filtered_and_searched(user: Command) -> None:
    for user_id, name, uploaded in (("7", "Zoe", "30"), ("8", "adam", "10"), ("9", "Eve", "20")):
        user("add", "--id", user_id, "--name", name, "--uploaded", uploaded)
    user("edit", "9", "--no-leech", "--disabled")

    def ids(*words: str) -> list[str]:
        return [row[0] for row in rows(user("list", *words))]

    assert ids("--by", "name") == ["8", "9", "7"]
    assert ids("--by", "uploaded", "--descending", "--limit", "2") == ["7", "9"]
    assert ids("--disabled") == ids("--no-leech") == ["9"]
    assert ids("--enabled", "--can-leech") == ["7", "8"]
    assert ids("--search", "E") == ["9", "7"]
    user("list", "--by", "passkey", code=2)


def test_a_passkey_can_be_read_from_standard_input(user: Command) -> None:
    """Other users of the machine can list the arguments of commands."""
    passkey = "0123456789abcdef-_X"
    made = json.loads(user("add", "--id", "7", "--passkey", "-", "--json", typed=f"{passkey}\n").stdout)
    assert (made["user_id"], made["passkey"]) == ("7", passkey)
    assert json.loads(user("show", "-", "--json", typed=f"{passkey}\n").stdout)["user_id"] == "7"
    assert user("show", "-", typed="", code=1).stdout == ""


@pytest.fixture
def by_hand(redis_url: str, prefix: str) -> None:
    """A site has written user 77 and a client to the store, and user 77 has announced."""

    async def fill() -> None:
        keys = Keys(prefix)
        async with running(Store(redis_url, keys, SwarmRules(accounts="required"))) as store:
            await store.redis.hset(keys.passkey(ALICE), "user_id", "77")
            await store.redis.hset(keys.allowed_client(b"-TR"), "name", "Transmission")
            await store.announce(update(1, "s", passkey=ALICE))
            await store.allow_list.allowed_prefixes(PeerId(b"-TR4050-abcdefghijkl"))

    asyncio.run(fill())


@pytest.mark.usefixtures("by_hand")
def test_every_command_knows_a_user_written_by_a_site(user: Command) -> None:
    """T22."""
    assert [row[0] for row in rows(user("list"))] == ["77"]
    assert json.loads(user("show", "77", "--json").stdout)["active"] == 1
    assert user("disable", "77").stdout == "disabled user 77\n"
    with command("export") as export:
        assert "77" in export("--what", "users", "--format", "csv").stdout
        assert "-TR" in export("--what", "clients", "--format", "csv").stdout
    added = json.loads(user("add", "--json").stdout)
    assert added["user_id"] == "78"
    user("delete", "77", "--yes")
    assert [row[0] for row in rows(user("list"))] == ["78"]
    with command("client") as client:
        assert rows(client("list")) == [["-TR", "Transmission"]]
        client("disallow", "--", "-TR")
        assert client("list").stdout == ""


def test_a_new_passkey_comes_with_the_announce_urls(user: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "unknown: set TRACKER_ANNOUNCE__URLS" in user("add", "--id", "7").stdout
    assert json.loads(user("rotate", "7", "--json").stdout)["announce_urls"] == ""
    monkeypatch.setenv("TRACKER_ANNOUNCE__URLS", "https://t.example,udp://t.example:6969")
    found = json.loads(user("rotate", "7", "--json").stdout)
    paths = [f"https://t.example{found['announce_path']}", f"udp://t.example:6969{found['announce_path']}"]
    assert found["announce_urls"].split() == paths


def test_an_interrupt_ends_a_question(tracker: Command, tmp_path: Path) -> None:
    tracker("user", "add", "--id", "7")
    settings = {name: value for name, value in os.environ.items() if name.startswith("TRACKER_")}
    asked = trackers.starter(
        [sys.executable, "-m", "tracker", "user", "delete", "7"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        env=trackers.environment(settings),
    )
    with asked:
        assert asked.stdout is not None
        while asked.stdout.read(1) != b"?":
            pass
        asked.send_signal(signal.SIGINT)
        try:
            assert asked.wait(20) == 1
        finally:
            asked.kill()
    assert tracker("user", "show", "7").stdout
