"""The key table is complete: each key in the store matches one of its rows and has the row's type."""

import inspect
import re
from collections import Counter
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.store.conftest import MakeStore
from tests.store.dht.harness import status
from tests.store.harness import ALICE, BOB, START, Store, count_software, endpoint, info_hash, peer_id, update
from tests.store.jobs.harness import some_jobs
from tests.store.stats.outbox import export, outbox_of
from tests.store.work.harness import some_work
from tests.store.work.policy import some_policy
from tracker.bittorrent import Accounts, Address
from tracker.store.access.audit import AuditEntry, ChangedObject
from tracker.store.access.rate_limits import Hit, shared_secret
from tracker.store.dht.nodes import AnnouncedHash
from tracker.store.jobs.lease import Lease
from tracker.store.schema.keys import SCOPES, Keys
from tracker.store.schema.table import KEYS
from tracker.store.stats.metric_names import place_names
from tracker.store.stats.refusal_samples import RefusedAnnounce
from tracker.store.stats.unique_users import UniqueRules, UniqueUserEvent, UniqueUsers
from tracker.store.torrents.scores import Scored
from tracker.store.users.site_rows import SyncState

PLACE = r"countries\.[^./]+(?:\.(?:cities|postcodes)\.[^./]+)?"
PLACEHOLDERS = {
    "ih": "[0-9a-f]{40}",
    "pid": "[0-9a-f]{40}",
    "tid": "[1-9][0-9]*",
    "uid": "[1-9][0-9]*",
    "deadline": "[0-9]+",
    "array": "[sl][46]",
    "prefix": ".{1,20}",
    "passkey": "[0-9A-Za-z_-]{16,64}",
    "set": "active|complete|incomplete|hnr",
    "address": r"[0-9.]+(?:/24)?|[0-9a-f:]+(?:/48)?",
    "process": "[0-9a-f]{16}",
    "endpoint": "[0-9a-f]{12}|[0-9a-f]{36}",
    "metric": rf"{PLACE}\.users|torrents\.[0-9a-f]{{40}}(?:\.{PLACE})?\.users",
    "month": "[0-9]{4}-[0-9]{2}",
    "span": "[0-9]{4}-(?:W?[0-9]{2})",
    "seen": r"[0-9]+(?:\.[0-9]+){3}|[0-9a-f]{0,4}:[0-9a-f:]+(?:/[0-9]+)?|[0-9a-f]{32}",
    "scope": "countries|cities|postcodes|torrents",
    "period": "all|[0-9]{4}-[0-9]{2}",
    "kind": "torrents|outbox|dht|shard|trackers|samples|webhook|site",
    "reason": ".+",
    "outcome": "joins|failures",
    "precision": "1|5|60|300|900|3600|7200|18000|28800|86400",
    "name": ".+",
    "minute": "[0-9]+",
    "window": "[0-9]+",
    "id": "[1-9][0-9]*",
    "queue": "[a-z][a-z0-9_]*",
    "status": "pending|running|retry|completed|failed",
    "token": "[0-9a-f]{12}",
    "url": "[0-9a-f]{16}",
    "digest": "[0-9a-f]{64}",
    "counter": "(?!failures|peers)[a-z_]+",
    "ranking": "leechers|seeders|snatches|score",
    "total": "uploaded|downloaded|ratio",
    "value": "added|active|size|disabled|private",
    "p": "(?!blocked(?![-_0-9A-Za-z]))[-_0-9A-Za-z]{1,30}",
    "c": "[-_0-9A-Za-z]{1,30}",
    "todo": "todo(?::secondary|:redo)?",
    "board": "downloader_(?:count|bytes|seconds)",
    "family": "[46]",
    "node": r"[-.0-9A-Za-z]{1,64}",
}
OF_SHARDS = (
    *("t:copies", "t:copies:version", "t:copies:rows", "t:copied", "t:changed"),
    *("t:reshard", "t:renumber", "t:renumber:changes"),
)
"""Only with several shards."""


def pattern_of(row: str) -> re.Pattern[str]:
    def expand(match: re.Match[str]) -> str:
        return f"(?:{PLACEHOLDERS[match[1]]})"

    return re.compile(re.sub("<([a-z]+)>", expand, row), re.DOTALL)


PATTERNS = {spec.pattern: pattern_of(spec.pattern) for spec in KEYS}
TYPES = {spec.pattern: spec.type for spec in KEYS}


