"""T19 and the others of the state machine, on a store that gets another number of shards again and again."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from tests.examples import examples
from tests.store.harness import Store, running
from tests.store.resharding.conftest import reshard
from tests.store.sharding.test_state_machine import ShardedMachine
from tracker.bittorrent import Accounts
from tracker.store.resharding.parts import Parts
from tracker.store.schema.keys import Keys


class ReshardedMachine(ShardedMachine):
    shards = 1
    copies = 0

    @rule(shards=st.sampled_from([1, 2, 4, 8]))
    def reshard(self, shards: int) -> None:
        """Everything is as before, but the time. The old store is deleted."""

        async def change() -> None:
            self.copies += 1
            old, context = self.store, self.context
            keys = Keys(f"{self.keys.prefix.partition('-')[0].removesuffix(':')}-{self.copies}:")
            new = Store(self.redis_url, keys, old.rules.current, old.clock, shards)
            self.context = running(new)
            await self.context.__aenter__()
            before, after = await reshard(old, new)
            assert before.figures == after.figures
            await Parts(old).delete()
            assert context is not None
            await context.__aexit__(None, None, None)
            self.store, self.keys = new, keys

        self.run(change())
        self.model.now = self.store.clock.now


@pytest.mark.slow
@pytest.mark.parametrize("accounts", ["required", pytest.param("off", marks=pytest.mark.long)])
def test_swarms_agree_with_the_model_over_all_numbers_of_shards(redis_url: str, accounts: Accounts) -> None:
    """T19, T7, T16, T17, T26, T27 and T30."""
    machine = type("Machine", (ReshardedMachine,), {"redis_url": redis_url, "accounts": accounts})
    run_state_machine_as_test(machine, settings=examples(10, stateful_step_count=30))
