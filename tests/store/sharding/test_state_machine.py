"""T19 and the others of the state machine, on a store with four shards."""

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.examples import examples
from tests.store.sharding.harness import SHARDS, hash_in
from tests.store.swarms.test_state_machine import SwarmMachine
from tracker.bittorrent import Accounts, InfoHash


class ShardedMachine(SwarmMachine):
    shards = SHARDS

    def hash_of(self, torrent: int) -> InfoHash:
        """Two of the three torrents share a shard."""
        return hash_in(torrent % 2, torrent)

    def id_of(self, torrent: int) -> str:
        found = self.run(self.store.torrents.get(self.hash_of(torrent)))
        return str(found.torrent_id)


@pytest.mark.slow
@pytest.mark.parametrize("accounts", ["off", pytest.param("required", marks=pytest.mark.long)])
def test_swarms_in_shards_agree_with_the_model(redis_url: str, accounts: Accounts) -> None:
    """T19: per shard."""
    machine = type("Machine", (ShardedMachine,), {"redis_url": redis_url, "accounts": accounts})
    run_state_machine_as_test(machine, settings=examples(10, stateful_step_count=30))
