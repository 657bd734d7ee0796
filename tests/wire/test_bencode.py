"""The strict decoder of bencode, and the encoder."""

import gc
from typing import Any

import bencodepy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.wire.bencode import BencodeError, decode, encode

values = st.recursive(
    st.integers(-(10**18), 10**18) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.binary(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def decoded(data: bytes) -> Any:
    return decode(data, max_depth=8, max_values=100)


@given(values)
def test_what_is_encoded_is_decoded(value: Any) -> None:
    assert decode(bencodepy.encode([value]), max_depth=50, max_values=1000) == [value]


@given(st.recursive(values | st.text(max_size=9), lambda inner: st.tuples(inner, inner), max_leaves=5))
def test_both_encoders_agree(value: Any) -> None:
    assert encode([value]) == bencodepy.encode([value])


@pytest.mark.parametrize("value", [None, 1.5, {b"a": {1}}])
def test_other_types_are_not_encoded(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be bencoded"):
        encode(value)


def test_encoding_leaves_nothing_to_the_garbage_collector() -> None:
    gc.collect()
    for _ in range(100):
        encode({b"r": {b"id": b"x", b"values": [b"1", b"2"]}, b"y": b"r"})
    assert gc.collect() < 100


@given(st.binary(max_size=40) | st.text("dlie0123456789:-a", max_size=30).map(str.encode))
def test_what_is_decoded_encodes_to_the_same_bytes(data: bytes) -> None:
    """Order of keys included: dictionaries keep it. An encoding has exactly one value."""
    try:
        value = decoded(data)
    except BencodeError:
        return
    assert bencodepy.encode(value) == data


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"0:", b""),
        (b"i0e", 0),
        (b"i-1e", -1),
        (b"i9999999999999999999e", 9999999999999999999),
        (b"de", {}),
        (b"le", []),
        (b"d1:bi1e1:ali2e1:xdeee", {b"b": 1, b"a": [2, b"x", {}]}),
    ],
)
def test_values(data: bytes, value: Any) -> None:
    assert decoded(data) == value


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"x", b"e", b"d", b"l", b"i1", b"ie", b"i-0e", b"i01e", b"i1.5e", b"i+1e"),
        *(b"i99999999999999999999e", b"01:a", b"2:a", b"99999999:a", b"-1:a"),
        *(b"dee", b"d1:ae", b"di1ei2ee", b"dlei1ee", b"d1:ai1e1:ai2ee", b"ddei1ee"),
        *(b"i1ei2e", b"de\n", b"l" * 9 + b"e" * 9, b"l" + b"0:" * 100 + b"e"),
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(BencodeError):
        decoded(data)


def test_the_bounds_are_inclusive() -> None:
    assert decoded(b"l" * 8 + b"e" * 8) == [[[[[[[[]]]]]]]]
    assert decoded(b"l" + b"0:" * 99 + b"e") == [b""] * 99