def rows_of(key: str) -> list[str]:
    """The rows that match a key with the prefix `t:`."""
    return [row for row, pattern in PATTERNS.items() if pattern.fullmatch(key)]


def built(keys: Keys) -> dict[str, str]:
    """The key of each builder, by the builder's name."""
    ih, pid = info_hash(1), peer_id(1)
    metric, node, digest = "countries.United_Kingdom.users", "host.example", "0" * 64
    samples: dict[str, object] = {
        "info_hash": ih,
        "peer_id": pid,
        "torrent_id": 7,
        "due": 1_800_000_000,
        "prefix": b"-TR",
        "endpoint": endpoint(1),
        "passkey": ALICE,
        **dict.fromkeys(("user", "user_freeleech", "user_unregistered"), 8),
        **dict.fromkeys(("history", "completed", "job"), 7),
        **dict.fromkeys(("stat", "index"), "seeders"),
        "torrent_list": "size",
        "user_index": "uploaded",
        "unique": metric,
        "span": "2026-W47",
        "leases": "torrents",
        **dict.fromkeys(("queue", "queue_limits"), "reprocess"),
        "admin_token": "0" * 12,
        "webhook": "0" * 16,
        **dict.fromkeys(("once", "admin_session", "admin_link"), digest),
        "project": "proj",
        "board": "downloader_count",
        **dict.fromkeys(("dht_node", "dht_hashes"), node),
        "refused": "unknown torrent",
    }
    pairs: dict[str, tuple[int | str, int | str]] = {
        "user_torrent": (8, 7),
        "user_set": (8, "active"),
        "client_software": ("joins", "all"),
        "unique_month": (metric, "2026-11"),
        "unique_index": ("countries", "all"),
        **dict.fromkeys(("counter", "distribution"), (60, "announces.started")),
        "queue_jobs": ("reprocess", "pending"),
        "dht_table": (node, 4),
        "work_queue": ("proj", "todo:redo"),
        **dict.fromkeys(("work_own_queue", "work_claims_by", "work_chart"), ("proj", "volunteer")),
        "work_ranking": ("proj", "downloader_count"),
    }
    found = {}
    for name, builder in inspect.getmembers(keys, inspect.ismethod):
        if name.startswith("_") or name in ("channel", "timeouts"):
            continue
        of = samples.get(name, "proj" if name.startswith("work_") else None)
        arguments: list[object] = [
            of if parameter == "of" else samples[parameter]
            for parameter in inspect.signature(builder).parameters
            if parameter not in ("first", "second")
        ] or [*pairs.get(name, ())]
        key = builder(*arguments)
        found[name] = key.decode() if isinstance(key, bytes) else key
    return found


def test_patterns_are_unique_and_rows_complete() -> None:
    assert max(Counter(spec.pattern for spec in KEYS).values()) == 1
    for spec in KEYS:
        assert spec.pattern.startswith("t:") and spec.type in ("STRING", "HASH", "SET", "ZSET", "LIST", "STREAM")
        assert spec.holds and spec.lifetime and spec.writer


ONLY_IN_LUA = {
    "t:ws:processes",
    "t:replication_id",
    "t:<metric>.<seen>",
    "t:addresses:<ih>",
    "t:addresses:full",
    "t:counted:<process>",
    "t:dht:peers:<ih>",
    "t:dht:peers:<ih>:6",
    "t:hll:<metric>",
    "t:hll:<metric>.<month>",
    "t:i:empty",
    "t:unlisted_clients",
    "t:i:name",
    "t:i:user_name",
    "t:job",
    "t:lease",
    "t:leases:<kind>:tokens",
    "t:limits:<window>",
    "t:outbox",
    "t:outbox:<minute>",
    "t:p:<pid>:torrents",
    "t:ptimeout:<tid>:<pid>",
    "t:q:<queue>:deadlines",
    "t:q:<queue>:delayed",
    "t:q:<queue>:fingerprints",
    "t:q:<queue>:ready",
    "t:q:<queue>:running:tokens",
    "t:q:<queue>:slot",
    "t:registered_by:<address>",
    "t:swarm:<ih>:<array>",
    "t:swarm:<ih>:<array>i",
    "t:torrent_id",
    "t:user_id",
    "t:w:<p>:lapsed",
    "t:w:<p>:looked",
    "t:w:<p>:released",
    "t:w:<p>:lapsed:claims",
    "t:w:<p>:rate",
    "t:w:<p>:trust",
    "t:sweeping",
}
"""Keys that only scripts build and use."""


