"""No announce of an attacker stops, replaces or moves another peer, or changes another user's totals.

Attackers know what a swarm shows: info hashes, peer ids, endpoints. They have their own addresses, some in the same /24
or /64, and with accounts their own one. They do not have the victim's address, its key or its passkey.
"""

import asyncio
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, get_args

import pytest
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from loadtest.invariants import check_invariants
from tests.core.harness import at, open_tracker
from tests.examples import examples
from tests.store.harness import ALICE, BOB, info_hash, peer_id, timeout_key
from tracker.bittorrent import Accounts, AnnounceReply, PeerId
from tracker.refusals import Refusal
from tracker.settings.model import Settings
from tracker.wire.peer_id import secret_of

CAROL = "c" * 20
MOVING = {"n4", "n6"}
"""The positions of a peer in the arrays of its swarm. They change when others leave; the invariants check them."""


@dataclass(frozen=True)
class Victim:
    number: int
    addresses: tuple[str, ...]
    key: bytes
    torrent: int = 1

    @property
    def endpoints(self) -> set[bytes]:
        return {at(address) + (6881).to_bytes(2, "big") for address in self.addresses}


VICTIMS = (
    Victim(1, ("11.0.0.1",), b""),
    Victim(2, ("11.0.0.2",), b"0123ABCD"),
    Victim(3, ("2a00:1:2:3::3",), b""),
    Victim(4, ("11.0.0.4", "2a00:1:2:3::4"), b"89ABCDEF"),
    Victim(4, ("11.0.0.4", "2a00:1:2:3::4"), b"89ABCDEF", torrent=2),
)
ADDRESSES = ("11.0.0.9", "11.9.9.9", "2a00:1:2:3::9", "2a00:9::9", "127.0.0.1")
KEYS = (b"", b"0123abce", b"0123ABC", b"0123ABCD0", b"89ABCDEE", b"\0" * 8, b"x" * 64)
FIGURES = st.sampled_from([0, 1, 10**6, 2**53 - 1])
attacks = st.fixed_dictionaries(
    {
        "event": st.sampled_from(["", "started", "completed", "stopped", "paused"]),
        "bytes_left": st.sampled_from([None, 0, 1, 1000]),
        "uploaded": FIGURES,
        "downloaded": FIGURES,
        "port": st.sampled_from([1, 6881, 65535]),
        "key": st.sampled_from(KEYS),
        "compact": st.booleans(),
    }
)


