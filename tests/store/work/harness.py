"""Projects of work distribution under test, and what must always hold in them."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from tests.store.harness import Store
from tracker.bittorrent import InfoHash
from tracker.store.work import periods
from tracker.store.work.records import Claim, NewItem, Project, Refusal

CLAIMANTS = ("alice", "bob", "carol", "7", "8", "9")
"""Who claims in tests with many."""
FIGURES = ("downloader_count", "downloader_bytes", "downloader_seconds")


async def project(store: Store, name: str = "proj", **fields: Any) -> Project:
    return await store.work.projects.create(Project(name, **fields))


async def add(store: Store, *names: str, project: str = "proj", **options: Any) -> int:
    """The number of items added, in the queue and with the places of ``options``."""
    return (await store.work.items.add(project, [NewItem(name, **options) for name in names])).added


async def register(store: Store, *names: str) -> None:
    """Makes items torrents that the tracker serves, where they are not yet."""
    for info_hash in await store.torrents.unregistered([InfoHash(bytes.fromhex(name)) for name in names]):
        await store.torrents.add(info_hash)


async def claimed(store: Store, claimant: str, project: str = "proj", **options: Any) -> Claim:
    reply = await store.work.claims.claim(project, claimant, **options)
    assert isinstance(reply, Claim), reply
    return reply


async def claim_of(store: Store, project: str, claimant: str, item: str) -> Claim | None:
    """The claim that the claimant has of the item."""
    page = await store.work.claims.page(project, count=1000, claimant=claimant, item=item)
    return next(iter(page.entries), None)


async def refusal(store: Store, claimant: str, project: str = "proj", **options: Any) -> Refusal:
    reply = await store.work.claims.claim(project, claimant, **options)
    assert isinstance(reply, Refusal), reply
    return reply


@dataclass(frozen=True, slots=True)
class Copies:
    """How many copies of items are where."""

    wanted: int
    out: int
    done: int
    added: int


async def check_work(store: Store, name: str = "proj") -> Copies:
    """W1: no copy is lost or twice, each item is in one place, and all indexes of claims agree. Reads with two
    pipelines, as some tests call it after each step."""
    redis, keys = store.redis, store.keys
    hashes = (
        keys.work_wanted,
        keys.work_asked,
        keys.work_tokens,
        keys.work_claims,
        keys.work_holders,
        keys.work_totals,
    )
    lists = (keys.work_out, keys.work_checks, keys.work_done)
    read = redis.pipeline(transaction=False)
    for key in hashes:
        read.hgetall(key(name))
    for key in lists:
        read.zrange(key(name), 0, -1)
    read.hget(keys.work_project(name), "kind")
    read.zrange(f"{keys.prefix}w:{name}:lapsed", 0, -1)
    read.hgetall(f"{keys.prefix}w:{name}:lapsed:claims")
    for queue in ("todo", "todo:secondary", "todo:redo"):
        read.zrange(keys.work_queue(name, queue), 0, -1)
    found = await read.execute()
    counts, asked, tokens, records, holders, numbers = map(text, found[:6])
    totals = {field: int(value) for field, value in numbers.items()}
    out, checks, finished = map(members, found[6:9])
    kind, lapsed, late = found[9], members(found[10]), text(found[11]).keys()
    places = Counter(item.decode() for queue in found[12:] for item in queue)
    begin = keys.work_claims_by(name, "")
    claims_by = [key async for key in redis.scan_iter(f"{begin}*", 1000)]
    asked_copies = [(item, claimant) for item, claimants in asked.items() for claimant in claimants.split()]
    for key in claims_by:
        read.zrange(key, 0, -1, withscores=True)
    for item, claimant in asked_copies:
        read.zscore(keys.work_own_queue(name, claimant), item)
    found = await read.execute()
    assert all(asked.values()) and None not in found[len(claims_by) :]
    places.update(list(asked))
    assert set(places.values()) <= {1}, places
    assert counts.keys() <= places.keys()
    wanted = sum(int(counts.get(item, 1)) for item in places)
    assert all(int(number) > 0 for number in counts.values())
    assert tokens.keys() == out and len(set(tokens.values())) == len(out)
    assert records.keys() == out
    assert kind == b"items" or not lapsed & out
    assert {f"{item} {each}" for item, them in holders.items() for each in them.split()} == out
    by = {
        f"{item.decode()} {key.decode().removeprefix(begin)}": at
        for key, claims in zip(claims_by, found, strict=False)
        for item, at in claims
    }
    times = {claim: at for claim, record in records.items() if (at := _claimed_at(record)) is not None}
    assert by.keys() == records.keys() and times.items() <= by.items()
    assert not late & out
    assert not checks or out | late <= checks  # only a project that verifies has any
    assert not finished & (places.keys() | holders.keys())
    copies = Copies(wanted, len(out), totals.get("done", 0), totals.get("added", 0))
    assert copies.wanted + copies.out + copies.done == copies.added, copies
    return copies


def _claimed_at(record: str) -> float | None:
    """None for a record that no tracker wrote."""
    try:
        return float(json.loads(record)["at"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def members(row: list[bytes]) -> set[str]:
    return {each.decode() for each in row}


def text(row: dict[bytes, bytes]) -> dict[str, str]:
    return {field.decode(): value.decode() for field, value in row.items()}


async def rank(store: Store, name: str = "proj") -> None:
    """Brings leaderboards, charts and sums up to date, in several steps."""
    while await store.work.leaderboard.update(name, 20) == 20:
        pass


async def check_sums(store: Store, name: str = "proj") -> None:
    """W14: leaderboards, bytes by domain, charts and totals are the sums over the log, which is complete here."""
    redis, keys = store.redis, store.keys
    await rank(store, name)
    sums: dict[str, Counter[str]] = {figure: Counter() for figure in FIGURES}
    spans: dict[tuple[str, str], Counter[str]] = {}
    domains: Counter[str] = Counter()
    versions: dict[str, str] = {}
    for _, row in await redis.xrange(keys.work_log(name)):
        entry = text(row)
        for figure, by in zip(FIGURES, (1, int(entry["total"]), int(entry["seconds"])), strict=True):
            sums[figure][entry["by"]] += by
            for span in periods.current(int(entry["at"]) / 1000):
                spans.setdefault((figure, span), Counter())[entry["by"]] += by
        domains.update(json.loads(entry["bytes"]))
        if entry["version"]:
            versions[entry["by"]] = entry["version"]
    for figure in FIGURES:
        assert await ranking(store, keys.work_ranking(name, figure)) == +sums[figure]
    for (figure, span), expected in spans.items():
        assert await ranking(store, keys.work_ranking_in(name, figure, span)) == +expected
    assert text(await redis.hgetall(keys.work_versions(name))) == versions
    stored = text(await redis.hgetall(keys.work_domain_bytes(name)))
    assert +Counter({domain: int(number) for domain, number in stored.items()}) == +domains
    for claimant in sums["downloader_count"]:
        _, *point = (await redis.lindex(keys.work_chart(name, claimant), -1)).split()
        assert [int(number) for number in point] == [sums[figure][claimant] for figure in FIGURES]
    totals = text(await redis.hgetall(keys.work_totals(name)))
    assert int(totals.get("done", 0)) == sums["downloader_count"].total()
    assert int(totals.get("bytes", 0)) == sums["downloader_bytes"].total()
    assert int(totals.get("seconds", 0)) == sums["downloader_seconds"].total()


async def ranking(store: Store, key: str) -> Counter[str]:
    rows = await store.redis.zrange(key, 0, -1, withscores=True)
    return +Counter({claimant.decode(): int(score) for claimant, score in rows})


async def some_work(store: Store) -> None:
    """Writes every key of work distribution."""
    await project(store, per_minute=60, domains=("data",), block_wrong_domains=True)
    work = store.work
    own = [f"own{number}" for number in range(2001)]  # more than a claim looks at
    await add(store, *own, copies=2)
    await store.redis.zadd(store.keys.work_done_by("proj"), {f"{name} dave": 1 for name in own})
    assert (await refusal(store, "dave")).reason == "empty"
    await work.items.purge("proj", own)
    await add(store, "a", "b", "c", queue="secondary", copies=2)
    await add(store, "d", "e", queue="redo")
    await add(store, "f")
    await add(store, "g", claimants=("alice",), copies=2)
    for claimant in ("alice", "bob"):
        first = await claimed(store, claimant, address="192.0.2.1", version="1")
        await work.claims.done("proj", claimant, first.item, version="1", reported={"data": 5})
    await claimed(store, "alice")
    await work.sizes.save([1, 2, 3, 4])
    await project(store, "other", kind="seeding", verify="announce", keep_done_days=1)
    await register(store, "1" * 40, "2" * 40)
    await add(store, "1" * 40, "2" * 40, project="other")
    await claimed(store, "7", project="other")
    await store.pass_time(30_000)
    await claimed(store, "8", project="other")
    verified = await claimed(store, "9", project="other")
    assert (await work.claims.complete("other", "9", verified.item, seconds=9)).counted
    given_back = await claimed(store, "bob")
    assert await work.claims.release("proj", "bob", given_back.item)
    for name in ("proj", "other"):
        await rank(store, name)
    await work.blocks.block("192.0.2.2")
    await work.blocks.block("carol", "proj")


async def trusted(store: Store, name: str, claimant: str) -> int | None:
    """How many claims at once a claimant may have, once that is known."""
    found = await store.redis.hget(f"{store.keys.prefix}w:{name}:trust", claimant)
    return None if found is None else int(found)
