"""The status that a node of the DHT saves: what is read is what was written, whatever a site wrote meanwhile."""

import pytest

from tests.store.dht.harness import STATUS, status
from tests.store.harness import START
from tracker.store.dht.nodes import (
    ANSWER_SECONDS,
    START_SECONDS,
    STOPPED_SECONDS,
    NodeStatus,
    fields_of,
    state_of,
    status_of,
)


def stored(shown: NodeStatus) -> dict[str, str]:
    return {name: str(value) for name, value in fields_of(shown).items() if value is not None}


def read(name: str, fields: dict[str, str]) -> NodeStatus:
    found = status_of(name, [text.encode() for item in fields.items() for text in item])
    assert found is not None
    return found


@pytest.mark.parametrize(
    "shown",
    [
        STATUS,
        status(last_answer=None, participation=None, externals={}, dropped={}, lookups={}),
        status(ids={6: b"b" * 20}, buckets={6: {159: 1}}, externals={6: "2001:db8::1"}),
    ],
)
def test_what_is_written_is_read(shown: NodeStatus) -> None:
    assert read(shown.name, stored(shown)) == shown


def test_the_fields_are_readable() -> None:
    fields = stored(STATUS)
    assert (fields["nodes4"], fields["buckets4"], fields["nodes6"]) == ("82", "0:80 17:2", "0")
    assert fields["dropped"] == '{"over the limit of its address": 2, "port 0": 1}'


def test_damaged_values_are_left_out() -> None:
    damaged = {
        "id4": "z" * 40,
        "id6": "ab" * 20,
        "buckets6": "0:1 x 5 7:-1 3:99999999999999 2:4",
        "started": "-5",
        "last_answer": "soon",
        "hashes": "9" * 30,
        "dropped": '{"a": "b", "c": -1, "d": true, "e": 2}',
        "lookups": "[" * 100_000,
        "registered": "x",
    }
    found = read("host", damaged)
    assert found.ids == {6: bytes.fromhex("ab" * 20)} and found.buckets == {6: {0: 1, 2: 4}}
    assert (found.started, found.last_answer, found.hashes) == (0, None, 0)
    assert (found.dropped, found.lookups) == ({"e": 2}, {})
    assert read("host", {"dropped": "[1]"}).dropped == {}


def test_a_node_is_down_when_no_node_has_answered_for_a_minute() -> None:
    for answered, now, state in (
        (None, START_SECONDS - 1, "starting"),
        (None, START_SECONDS, "down"),
        (START_SECONDS, START_SECONDS + ANSWER_SECONDS, "up"),
        (START_SECONDS, START_SECONDS + ANSWER_SECONDS + 1, "down"),
        (1, 2, "up"),
    ):
        assert state_of(0, answered, now) == state, (answered, now)


def test_a_node_that_saves_nothing_has_stopped() -> None:
    assert STATUS.state(START + STOPPED_SECONDS) == "up"
    assert STATUS.state(START + STOPPED_SECONDS + 1) == "stopped"
    assert status(last_answer=None).state(START) == "down"