class HijackMachine(RuleBasedStateMachine):
    redis_url = ""
    accounts: Accounts = "off"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.moved = 0

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(coroutine)

    @initialize()
    def open(self) -> None:
        made = Settings.model_validate({"users": {"private": self.accounts}})
        self.context = open_tracker(self.redis_url, f"hijack{uuid.uuid4().hex[:8]}:", made)
        self.tracker = self.run(self.context.__aenter__())
        if self.accounts != "off":
            self.run(self.tracker.store.users.add("7", ALICE))
            self.run(self.tracker.store.users.add("8", BOB))
            self.run(self.tracker.store.users.add("9", CAROL))
        for victim in VICTIMS:
            self.victim_announces(victim, "started")
        self.known = self.run(self.state())

    def has_account(self, victim: Victim) -> bool:
        """With optional accounts some victims are anonymous."""
        return self.accounts == "required" or (self.accounts == "optional" and victim.number % 2 == 0)

    def victim_announces(self, victim: Victim, event: str = "") -> None:
        for address in victim.addresses:
            self.run(
                self.tracker.announce(
                    victim.number,
                    event,
                    ALICE if self.has_account(victim) else None,
                    address,
                    info_hash=info_hash(victim.torrent),
                    key=victim.key,
                    uploaded=self.moved,
                )
            )

    async def state(self) -> dict[str, Any]:
        """Everything stored about the victims, with the times at which their timeouts expire."""
        store, found = self.tracker.store, {}
        for victim in VICTIMS:
            tid, pid = str(victim.torrent), peer_id(victim.number)
            row = await store.redis.hgetall(store.keys.peer(tid, pid))
            found[f"peer {tid} {victim.number}"] = {
                name.decode(): value for name, value in row.items() if name.decode() not in MOVING
            }
            found[f"timeout {tid} {victim.number}"] = await store.redis.pexpiretime(timeout_key(store.keys, tid, pid))
            found[f"member {tid} {victim.number}"] = await store.redis.sismember(
                store.keys.swarm_peers(info_hash(victim.torrent)), pid.hex()
            )
        async for key in store.redis.scan_iter(store.keys.user("7") + "*", 1000):
            found[key.decode()] = await store.redis.dump(key)
        if self.accounts != "off":
            found["passkey"] = await store.redis.dump(store.keys.passkey(ALICE))
        return found

    async def attack(self, number: int, torrent: int, address: str, passkey: str, values: dict[str, Any]) -> Any:
        try:
            return await self.tracker.announce(
                number,
                values["event"],
                passkey,
                address,
                info_hash=info_hash(torrent),
                **{name: value for name, value in values.items() if name != "event"},
            )
        except Refusal as error:
            return error

    @rule(
        victim=st.sampled_from(VICTIMS),
        address=st.sampled_from(ADDRESSES),
        passkey=st.sampled_from([BOB, BOB, ALICE[:-1], ALICE.upper(), "", "7"]),
        values=attacks,
    )
    def announce_with_a_victims_peer_id(
        self, victim: Victim, address: str, passkey: str, values: dict[str, Any]
    ) -> None:
        reply = self.run(self.attack(victim.number, victim.torrent, address, passkey, values))
        assert self.run(self.state()) == self.known
        if isinstance(reply, AnnounceReply):  # any client may get a reply, but nothing was applied
            assert passkey == BOB or self.accounts != "required"

    @rule(victim=st.sampled_from(VICTIMS), passkey=st.sampled_from([BOB, "", ALICE[:-1]]), values=attacks)
    def announce_with_the_victims_address_and_another_account(
        self, victim: Victim, passkey: str, values: dict[str, Any]
    ) -> None:
        """An attacker in the same household. It may take an anonymous victim's endpoint, as without accounts."""
        if self.has_account(victim):
            self.run(
                self.attack(victim.number, victim.torrent, victim.addresses[0], passkey, {**values, "key": victim.key})
            )
            assert self.run(self.state()) == self.known

    @rule(number=st.integers(11, 13), address=st.sampled_from(ADDRESSES), torrent=st.integers(1, 3), values=attacks)
    def attackers_join_and_leave(self, number: int, address: str, torrent: int, values: dict[str, Any]) -> None:
        """Attackers with their own peer ids fill and leave slots beside the victims'."""
        self.run(self.attack(number, torrent, address, BOB, values))
        assert self.run(self.state()) == self.known

    @rule(victim=st.sampled_from(VICTIMS), seconds=st.integers(1, 4000))
    def a_victim_announces_again(self, victim: Victim, seconds: int) -> None:
        """Its own announces still apply: it is not locked out."""
        self.tracker.store.clock.now += seconds
        self.moved += 1000
        self.victim_announces(victim)
        known = self.run(self.state())
        changed = {name for name in known if known[name] != self.known[name]}
        assert f"peer {victim.torrent} {victim.number}" in changed
        assert not {name for name in changed if name.startswith(("peer", "member"))} - {
            f"peer {victim.torrent} {victim.number}"
        }
        self.known = known

    @invariant()
    def the_swarm_lists_the_victims_unchanged(self) -> None:
        """To any other user: the attacker is not told its own endpoints, which may be the victim's."""
        if not hasattr(self, "tracker"):
            return
        store = self.tracker.store
        self.run(check_invariants(store.redis, store.keys))
        reply = self.run(
            self.tracker.announce(90, "", CAROL, "11.90.90.90", peers_wanted=200, compact=False, bytes_left=1)
        )
        pairs = {
            (reply.peer_ids[20 * n : 20 * n + 20], reply.peers[6 * n : 6 * n + 6]) for n in range(len(reply.peers) // 6)
        }
        pairs |= {
            (reply.peer_ids6[20 * n : 20 * n + 20], reply.peers6[18 * n : 18 * n + 18])
            for n in range(len(reply.peers6) // 18)
        }
        for victim in VICTIMS:
            if victim.torrent == 1:
                listed = {endpoint for pid, endpoint in pairs if pid == peer_id(victim.number)}
                assert listed >= victim.endpoints
                own = {at(address) for address in (*ADDRESSES, *(victim.addresses if self.has_account(victim) else ()))}
                assert {endpoint[:-2] for endpoint in listed - victim.endpoints} <= own, (
                    "the other endpoints belong to attackers"
                )

    def teardown(self) -> None:
        async def stop() -> None:
            async for key in self.tracker.store.redis.scan_iter(f"{self.tracker.store.keys.prefix}*", 1000):
                await self.tracker.store.redis.unlink(key)
            await self.context.__aexit__(None, None, None)

        if hasattr(self, "tracker"):
            self.run(stop())
        self.runner.close()


@pytest.mark.parametrize("accounts", get_args(Accounts))
def test_an_attacker_cannot_take_over_a_peer(redis_url: str, accounts: Accounts) -> None:
    machine = type("Machine", (HijackMachine,), {"redis_url": redis_url, "accounts": accounts})
    run_state_machine_as_test(
        machine,
        settings=examples(
            8,
            stateful_step_count=20,
            phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking a failure takes minutes
        ),
    )


A_PEER_ID = PeerId(b"-GT0003-\x01\x02\x03\x04wxyz\xff\x00\xaa\x7f")


@pytest.mark.parametrize(
    "key",
    [
        A_PEER_ID[-8:],  # aria2
        str(int.from_bytes(A_PEER_ID[16:], "big", signed=True)).encode(),  # anacrolix/torrent
        str(int.from_bytes(A_PEER_ID[16:], "big")).encode(),
        str(int.from_bytes(A_PEER_ID[3:7], "little")).encode(),
        b"01020304",
        b"FF00AA7F",
        b"-GT",
        b"",
    ],
)
def test_a_key_derived_from_the_peer_id_is_no_secret(key: bytes) -> None:
    assert secret_of(key, A_PEER_ID) == b""


def test_a_derived_key_of_seven_digits_and_a_sign_is_no_secret() -> None:
    """It has the length of a key in hex."""
    assert secret_of(b"-1234567", PeerId(b"-GT0003-\1\2\3\4wxyz" + (-1234567).to_bytes(4, "big", signed=True))) == b""


@pytest.mark.parametrize("key", [b"1F3A9C07", b"12345678", b"-123456789", b"--5", b"9" * 64, b"\xff\xfe", b"abc-"])
def test_any_other_key_is_a_secret(key: bytes) -> None:
    assert secret_of(key, A_PEER_ID)


@pytest.mark.parametrize(
    ("key", "secret"),
    [(b"abcdef12", b"ABCDEF12"), (b"AbC", b"00000ABC"), (b"abcdef123", b"abcdef123"), (b"8 bytes", b"8 bytes")],
)
def test_a_key_of_hex_digits_is_the_number_that_udp_carries(key: bytes, secret: bytes) -> None:
    assert secret_of(key, A_PEER_ID) == secret
