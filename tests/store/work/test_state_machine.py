"""W1 to W7, W12, W13 and W20: random claims, reports, lapses and outages against a plain Python model."""

import asyncio
import uuid
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.examples import examples
from tests.store.harness import START, Store, running
from tests.store.work.harness import check_sums, check_work, project, register, text, trusted
from tests.store.work.model import QUEUES, Model, Wanted
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules
from tracker.store.work.records import Claim, NewItem, Refusal

LEASE = 3600
COUNTED = ("added", "claimed", "done", "lapsed", "released", "repaired")
NO_RECORDS = (
    *("", "x", "{}", "[]", "7", "\xff", "[" * 2000, '{"queue":"todo","place":"x"}', '{"queue":5,"place":"0"}'),
    *('{"queue":"todo:d:7","place":"0"}', '{"queue":"todo","place":"0","at":{}}', '{"asked":" ","place":"0"}'),
    *('{"queue":"todo","place":"0","asked":[]}', '{"queue":"todo","place":"nan"}', '{"queue":"todo","place":null}'),
)
"""Records that no tracker wrote."""
numbers = st.integers(0, 5)
people = st.integers(0, 2)
new_items = st.fixed_dictionaries(
    {
        "number": numbers,
        "queue": st.sampled_from(QUEUES),
        "copies": st.integers(1, 3),
        "place": st.integers(0, 3),
        "asked": st.sampled_from([(), (), (), (0,), (1, 2)]),
    }
)


