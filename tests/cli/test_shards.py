"""Every command on a store with four shards (row S10): on one server, and on a cluster of three nodes."""

import asyncio
import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtest.cluster import Cluster, cluster
from tests.cli.test_commands import commands
from tests.commands import Command
from tests.store.harness import ALICE, BOB, update
from tests.store.sharding.harness import SHARDS, hash_in, on_several
from tracker.store.schema.keys import Keys, shard_prefixes
from tracker.store.sharding.shards import named
from tracker.store.stats.metric_names import place_names
from tracker.store.stats.unique_users import UniqueUserEvent
from tracker.store.swarms.rules import SwarmRules

A, B, C, D, DENIED = (hash_in(shard % SHARDS, shard).hex() for shard in range(5))
NOT_HERE = {
    "serve": "started in tests/e2e",
    "health": "asks a running tracker",
    "backup": "of a private store, which has one shard",
    "restore": "of a private store, which has one shard",
    "reshard": "needs a second store: tests/store/resharding",
    "work seed": "a program for volunteers",
    "dht find": "asks a running tracker",
    "dht ping": "asks a node of the DHT",
    "geoip lookup": "needs a database",
    "geoip update": "needs a network",
    "sync run": "needs a site's database",
    "sync check": "needs a site's database",
    "sync import": "needs a site's database",
    "torrent renumber": "changes every id: tests/cli/test_renumber.py",
}
STEPS = f"""
settings                                        | TRACKER_REDIS__SHARDS
completion bash                                 | complete_bash
torrent list --by leechers                      | {D}
torrent search "name 2"                         | {C}
torrent show {C} --peers                        | name 2
torrent history {C}                             |
torrent edit {B} --name other                   |
torrent disable {B} --reason gone               |
torrent enable {B}                              |
torrent list --json                             | other
deny {DENIED} --reason no                       |
denied                                          | {DENIED}
allow {DENIED}                                  |
user list --by uploaded --json                  | "user_id": "7"
user owing                                      | 7
user pending                                    |
user show 7                                     | 700
user torrents 7 incomplete                      | {C}
user unregistered 7                             |
user add --id 9 --name New                      | 9
user rotate 9                                   |
user disable 9 --reason unpaid                  |
user enable 9                                   |
user edit 9 --no-leech --max-downloads 8        |
user list --search new --json                   | "can_leech": false
user forgive 7 --yes                            |
group set 3 --name staff                        |
group list                                      | staff
group show 3                                    | staff
group delete 3                                  |
multipliers --download 0 --until 2d             |
multipliers                                     | 0
freeleech give 7 {B} --until 3d                 |
freeleech list 7                                | {B}
freeleech revoke 7 {B}                          |
client allow -TR40 --name Transmission          |
client list                                     | Transmission
client disallow -TR40                           |
client deny -TR28 --reason old                  |
client denied                                   | old
client undeny -TR28                             |
client seen                                     |
work create keep --kind seeding --target 5      | created
work add keep hashes.txt                        | 4
work list keep --status todo                    | {C}
work show keep {C}                              | todo
work policy keep --dry-run                      |
work remove keep {D}                            |
work create archive                             | created
work add archive items.txt                      |
work edit archive --per-minute 60               |
work projects                                   | keep
work block archive alice                        |
work blocked archive                            | alice
work unblock archive alice                      |
work release archive --all                      |
work top archive                                |
work log archive                                |
work drain archive .                            |
work purge archive --status todo --queue todo --yes |
work delete archive --yes                       |
stats --totals                                  | seeders
stats                                           |
top --once                                      |
score top                                       | {D}
score lag                                       |
score place {D}                                 | 1
unique top torrents                             | {A}
unique top countries                            | GB
unique figure countries GB                      | 1
unique show {A}                                 | London
dht hashes                                      |
dht status                                      |
jobs sweep                                      |
jobs reprocess --max-score 4                    |
jobs queues                                     | sweep
jobs list                                       | sweep
jobs purge --queue sweep --yes                  |
changes                                         | {D}
token create reader --role read                 |
token list                                      | reader
token revoke reader                             |
token sign-out                                  |
sign-in-link                                    | sign-in#
audit                                           | reader
export --what all out.jsonl                     |
import out.jsonl                                |
cleanup                                         |
reindex                                         |
unique flush --yes                              |
wipe-stats --uniques --yes                      |
torrent add {DENIED} --name late                |
torrent remove {DENIED}                         |
user delete 9 --yes                             |
"""


