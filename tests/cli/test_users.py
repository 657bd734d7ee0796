"""``tracker user show``, ``torrents``, ``owing`` and ``forgive`` on a real store; the others are in test_cli.py."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.commands import Command, command, rows, set_store
from tests.store.harness import ALICE, BOB, Store, info_hash, running, update
from tracker.store.keys import Keys
from tracker.store.swarms import SwarmRules

HASH = info_hash(1).hex()


@pytest.fixture
def user(redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    set_store(monkeypatch, redis_url, prefix)
    with command("user") as run:
        yield run


@pytest.fixture
def owing(redis_url: str, prefix: str) -> None:
    """User 7 has hit and runs on torrents 1 to 3, and is a seeder of torrent 4; user 8 has one on torrent 1."""

    async def fill() -> None:
        rules = SwarmRules(private=True, hnr_min_bytes=100, hnr_threshold=1000)
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


@pytest.mark.usefixtures("owing")
def test_the_torrents_of_a_set_are_listed_with_what_the_user_has_there(user: Command) -> None:
    """Names are shown as text."""
    listed = sorted(rows(user("torrents", "7", "hnr")))
    assert listed[0] == ["1", "0", "500", "10", "0", HASH, "one\\x1b[2J"]
    assert [row[0] for row in listed] == ["1", "2", "3"]
    found = [json.loads(line) for line in user("torrents", ALICE, "active", "--json").stdout.splitlines()]
    assert [(row["torrent_id"], row["info_hash"]) for row in found] == [("4", info_hash(4).hex())]
    assert user("torrents", "8", "complete").stdout == ""
    assert "Invalid value" in user("torrents", "7", "all", code=2).stderr
    assert user("torrents", "99", "hnr", code=1).stderr == "error: there is no such user\n"


@pytest.mark.usefixtures("owing")
def test_who_owes_is_listed_most_first(user: Command) -> None:
    assert rows(user("owing")) == [["3", "7"], ["1", "8"]]
    assert rows(user("owing", "--limit", "1")) == [["3", "7"]]
    (first, _) = user("owing", "--json").stdout.splitlines()
    assert json.loads(first) == {"hit_and_runs": 3, "user_id": "7"}


def test_nobody_owes(user: Command) -> None:
    result = user("owing")
    assert (result.stdout, result.stderr) == ("", "note: nobody has hit and runs\n")
    assert user("owing", "--json").stderr == ""


@pytest.mark.usefixtures("owing")
def test_single_torrents_are_forgiven_by_id_or_info_hash(user: Command) -> None:
    result = user("forgive", "7", HASH, "2", "9", "ab" * 20, code=1)
    assert result.stdout == f"forgave user 7 torrent {HASH}\nforgave user 7 torrent 2\n"
    assert result.stderr.splitlines() == [
        "error: 9: user 7 has no hit and run there",
        f"error: {'ab' * 20}: user 7 has no hit and run there",
    ]
    assert [row[0] for row in rows(user("torrents", "7", "hnr"))] == ["3"]
    assert rows(user("owing")) == [["1", "8"], ["1", "7"]]


@pytest.mark.usefixtures("owing")
def test_all_are_forgiven_after_a_question(user: Command) -> None:
    assert "all 3 hit and runs?" in user("forgive", "7", typed="n\n", code=1).stdout
    assert rows(user("owing"))[0] == ["3", "7"]
    assert user("forgive", "7", "--yes").stdout == "forgave user 7 3 hit and runs\n"
    assert user("forgive", "7").stdout == "forgave user 7 0 hit and runs\n"
    assert rows(user("owing")) == [["1", "8"]]
    assert user("forgive", "99", "--yes", code=1).stderr == "error: there is no such user\n"


def test_a_passkey_need_not_stand_in_the_command(user: Command) -> None:
    """Everybody on the machine can list commands with their words."""
    passkey = "0123456789abcdef-_X"
    made = json.loads(user("add", "--id", "7", "--passkey", "-", "--json", typed=f"{passkey}\n").stdout)
    assert (made["user_id"], made["passkey"]) == ("7", passkey)
    assert json.loads(user("show", "-", "--json", typed=f"{passkey}\n").stdout)["user_id"] == "7"
    assert user("show", "-", typed="", code=1).stdout == ""
