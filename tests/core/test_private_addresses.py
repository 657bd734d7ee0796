"""The warning of a private address."""

from tracker.core.announce import MAX_TOLD, PrivateAddresses
from tracker.core.warning_messages import PRIVATE_ADDRESS

PUBLIC, PRIVATE, OTHER = (b"\x0b\0\0\1", b"\x0a\0\0\1", b"\x0a\0\0\2")


def test_a_private_address_is_warned_once_and_not_in_a_lan() -> None:
    addresses = PrivateAddresses()
    assert [addresses.warning(each) for each in (PRIVATE, PRIVATE, PUBLIC)] == [None, None, None]
    told = [addresses.warning(each) for each in (PRIVATE, OTHER, PRIVATE, OTHER, PUBLIC)]
    assert told == [PRIVATE_ADDRESS, PRIVATE_ADDRESS, None, None, None]


def test_the_addresses_remembered_are_bounded() -> None:
    addresses = PrivateAddresses()
    addresses.warning(PUBLIC)
    for number in range(MAX_TOLD + 1):
        assert addresses.warning(b"\x0a" + number.to_bytes(3, "big")) == PRIVATE_ADDRESS
    assert addresses.warning(b"\x0a\0\0\0") == PRIVATE_ADDRESS