@pytest.fixture
def sharded(
    nodes: Cluster | None,
    tracker: Command,
    redis_url: str,
    prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    """Four torrents, one in each shard: number ``n`` has ``n`` leechers. User 7 has a hit-and-run on each."""
    use_shards(monkeypatch, redis_url if nodes is None else nodes.url)
    asyncio.run(fill(nodes, redis_url, prefix))
    (tmp_path / "hashes.txt").write_text(f"{A}\n{B}\n{C}\n{D}\n")
    (tmp_path / "items.txt").write_text("one\ntwo\n")
    return tracker


def use_shards(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("TRACKER_REDIS__URL", url)
    monkeypatch.setenv("TRACKER_REDIS__SHARDS", str(SHARDS))
    monkeypatch.setenv("TRACKER_USERS__PRIVATE", "required")
    monkeypatch.setenv("TRACKER_CHANGES__MAX_ENTRIES", "1000")


async def fill(nodes: Cluster | None, url: str, prefix: str) -> None:
    rules = SwarmRules(accounts="required", peer_memory=3600, max_changes=1000, hnr_min_bytes=100, hnr_threshold=1000)
    async with on_several(nodes, url, Keys(prefix), rules) as store:
        await store.check_layout()
        await store.users.add("7", ALICE)
        await store.users.add("8", BOB)
        for number in range(SHARDS):
            info_hash = hash_in(number, number)
            await store.torrents.add(info_hash, {"name": f"name {number}"})
            for event, uploaded in (("s", 0), ("x", 175)):
                await store.pass_time(60)
                await store.announce(
                    update(9, event, info_hash=info_hash, passkey=ALICE, downloaded=4 * uploaded, uploaded=uploaded)
                )
            for peer in range(number):
                await store.announce(update(peer, "s", info_hash=info_hash, passkey=BOB))
            user = UniqueUserEvent(info_hash, "192.0.2.1", place_names("GB", "London", "SW1A"))
            await store.unique_users.count([user], store.clock())
        for shard in store.shards:
            await store.user_sums.save_changed(shard)


def steps() -> Iterator[tuple[list[str], str]]:
    for line in STEPS.strip().splitlines():
        words, _, expected = line.partition("|")
        yield shlex.split(words), expected.strip()


def test_every_command_is_run_here() -> None:
    leaves = {words for words, _, _ in commands()}
    leaves -= {words.split()[0] for words in leaves if " " in words}
    run = {" ".join(words[:n]) for words, _ in steps() for n in (1, 2)}
    elsewhere = {"doctor", "jobs limit", "jobs show", "jobs retry"}
    assert leaves - run - elsewhere == NOT_HERE.keys()


def test_every_command_works(sharded: Command) -> None:
    for words, expected in steps():
        result = sharded(*words)
        assert expected in result.output, (words, result.output)


def test_commands_that_need_something_of_others(sharded: Command) -> None:
    found = [json.loads(line) for line in sharded("doctor", "--json", code=1).stdout.splitlines()]
    assert {row["subject"] for row in found if row["level"] == "wrong"} == {"persistence"}, found
    sharded("jobs", "sweep")
    job = json.loads(sharded("jobs", "list", "--json").stdout.splitlines()[0])
    assert "sweep" in sharded("jobs", "show", str(job["id"])).stdout
    assert "changed sweep" in sharded("jobs", "limit", "sweep").stdout
    sharded("jobs", "retry", str(job["id"]), code=1)  # it has not failed


@pytest.mark.slow
def test_commands_go_on_without_the_main_store(tracker: Command, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs it fails, and names it. The rest says what is missing."""
    with cluster() as group:
        group.be_patient()
        main = group.primary(f"{prefix}{{main}}:")
        other = next(each for each in group.nodes if each is not main)
        places = [group.primary(each) for each in shard_prefixes(prefix, SHARDS)]
        present = next(hash_in(number, number).hex() for number, each in enumerate(places) if each is not main)
        use_shards(monkeypatch, other.tcp_url)
        asyncio.run(fill(group, "", prefix))
        asyncio.run(start(group, prefix))
        main.kill()
        where = f"main store (127.0.0.1:{main.port})"
        for text in (
            "torrent list",
            "user show 7",
            "stats --totals",
            "top --once",
            "group list",
            "unique top torrents",
        ):
            assert f"the store does not answer for {where}" in tracker(*text.split()).stderr, text
        assert present in tracker("torrent", "show", present).stdout
        assert "not checked: server" in tracker("doctor", code=1).stdout
        for text in ("token list", "jobs list", "audit", "user add", "client list"):
            assert f"unavailable: {where}" in tracker(*text.split(), code=1).stderr, text


async def start(group: Cluster, prefix: str) -> None:
    """What a tracker does at its start."""
    async with on_several(group, "", Keys(prefix), SwarmRules()) as store:
        await store.upgrade()
        await store.load_secret()
        await store.shards.gather(store.start_shard, store.shards.all)


@pytest.mark.slow
def test_commands_name_the_unavailable_shards_and_their_node(
    tracker: Command, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What needs one of the shards fails. The rest goes on, and says what it lacks."""
    with cluster() as group:
        group.be_patient()
        main = group.primary(f"{prefix}{{main}}:")
        places = [group.primary(each) for each in shard_prefixes(prefix, SHARDS)]
        node = next(place for place in places if place is not main)
        unavailable = [number for number, place in enumerate(places) if place is node]
        where = f"{named(unavailable)} (127.0.0.1:{node.port})"
        missing = hash_in(unavailable[0], unavailable[0]).hex()
        use_shards(monkeypatch, main.tcp_url)
        asyncio.run(fill(group, "", prefix))
        node.kill()
        for words in (
            ("torrent", "show", missing),
            ("score", "place", missing),
            ("freeleech", "give", "7", missing, "--until", "3d"),
            ("wipe-stats", "--yes"),
            ("export", "--what", "all", "out.jsonl"),
        ):
            assert f"; unavailable: {where}; " in tracker(*words, code=1).stderr, words
        present = next(each for number, each in enumerate((A, B, C, D)) if number not in unavailable)
        for command in ("deny", "torrent remove", "torrent add"):  # goes on with the next one
            result = tracker(*command.split(), missing, present, code=1)
            assert result.stderr == f"error: {missing}: the node does not answer; unavailable: {where}\n"
            assert present in result.stdout
        for text in (
            "torrent list",
            "torrent search name",
            "user show 7",
            "denied",
            "stats --totals",
            "top --once",
            "score top",
            "unique top torrents",
            "cleanup",
            "reindex",
        ):
            assert f"the store does not answer for {where}" in tracker(*text.split()).stderr, text
        other = next(each for each in group.nodes if each not in (node, main))
        use_shards(monkeypatch, other.tcp_url)
        main.kill()
        refused = tracker("torrent", "list", code=1).stderr
        assert f"the main store, at 127.0.0.1:{main.port}, is unavailable (the node does not answer)" in refused
