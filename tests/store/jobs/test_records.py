"""When two payloads are equal (row Q2), and what is no payload."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.store.jobs.records import FIELDS, canonical_json, check_queue, fingerprint, parse_job

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
PAYLOADS = st.dictionaries(st.text(), VALUES, max_size=4)


@given(PAYLOADS)
def test_the_canonical_form_of_a_payload_has_the_same_content(payload: dict[str, object]) -> None:
    text = canonical_json(payload)
    assert json.loads(text) == payload
    assert canonical_json(json.loads(text)) == text
    assert text.isascii()


@given(PAYLOADS)
def test_the_order_of_keys_does_not_matter(payload: dict[str, object]) -> None:
    assert canonical_json(dict(reversed(payload.items()))) == canonical_json(payload)


def test_numbers_are_compared_by_value() -> None:
    assert canonical_json({"a": 1.0, "b": -0.0}) == canonical_json({"b": 0, "a": 1}) == '{"a":1,"b":0}'
    assert canonical_json({"a": 1.5}) != canonical_json({"a": 1})
    assert canonical_json({"a": True}) != canonical_json({"a": 1})
    assert canonical_json({"a": "1"}) != canonical_json({"a": 1})


@pytest.mark.parametrize(
    "payload", [{"a": math.nan}, {"a": math.inf}, {"a": {1, 2}}, {("a",): 1}, {"a": "x" * 70_000}, [1], "text"]
)
def test_an_invalid_payload_is_reported(payload: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="payload"):
        canonical_json(payload)


def test_a_payload_nested_too_deep_is_reported() -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="payload"):
        canonical_json(deep)
    while deep:  # a manual walk: Python's own is recursive
        deep = deep.pop("a")  # type: ignore[assignment]  # they are dicts all the way down


def test_a_fingerprint_covers_queue_and_payload() -> None:
    prints = {fingerprint(queue, text) for queue in ("a", "b") for text in ("{}", '{"a":1}')}
    assert len(prints) == 4
    assert all(len(each) == 32 for each in prints)


@pytest.mark.parametrize("name", ["", "a:b", "A", "1", "a" * 65, "a\n", "é"])
def test_a_queue_has_a_plain_name(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        check_queue(name)
    assert check_queue("process_torrent") == "process_torrent"


def test_invalid_fields_of_a_job_do_not_crash() -> None:
    row: list[bytes | None] = [b"\xff" for _ in FIELDS]
    job = parse_job(row)
    assert job is not None and job.retries == 0 and job.created == 0
    assert parse_job([None for _ in FIELDS]) is None
