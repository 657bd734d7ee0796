"""D12: the external address counts by networks, not by answers."""

from tracker.bittorrent import Address
from tracker.dht.node_id import MAX_CANDIDATES, MIN_CHANGE_SECONDS, ExternalAddress

OURS, OTHER = Address(b"\x01\x02\x03\x04"), Address(b"\x05\x06\x07\x08")


def voter(network: int, host: int = 0) -> Address:
    return Address(bytes((network, network, host, host)))


def test_five_networks_decide() -> None:
    external = ExternalAddress()
    assert [external.vote(OURS, voter(network), 0) for network in range(5)] == [False] * 4 + [True]
    assert external.address == OURS


def test_one_network_decides_nothing() -> None:
    external = ExternalAddress()
    assert not any(external.vote(OTHER, voter(1, host), 0) for host in range(200))
    for network in range(4):
        assert not external.vote(OTHER, Address(bytes((1, 1, network, 2))), 0)
    assert external.address is None


def test_a_liar_is_outvoted_again_and_again() -> None:
    """Votes for a wrong address do not add up over time."""
    external = ExternalAddress(OURS)
    for turn in range(50):
        assert not external.vote(OTHER, voter(100 + turn % 50), turn)
        assert not any(external.vote(OURS, voter(network), turn) for network in range(5))
    assert external.address == OURS


def test_the_address_changes_once_an_hour_at_most() -> None:
    external = ExternalAddress()
    assert any(external.vote(OURS, voter(network), 0) for network in range(5))
    early = MIN_CHANGE_SECONDS - 1
    assert not any(external.vote(OTHER, voter(network), early) for network in range(5))
    assert external.address == OURS
    assert any(external.vote(OTHER, voter(network), MIN_CHANGE_SECONDS) for network in range(5))
    assert external.address == OTHER


def test_ipv6_networks_are_of_32_bits() -> None:
    seen = Address(bytes(15) + b"\1")
    external = ExternalAddress()
    assert not any(external.vote(seen, Address(b"\x20\x01\x0d\xb8" + bytes((n,)) * 12), 0) for n in range(9))
    assert any(external.vote(seen, Address(bytes((0x20, 1, n, n)) + bytes(12)), 0) for n in range(5))
    assert not external.vote(seen, voter(9), 0), "of the other family"


def test_the_candidates_are_bounded_and_the_best_is_kept() -> None:
    external = ExternalAddress()
    for network in range(4):
        external.vote(OURS, voter(network), 0)
    for number in range(10 * MAX_CANDIDATES):
        external.vote(Address(b"\7\7" + number.to_bytes(2, "big")), voter(50), 0)
    assert external.vote(OURS, voter(4), 0)


def test_a_fixed_address_stays() -> None:
    external = ExternalAddress(OURS, fixed=True)
    assert not any(external.vote(OTHER, voter(network), 0) for network in range(20))
    assert external.address == OURS
