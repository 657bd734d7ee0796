"""What derives from a record: a made-up one with a field of each kind."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from tracker.errors import ClientError
from tracker.store.schema.multipliers import NO_MULTIPLIER, Multiplier, Rules
from tracker.store.schema.record import Field, audited, fields_of, settable, shown


@dataclass(frozen=True, slots=True)
class Boat:
    boat_id: str
    afloat: Annotated[bool, Field("Floats.", "hull")] = True
    sold: Annotated[bool, Field("Was sold.", "papers")] = False
    masts: Annotated[int, Field("Masts.", "hull", lowest=1, highest=99)] = 1
    crew: Annotated[int | None, Field("Crew.", "papers", highest=999)] = None
    name: Annotated[str, Field("Name.", "papers", max_length=5)] = ""
    fees: Annotated[Rules, Field("Fees.", "papers")] = NO_MULTIPLIER
    rig: Annotated[Literal["sloop", "ketch"], Field("Rig.", "hull")] = "sloop"
    ports: Annotated[tuple[str, ...], Field("Ports.", "papers")] = ()
    miles: Annotated[int, Field("Miles so far.")] = 0


BOAT = fields_of(Boat)


def test_the_fields_have_names_kinds_and_defaults() -> None:
    kinds = {name: field.kind for name, field in BOAT.items()}
    assert list(kinds.values()) == [*("flag", "flag", "number", "limit", "text", "rules", "choice", "names", "number")]
    assert (BOAT["afloat"].default, BOAT["rig"].choices) == (True, ("sloop", "ketch"))
    assert kinds.keys() - settable(Boat).keys() == {"miles"}


@pytest.mark.parametrize(
    ("name", "value", "stored", "read"),
    [
        ("afloat", False, "0", False),
        ("afloat", "1", "1", True),
        ("sold", False, "", False),
        ("sold", True, "1", True),
        ("masts", 7, "7", 7),
        ("crew", -1, "", None),
        ("crew", "0", "0", 0),
        ("name", " Sea horse", "Sea h", "Sea h"),
        ("fees", "2 1900000000", "2 1900000000", (Multiplier(2, 1_900_000_000),)),
    ],
)
def test_values_are_stored_and_read(name: str, value: object, stored: str, read: object) -> None:
    assert BOAT[name].stored(value) == stored
    assert BOAT[name].read(stored.encode()) == read


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("crew", "-0"),
        ("afloat", "yes"),
        ("masts", 0),
        ("masts", 100),
        ("masts", "1e1"),
        ("crew", -2),
        ("crew", "²"),
        ("fees", "x"),
    ],
)
def test_an_invalid_value_is_an_error(name: str, value: object) -> None:
    with pytest.raises(ClientError):
        BOAT[name].stored(value)


@pytest.mark.parametrize(("name", "read"), [("masts", 0), ("crew", None), ("afloat", True), ("sold", False)])
def test_what_a_site_wrote_is_read_leniently(name: str, read: object) -> None:
    assert BOAT[name].read(b"\xffx") == BOAT[name].read(b"-5") == read


def test_a_record_is_shown_and_compared_by_field() -> None:
    boat = Boat("1", fees=(Multiplier(2, 5),), ports=("a", "b"))
    assert shown(boat, ["name", "fees"]) == {"name": "", "fees": 2, "fees_until": 5}
    assert audited(boat, ["fees", "ports", "crew"]) == {"fees": "2 5", "ports": "a b", "crew": None}
    assert audited(Boat("1"), ["fees"]) == {"fees": "1"}