class WorkMachine(RuleBasedStateMachine):
    redis_url: str
    seeding: bool
    redo: bool

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model(self.seeding, self.redo, LEASE, 2, 3, START)
        self.people = ("7", "8", "9") if self.seeding else ("alice", "bob", "carol")
        self.items = [f"{n:040x}" if self.seeding else f"item {n}" for n in range(6)]
        self.old_tokens = ["0-0"]

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(coroutine)

    @initialize()
    def open_store(self) -> None:
        self.keys = Keys(f"work{uuid.uuid4().hex[:8]}:")

        async def start() -> None:
            self.context = running(Store(self.redis_url, self.keys, SwarmRules(), timer=lambda: 0.0))
            self.store = await self.context.__aenter__()
            await self.store.pass_time(0)
            options: dict[str, Any] = {"kind": "seeding", "verify": "announce"} if self.seeding else {}
            for name in ("proj", "other"):
                await project(
                    self.store,
                    name,
                    lease_seconds=LEASE,
                    start_budget=2,
                    budget=3,
                    order="weakest",
                    keep_done_days=30,
                    lapsed_to_redo=self.redo,
                    **options,
                )
            if self.seeding:
                await register(self.store, *self.items)
            await self.store.work.items.add("other", [NewItem(item) for item in self.items])
            await self.store.work.claims.claim("other", self.people[0])
            self.other = await self.of_other()

        self.run(start())

    async def of_other(self) -> dict[bytes, Any]:
        prefix = self.keys.work_project("other").encode()
        return {key: value for key, value in (await self.store.dump()).items() if key.startswith(prefix)}

    def wanted(self, values: dict[str, Any]) -> tuple[NewItem, Wanted]:
        queue, place = values["queue"], float(values["place"])
        asked = tuple(self.people[number] for number in values["asked"])
        name = self.items[values["number"]]
        short = queue.rpartition(":")[2]
        item = NewItem(name, short, asked, values["copies"], place)
        return item, Wanted(values["copies"], queue, place, asked)

    @rule(batch=st.lists(new_items, min_size=1, max_size=4), again=st.booleans())
    def add(self, batch: list[dict[str, Any]], again: bool) -> None:
        pairs = [self.wanted(values) for values in batch]
        added = self.run(self.store.work.items.add("proj", [item for item, _ in pairs], again=again))
        expected = sum(self.model.add(item.name, wanted, again=again) for item, wanted in pairs)
        assert (added.processed, added.added) == (len(batch), expected)

    @rule(number=numbers)
    def purge(self, number: int) -> None:
        item = self.items[number]
        assert self.run(self.store.work.items.purge("proj", [item])) == self.model.purge(item)

    @rule(who=people)
    def claim(self, who: int) -> None:
        self.expect(self.people[who], self.run(self.store.work.claims.claim("proj", self.people[who])))

    @rule(crowd=st.lists(people, min_size=2, max_size=8))
    def claim_together(self, crowd: list[int]) -> None:
        """W3: the server takes them one after another, in the order in which they were sent."""

        async def together() -> list[Any]:
            return [await self.store.work.claims.claim("proj", self.people[who]) for who in crowd]

        for who, reply in zip(crowd, self.run(together()), strict=True):
            self.expect(self.people[who], reply)

    def expect(self, claimant: str, reply: Claim | Refusal) -> None:
        expected = self.model.claim(claimant)
        if isinstance(reply, Refusal):
            assert reply.reason == expected
            return
        assert (reply.item, reply.claimant) == (expected, claimant)
        assert reply.lease_ends == self.model.now + LEASE
        self.model.granted(reply.item, claimant, reply.token)
        self.old_tokens.append(reply.token)

    def some_claim(self, data: st.DataObject) -> tuple[str, str]:
        """Mostly one that is held, else any."""
        any_claim = st.tuples(st.sampled_from(self.items), st.sampled_from(self.people))
        held = sorted([*self.model.held, *self.model.late])
        return data.draw(st.sampled_from(held) | any_claim if held else any_claim)

    @rule(data=st.data(), repeats=st.sampled_from([1, 1, 20]))
    def report(self, data: st.DataObject, repeats: int) -> None:
        """W5 to W7: also by strangers, with old tokens, and many at once."""
        item, claimant = self.some_claim(data)
        held = self.model.held.get((item, claimant))
        tokens = ["", held.token] if held else [""]
        token = data.draw(st.sampled_from([*tokens, data.draw(st.sampled_from(self.old_tokens))]))

        async def together() -> list[str]:
            calls = (self.done(item, claimant, token) for _ in range(repeats))
            return [result.outcome for result in await asyncio.gather(*calls)]

        outcomes = self.run(together())
        expected = [self.model.report(item, claimant, token, verified=False) for _ in range(repeats)]
        assert sorted(outcomes) == sorted(expected)

    def done(self, item: str, claimant: str, token: str) -> Coroutine[Any, Any, Any]:
        reported = {} if self.seeding else {"data": 5, "more": 2**40}
        return self.store.work.claims.done("proj", claimant, item, token=token, reported=reported, version="1")

    @rule(data=st.data())
    def verify(self, data: st.DataObject) -> None:
        """W12: late ones count once."""
        item, claimant = self.some_claim(data)
        if self.seeding:
            result = self.run(self.store.work.claims.complete("proj", claimant, item, seconds=9, uploaded=7))
            assert result.outcome == self.model.report(item, claimant, "", verified=True)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        item, claimant = self.some_claim(data)
        assert self.run(self.store.work.claims.release("proj", claimant, item)) == self.model.release(item, claimant)

    @rule(who=people, age=st.sampled_from([0, 1000]))
    def take_back(self, who: int, age: int) -> None:
        claimant = self.people[who]
        old = [k for k, c in self.model.held.items() if k[1] == claimant and c.at <= self.model.now - age]
        taken = self.run(self.store.work.claims.release_all("proj", claimant=claimant, older_than=age))
        for item, _ in sorted(old, key=lambda k: (self.model.held[k].ends, f"{k[0]} {k[1]}")):
            self.model.release(item, claimant, admin=True)
        assert taken == len(old)

    @rule(data=st.data())
    def extend(self, data: st.DataObject) -> None:
        item, claimant = self.some_claim(data)
        held = self.model.held.get((item, claimant))
        token = held.token if held else self.old_tokens[-1]
        ends = self.run(self.store.work.claims.extend("proj", claimant, item, token))
        if held is None:
            assert ends is None
            return
        if not self.seeding and not held.broken:
            last = min(held.since + 7 * 86_400, self.model.lease_clock + LEASE)
            held = replace(held, ends=max(held.ends, last))
            self.model.held[item, claimant] = held
        assert ends == held.ends + self.model.outages

    @rule(data=st.data(), record=st.sampled_from(NO_RECORDS))
    def overwrite(self, data: st.DataObject, record: str) -> None:
        """A site writes to the store too: a claim without a valid record ends like the others, and its item stays."""
        if self.model.held:
            item, claimant = data.draw(st.sampled_from(sorted(self.model.held)))
            self.run(self.store.redis.hset(self.keys.work_claims("proj"), f"{item} {claimant}", record))
            self.model.overwrite(item, claimant)

    @rule(count=st.integers(1, 3))
    def rank(self, count: int) -> None:
        self.run(self.store.work.leaderboard.update("proj", count))

    @rule(seconds=st.sampled_from([1, 700, 1800, LEASE, 86_400 * 7]))
    def time_passes(self, seconds: int) -> None:
        self.run(self.store.pass_time(seconds))
        self.model.now += seconds

    @rule(seconds=st.sampled_from([61, 3000, 86_400]))
    def outage(self, seconds: int) -> None:
        """No claimant could work meanwhile: no claim lapses by it."""
        self.store.clock.now += seconds
        self.run(self.store.reaping.heartbeat())
        self.run(self.store.work.claims.lapse("proj", 0))  # the worker runs often: no outage escapes it
        self.model.now += seconds
        self.model.outages += seconds

    @rule()
    def lapse(self) -> None:
        assert self.run(self.store.work.claims.lapse("proj")) == self.model.lapse()

    @invariant()
    def store_agrees_with_itself_and_the_model(self) -> None:
        if hasattr(self, "store"):
            self.run(self.check())

    async def check(self) -> None:
        store, keys, model = self.store, self.keys, self.model
        found = await check_work(store)
        assert found.wanted == sum(wanted.copies for wanted in model.wanted.values())
        assert (found.out, found.done) == (len(model.held), model.totals["done"])
        done = {item.decode() for item in await store.redis.zrange(keys.work_done("proj"), 0, -1)}
        assert done == model.done
        for claimant in self.people:
            assert await trusted(store, "proj", claimant) in (None, model.trusted(claimant))
        totals = text(await store.redis.hgetall(keys.work_totals("proj")))
        assert {f: int(n) for f, n in totals.items() if f in COUNTED and n != "0"} == +model.totals

    def teardown(self) -> None:
        async def stop() -> None:
            await check_sums(self.store)
            assert await self.of_other() == self.other
            async for key in self.store.redis.scan_iter(f"{self.keys.prefix}*", 1000):
                await self.store.redis.unlink(key)
            await self.context.__aexit__(None, None, None)

        if hasattr(self, "store"):
            self.run(stop())
        self.runner.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeding", "redo"),
    [(False, False), pytest.param(False, True, marks=pytest.mark.long), (True, False)],
    ids=["items", "redo", "seeding"],
)
def test_projects_agree_with_the_model(redis_url: str, seeding: bool, redo: bool) -> None:
    machine = type("Machine", (WorkMachine,), {"redis_url": redis_url, "seeding": seeding, "redo": redo})
    run_state_machine_as_test(machine, settings=examples(30, stateful_step_count=40))