def test_every_builder_has_a_row_and_scripts_own_the_other_rows() -> None:
    rows = {name: rows_of(key) for name, key in built(Keys()).items()}
    assert {name: row for name, row in rows.items() if len(row) != 1} == {}
    assert set(PATTERNS) - {row[0] for row in rows.values()} == ONLY_IN_LUA


def test_every_builder_is_used() -> None:
    """By the package itself: tests write out the keys that only scripts build."""
    files = (Path(__file__).parents[3] / "tracker").rglob("*.py")
    texts = [file.read_text(encoding="utf-8") for file in files if file.name != "keys.py"]
    calls = set(re.findall(r"[kK]eys(?:\(\))?\.([a-z_]+)", "\n".join(texts)))
    assert not set(built(Keys())) - calls


def test_every_key_begins_with_the_prefix() -> None:
    ours, theirs = built(Keys("t:")), built(Keys("x{07buvm}:"))
    assert {name: key.replace("t:", "x{07buvm}:", 1) for name, key in ours.items()} == theirs
    assert Keys("x:").timeouts() == "x:ptimeout:"
    assert Keys("x:").channel("users") == "x:users"


def test_every_line_of_the_page_is_a_row() -> None:
    page = (Path(__file__).parents[3] / "docs" / "keys.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("|")]
    assert len(lines) == len(KEYS) + 2
    assert {line.count("|") for line in lines} == {6}
    assert all(f"`countries.<country>.{scope}.<place>.users`" in page for scope in SCOPES[1:])
    assert f"`<scope>` is {', '.join(SCOPES)} or torrents" in page


def test_scripts_build_only_keys_of_the_table() -> None:
    """Each literal that a script joins to the prefix begins a row; a metric begins with torrents or countries."""
    beginnings = {
        row.replace("<metric>", word).replace("<scope>", "torrents")
        for row in PATTERNS
        for word in ("torrents.", "countries.")
    }
    for path in Path(str(resources.files("tracker.store") / "lua")).rglob("*.lua"):
        for name in re.findall(r"P \.\. '([^']+)'", path.read_text()):
            known = rows_of(f"t:{name}") or any(row.startswith(f"t:{name}") for row in beginnings)
            assert known, f"{path.name}: {name}"


@pytest.mark.parametrize("accounts", get_args(Accounts))
async def test_every_stored_key_is_in_the_table(make_store: MakeStore, accounts: Accounts) -> None:
    """After a use of every feature each key matches one row and has its type, and no row is unused."""
    store = await make_store(accounts=accounts, peer_memory=3600, hnr_min_bytes=10, hnr_threshold=1000, max_changes=100)
    await everything(store)
    seen: set[str] = set()
    for raw in await store.dump():
        key = raw.decode("latin-1")
        rows = rows_of("t:" + key.removeprefix(store.keys.prefix))
        assert len(rows) == 1, f"{key} is in the rows {rows}"
        type_name: Any = await store.redis.type(raw)
        assert type_name.decode().upper() == TYPES[rows[0]], key
        seen.add(rows[0])
    of_users, for_a_moment = (
        {"t:u:<uid>:t:<tid>", "t:u:<uid>:<set>", "t:i:hnr", "t:i:hnr_pending", "t:completed:<tid>"}
        | {"t:u:<uid>:unregistered"},
        {"t:deleting", "t:removing:torrents", "t:addresses:full", "t:sweeping", "t:shards", "t:updated"} | {*OF_SHARDS},
    )
    assert set(PATTERNS) - seen - for_a_moment == (of_users if accounts == "off" else set())


async def everything(store: Store) -> None:
    await store.upgrade()
    store.socket_process.begin()
    await store.reaping.heartbeat()
    await shared_secret(store.connection, store.keys)
    for passkey in (ALICE, BOB):
        await store.users.add(passkey=passkey, name="a name")
    await store.groups.save(5, {"name": "vip"})
    await store.users.edit(ALICE, {"add_uploaded": 1}, "order-1")
    await store.torrents.add(info_hash(1), {"name": "n"})
    await store.torrents.deny(info_hash(9), "no")
    await store.user_listing.rank()
    await store.torrent_listing.rank()
    await store.allow_list.add(b"-TR", "Transmission")
    await store.allow_list.add(b"\xff\x00:", "")
    await store.deny_list.add(b"-UT", "no")
    await store.connect_checks.note(endpoint(1), "", True)
    for number in range(1, 9):
        passkey = ALICE if number % 2 else BOB
        at = endpoint(number, v6=number > 4)
        for torrent in (1, 2, 3):
            await store.announce(update(number, "s", torrent, passkey=passkey, endpoint=at, bytes_left=number % 3))
        await store.pass_time(50)
        await store.announce(update(number, "c", passkey=passkey, endpoint=at, bytes_left=0, downloaded=10**12))
    await store.announce(update(1, "x", passkey=ALICE))
    await store.announce(update(2, "p", passkey=BOB))
    await store.announce(update(9, "s", 4, passkey=ALICE))
    await store.announce(update(9, "x", 4, passkey=ALICE, downloaded=10**6))
    assert await store.silence(update(4)) == 1
    await store.multipliers.set("2", f"0 {START}")
    await store.freeleech.give("1", "1", 2**40)
    store.rules.current = replace(store.rules.current, open=False)
    assert (await store.refused(update(9, "s", 99, passkey=ALICE))).startswith("unknown torrent")
    store.rules.current = replace(store.rules.current, open=True)
    store.rules.current = replace(store.rules.current, hnr_grace=3600)
    await store.announce(update(9, "s", 4, passkey=BOB))
    await store.announce(update(9, "x", 4, passkey=BOB, downloaded=10**6))
    store.clock.now += 500
    await store.reaping.heartbeat()
    await store.reaping.set_due_cursor(int(store.clock.now))
    await store.reaping.save_peer_counts((await store.reaping.sweep(["1", "2", "3"], "", 200)).peers, 600)
    assert await store.scores.take_one("2")
    taken = await store.scores.take_one("3")
    assert taken and (await store.scores.finish([Scored(taken, 1.2)])).counted
    store.counters.count("requests")
    store.counters.count("failures.denied")
    store.counters.observe("announce_seconds", 0.01)
    await store.counters.flush()
    await export(store, (START, "a", 1))
    await outbox_of(store).take(store.clock.now, 1, 60)
    await some_jobs(store)
    await some_users(store)
    await some_work(store)
    await some_policy(store)
    await store.dht_nodes.save_status(status(name="host"))
    await store.dht_nodes.save_tables("host", {4: bytes(26), 6: bytes(38)})
    await store.dht_nodes.save_hashes("host", [AnnouncedHash(info_hash(3), 1, 2, START)])
    await store.torrents.add(info_hash(3), {"private": "0"})
    assert await store.dht_torrents.save_result(info_hash(3), (1, 2), START, all_torrents=False)
    assert await Lease(store.scripts, "dht", "host", 60, store.clock).hold()
    for v6 in (False, True):
        peers = [endpoint(1, v6=v6)]
        assert await store.dht_torrents.give(info_hash(3), peers, START, START, all_torrents=False)
    _, token = await store.tokens.create("a program", "admin")
    await store.tokens.sign_in_by_token(token, 3600)
    await store.tokens.new_link()
    objects = 11 * (ChangedObject("user", "7", {}, {"name": "Alice"}),)
    assert await store.audit.add(AuditEntry("site", "", "read", "api", "", "user.edit", objects))
    await store.redis.hset(store.keys.unique_forgotten(), "all", "1")
    await store.rate_limits.count_hits([Hit("joins", "192.0.2.1", 9)], {"joins": 1})
    await count_software(store.client_software, 1, {("a", ""): 1, ("a", "b"): 1}, store.clock.now)
    await store.client_software.add(2, {("c", ""): 1}, store.clock.now, {("c", ""): [Address(bytes(4))]})
    await store.webhooks.hold("0" * 16, "token")
    await store.site_rows.save_state(SyncState())
    await store.refusal_samples.add({"unknown torrent": [RefusedAnnounce(START, info_hash(8), "a 1")]})


async def some_users(store: Store) -> None:
    """Unique users in every mode, in places with names of every kind."""
    places = [place_names("United Kingdom", "St. Mary: Œ/~_ 東京", "SW1A"), place_names("Germany", "x" * 200, "1 2")]
    for mode in ("exact", "hashed", "hyperloglog"):
        users = UniqueUsers(store.shards, UniqueRules(mode, secret=b"s" * 32))
        for user in ("192.0.2.1", "2001:db8:1:2::/64", "2001:db8::1"):
            batch = [UniqueUserEvent(info_hash(1), user, place) for place in places]
            await users.count(batch, store.clock.now)
