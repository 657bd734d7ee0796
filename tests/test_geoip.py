"""Places of addresses, read from databases that the tests write."""

import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import geoip2.database
import pytest
from geoip2.models import City
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from structlog.typing import EventDict

from loadtest.geoip_databases import CITIES, DRESDEN, LONDON, NO_CODE, SPRINGFIELD, make_city, make_country, record
from tracker.geoip import CACHED_ADDRESSES, MAX_NAME_LENGTH, UNKNOWN, GeoIP, Place, _place

BRITISH, AMERICAN, BRITISH6 = (ip_address(each).packed for each in ("192.0.2.1", "198.51.100.1", "2001:db8:1::1"))
IN_LONDON = Place("GB", "ENG", "London", "SW1A", "United Kingdom")
IN_SPRINGFIELD = Place("US", "IL", "Springfield", "62701", "United States")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "places.mmdb"


@pytest.fixture
def lines() -> Iterator[list[EventDict]]:
    """The log lines."""
    with capture_logs() as captured:
        yield captured


# Records


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("192.0.2.0", IN_LONDON),
        ("192.0.2.255", IN_LONDON),
        ("::ffff:192.0.2.1", IN_LONDON),
        ("2001:db8:1:ffff::1", IN_LONDON),
        ("198.51.100.7", IN_SPRINGFIELD),
        ("2001:db8:2::", IN_SPRINGFIELD),
        ("203.0.113.1", Place(city="Poseidonis", country_name="Atlantis")),
        ("192.0.3.0", None),
        ("10.0.0.1", None),
        ("2001:db8:3::1", None),
        ("::1", None),
    ],
)
def test_an_address_resolves_to_its_place(path: Path, address: str, place: Place | None) -> None:
    """B10: an address without a record is unknown; a record without a code or postcode keeps its other fields."""
    assert GeoIP(make_city(path)).lookup(ip_address(address).packed) == place


def test_users_without_a_known_place_are_counted_as_such_while_a_database_is_in_use(path: Path) -> None:
    private = ip_address("10.0.0.1").packed
    places = GeoIP(path)
    assert places.place_to_count(private) is None  # no database yet
    make_city(path)
    places.refresh()
    assert places.place_to_count(private) == UNKNOWN
    assert places.place_to_count(BRITISH) == IN_LONDON
    places.close()


def test_dbip_subdivisions_have_names_instead_of_codes(path: Path) -> None:
    """B10: its free databases have no postcodes, and country ZZ for unassigned addresses."""
    nowhere = {"country": {"iso_code": "ZZ", "names": {"en": "Unknown"}}}
    networks = {"192.0.2.0/24": DRESDEN, "198.51.100.0/24": nowhere}
    geoip = GeoIP(make_city(path, networks, database_type="DBIP-City-Lite"))
    assert geoip.lookup(BRITISH) == Place("DE", "Saxony", "Dresden", "", "Germany")
    assert geoip.lookup(AMERICAN) is None


def test_a_country_database_gives_countries_only(path: Path, lines: list[EventDict]) -> None:
    """B10: one log line says what is not counted."""
    geoip = GeoIP(make_country(path))
    assert geoip.lookup(BRITISH) == Place("GB", country_name="United Kingdom")
    assert geoip.lookup(BRITISH6) == Place("GB", country_name="United Kingdom")
    (line,) = lines
    assert line["log_level"] == "warning" and "countries only" in line["event"]


def test_ipv6_addresses_are_unknown_in_an_ipv4_database(path: Path, lines: list[EventDict]) -> None:
    geoip = GeoIP(make_city(path, {"192.0.2.0/24": LONDON}, ip_version=4))
    assert geoip.lookup(BRITISH) == geoip.lookup(ip_address("::ffff:192.0.2.1").packed) == IN_LONDON
    assert geoip.lookup(BRITISH6) is None
    assert len(lines) == 1


@pytest.mark.parametrize("each", [LONDON, SPRINGFIELD, NO_CODE, DRESDEN, record("NL", city="Den Haag"), record("NL")])
def test_a_place_equals_what_geoip2_reads(path: Path, each: dict[str, Any]) -> None:
    address = "192.0.2.1"
    place = GeoIP(make_city(path, {"192.0.2.0/24": each})).lookup(ip_address(address).packed)
    with geoip2.database.Reader(path) as reader:
        city = reader.city(address)
    largest = city.subdivisions[0] if city.subdivisions else None
    assert place == Place(
        city.country.iso_code or "",
        (largest.iso_code or largest.name or "") if largest else "",
        city.city.name or "",
        city.postal.code or "",
        city.country.name or "",
    )


# Invalid records


UNREADABLE: list[Any] = [
    "text",
    7,
    ["GB"],
    {"country": "GB"},
    {"country": ["GB"]},
    {"subdivisions": "England"},
    {"subdivisions": {"0": {"iso_code": "ENG"}}},
    {"subdivisions": ["ENG"]},
    {"postal": "SW1A"},
]
"""geoip2 cannot parse these."""
ODD: list[Any] = [
    {},
    {"country": {"iso_code": 826}},
    {"country": {"iso_code": "GBR"}},
    {"country": {"iso_code": "G\u00df"}},
    {"country": {"iso_code": "G."}},
    {"country": {"names": "England"}},
    {"city": {"names": ["London"]}},
    {"city": {"names": {"en": 7}}},
    {"city": {"names": {"de": "London"}}},
    {"city": {"names": {"en": " \u200b\x00 "}}},
    {"subdivisions": []},
    {"postal": {"code": 12345}},
]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_a_record_without_valid_fields_is_unknown(path: Path, lines: list[EventDict], odd: Any) -> None:
    geoip = GeoIP(make_city(path, {"192.0.2.0/24": odd}))
    assert geoip.lookup(BRITISH) is None
    assert (geoip.misses, len(lines)) == (1, 1)


@pytest.mark.parametrize("odd", UNREADABLE, ids=str)
def test_a_record_that_geoip2_cannot_parse_is_unknown_and_logged_once(
    path: Path, lines: list[EventDict], odd: Any
) -> None:
    """Other records stay readable."""
    geoip = GeoIP(make_city(path, {"192.0.2.0/24": odd, "198.51.100.0/24": SPRINGFIELD}))
    for _ in range(2):
        assert geoip.lookup(BRITISH) is None
        assert geoip.lookup(AMERICAN) == IN_SPRINGFIELD
    assert (geoip.misses, len(lines)) == (2, 2)
    assert "damaged" in lines[1]["event"]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_an_invalid_field_leaves_the_other_fields(path: Path, odd: dict[str, Any]) -> None:
    place = GeoIP(make_city(path, {"192.0.2.0/24": {**LONDON, **odd}})).lookup(BRITISH)
    assert place is not None
    kept = {part for part in ("country", "city", "subdivisions", "postal") if part not in odd}
    names = {"country": "country", "city": "city", "subdivisions": "subdivision", "postal": "postcode"}
    assert all(getattr(place, names[part]) == getattr(IN_LONDON, names[part]) for part in kept)
    assert sum(bool(getattr(place, name)) for name in names.values()) == len(kept)


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("x" * 100_000, "x" * MAX_NAME_LENGTH),
        ("x" * (MAX_NAME_LENGTH - 1) + " y", "x" * (MAX_NAME_LENGTH - 1)),
        ("  New\n York\t", "New York"),
        ("a\x1b[2J\u202eb\x00", "a [2J b"),
        ("Zu\u0308rich", "Z\u00fcrich"),
        ("\u6771\u4eac", "\u6771\u4eac"),
        ("St. John's ~", "St. John's ~"),
    ],
)
def test_names_are_printable_and_cut_to_the_maximum_length(path: Path, name: str, read: str) -> None:
    city = {"city": {"names": {"en": name}}}
    assert GeoIP(make_city(path, {"192.0.2.0/24": city})).lookup(BRITISH) == Place(city=read)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["iso_code", "names", "en", "code"]), inner),
    max_leaves=6,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            part: st.dictionaries(st.sampled_from(["iso_code", "names", "code"]), JSON)
            for part in ("country", "city", "postal")
        },
    )
)
def test_every_place_is_printable_and_can_be_encoded(odd: Any) -> None:
    place = _place(City(["en"], **odd))
    if place is not None:
        fields = (place.country, place.country_name, place.subdivision, place.city, place.postcode)
        assert any(fields)
        assert all(text.isprintable() and text == text.strip() and len(text) <= MAX_NAME_LENGTH for text in fields)
        "".join(fields).encode()


@pytest.mark.parametrize(
    ("country", "name"),
    [
        ({"iso_code": "NL", "names": {"en": "The Netherlands"}}, "The Netherlands"),
        ({"iso_code": "NL", "names": {"en": "Netherlands"}}, "Netherlands"),
        ({"iso_code": "FR", "names": {"de": "Frankreich"}}, "France"),
        ({"iso_code": "XY"}, "XY"),
        ({"names": {"en": "Atlantis"}}, "Atlantis"),
        ({}, ""),
    ],
)
def test_a_country_has_its_english_name_in_the_database(path: Path, country: dict[str, Any], name: str) -> None:
    """B8: without one, it has the name that other databases use."""
    record = {"country": country, "city": {"names": {"en": "Anywhere"}}}
    place = GeoIP(make_city(path, {"192.0.2.0/24": record})).lookup(BRITISH)
    assert place is not None and place.country_name == name


def test_a_country_code_is_two_upper_case_letters(path: Path) -> None:
    lower = {"country": {"iso_code": "gb"}}
    assert GeoIP(make_city(path, {"192.0.2.0/24": lower})).lookup(BRITISH) == Place("GB", country_name="United Kingdom")


# Lookups


@pytest.mark.parametrize("wrong", [b"", b"123", b"12345", b"x" * 15, b"x" * 17])
def test_bytes_of_a_wrong_length_are_unknown(path: Path, lines: list[EventDict], wrong: bytes) -> None:
    assert GeoIP(make_city(path)).lookup(wrong) is None
    assert len(lines) == 1


def test_lookups_are_cached_by_address_and_misses_are_counted(path: Path) -> None:
    geoip = GeoIP(make_city(path))
    first = geoip.lookup(BRITISH)
    assert geoip.lookup(bytes(bytearray(BRITISH))) is first  # a second read would give another object
    assert geoip.misses == 0
    for _ in range(3):
        geoip.lookup(b"\x0a\0\0\x01")
    assert geoip.misses == 3


def test_the_cache_is_bounded(path: Path) -> None:
    geoip = GeoIP(make_city(path))
    first = geoip.lookup(BRITISH)
    for number in range(CACHED_ADDRESSES):
        geoip.lookup(number.to_bytes(4))
    again = geoip.lookup(BRITISH)
    assert again == first and again is not first


def test_without_a_path_every_address_is_unknown_and_nothing_is_logged(lines: list[EventDict]) -> None:
    """B10."""
    geoip = GeoIP(None)
    geoip.refresh()
    assert (geoip.lookup(BRITISH), geoip.describe(), geoip.problem, geoip.misses) == (None, None, "", 0)
    assert not lines


# Files that appear, vanish and change


def test_a_missing_file_is_logged_once_and_opened_when_it_appears(path: Path, lines: list[EventDict]) -> None:
    """B10."""
    geoip = GeoIP(path)
    for _ in range(5):
        geoip.refresh()
        assert geoip.lookup(BRITISH) is None
    (line,) = lines
    assert (line["log_level"], line["problem"]) == ("warning", "No such file or directory")
    make_city(path)
    geoip.refresh()
    assert geoip.lookup(BRITISH) == IN_LONDON
    assert (geoip.problem, geoip.misses, len(lines)) == ("", 0, 2)


def test_a_replaced_file_is_opened_at_the_next_refresh(path: Path, lines: list[EventDict]) -> None:
    geoip = GeoIP(make_city(path))
    for number in range(10):
        moved = LONDON if number % 2 else SPRINGFIELD
        make_city(path, {"192.0.2.0/24": moved})
        assert geoip.lookup(AMERICAN) == (IN_SPRINGFIELD if number == 0 else None)  # unchanged until the refresh
        geoip.refresh()
        assert geoip.lookup(BRITISH) == (IN_LONDON if number % 2 else IN_SPRINGFIELD)
    geoip.refresh()
    assert [line["event"] for line in lines] == ["geoip database opened"] * 11


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_file_is_mapped_while_in_use_only(path: Path) -> None:
    def mapped() -> list[str]:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
        return [line for line in maps.splitlines() if str(path) in line]

    geoip = GeoIP(make_city(path))
    geoip.lookup(BRITISH)
    assert len(mapped()) == 1
    make_city(path)
    geoip.refresh()
    (line,) = mapped()
    assert "(deleted)" not in line
    geoip.close()
    assert not mapped()
    assert geoip.lookup(BRITISH) is None


@pytest.mark.parametrize("cut", [0, 1, 1000, -100])
def test_a_growing_file_is_opened_when_it_is_complete(
    path: Path, tmp_path: Path, lines: list[EventDict], cut: int
) -> None:
    """It changes between two refreshes, so no problem is logged."""
    whole = make_city(tmp_path / "whole.mmdb", {"192.0.2.0/24": SPRINGFIELD}).read_bytes()
    geoip = GeoIP(make_city(path))
    part = tmp_path / "part.mmdb"
    for end in (cut, cut + 10):
        part.write_bytes(whole[:end])
        part.replace(path)
        geoip.refresh()
        assert geoip.lookup(BRITISH) == IN_LONDON
    assert geoip.problem
    path.write_bytes(whole)
    geoip.refresh()
    assert geoip.lookup(BRITISH) == IN_SPRINGFIELD
    assert [line["event"] for line in lines] == ["geoip database opened"] * 2


def test_an_invalid_replacement_is_logged_once_and_the_previous_file_stays_in_use(
    path: Path, tmp_path: Path, lines: list[EventDict]
) -> None:
    geoip = GeoIP(make_city(path))
    for number in (1, 2):
        broken = tmp_path / "broken"
        broken.write_bytes(b"an error page" * number)
        broken.replace(path)
        for _ in range(4):
            geoip.refresh()
            assert geoip.lookup(BRITISH) == IN_LONDON
        assert len(lines) == 1 + number
        assert "stays in use" in lines[-1]["event"] and "incomplete" in lines[-1]["problem"]
    path.unlink()
    for _ in range(4):
        geoip.refresh()
    assert len(lines) == 4 and lines[-1]["problem"] == "No such file or directory"
    make_city(path, {"192.0.2.0/24": SPRINGFIELD})
    geoip.refresh()
    assert (geoip.lookup(BRITISH), geoip.problem) == (IN_SPRINGFIELD, "")


@pytest.mark.parametrize(
    "content", [b"", b"x", b"\xab\xcd\xefMaxMind.com", b"\xab\xcd\xefMaxMind.com\xe1", b"\0" * 5000]
)
def test_an_invalid_first_file_is_logged_once(path: Path, lines: list[EventDict], content: bytes) -> None:
    path.write_bytes(content)
    geoip = GeoIP(path)
    for _ in range(3):
        geoip.refresh()
        assert geoip.lookup(BRITISH) is None
    (line,) = lines
    assert line["log_level"] == "warning" and "users are not counted by place" in line["event"]
    make_city(path)
    geoip.refresh()
    assert geoip.lookup(BRITISH) == IN_LONDON


def test_a_damaged_name_is_logged_once_and_other_lookups_work(path: Path, lines: list[EventDict]) -> None:
    whole = make_city(path, {"192.0.2.0/24": LONDON, "198.51.100.0/24": record("US", city="Troy")}).read_bytes()
    assert b"FLondon" in whole
    path.write_bytes(whole.replace(b"FLondon", b"F\xff\xfe\xfd\xfc\xfb\xfa"))
    geoip = GeoIP(path)
    for _ in range(3):
        assert geoip.lookup(BRITISH) is None
        assert geoip.lookup(AMERICAN) == Place("US", city="Troy", country_name="United States")
        geoip.refresh()
    assert [line["event"] for line in lines] == ["geoip database opened", "geoip database damaged; download it again"]
    assert geoip.misses == 3 and "damaged" in geoip.problem
    make_city(path)
    geoip.refresh()
    assert (geoip.lookup(BRITISH), geoip.problem) == (IN_LONDON, "")


def test_no_mangled_file_raises_an_error(path: Path) -> None:
    """Random bytes change, more often in the metadata, and some files are truncated."""
    whole = make_city(path, built=1_790_000_000).read_bytes()
    addresses = [BRITISH, AMERICAN, BRITISH6, bytes(4), bytes(16), b"\xff" * 16]
    chance = random.Random(5)
    seen: Counter[str] = Counter()
    for number in range(400):
        mangled = bytearray(whole)
        first = whole.rindex(b"MaxMind.com") if number % 2 else 0
        for _ in range(chance.choice([1, 1, 2, 5])):
            mangled[chance.randrange(first, len(whole))] = chance.randrange(256)
        path.write_bytes(mangled[: chance.randrange(len(whole))] if number % 9 == 0 else mangled)
        geoip = GeoIP(path)
        for address in addresses:
            geoip.lookup(address)
        seen[geoip.problem] += 1
        geoip.close()
    damaged, invalid = ("damaged: some records cannot be read", "not a MaxMind DB file, or an incomplete one")
    assert all(seen[problem] > 10 for problem in ("", damaged, invalid))


@pytest.mark.parametrize(
    ("text", "other"),
    [
        (b"\x47country", b"\x87country"),  # the C reader crashes the process at a key of bytes
        (b"\x48location", b"\x00\xffocation"),  # and may crash it at an unknown type
    ],
)
def test_a_file_with_damaged_records_is_rejected_and_the_previous_one_stays_in_use(
    path: Path, tmp_path: Path, lines: list[EventDict], text: bytes, other: bytes
) -> None:
    geoip = GeoIP(make_city(path))
    whole = make_city(tmp_path / "damaged").read_bytes()
    assert text in whole
    (tmp_path / "damaged").write_bytes(whole.replace(text, other))
    (tmp_path / "damaged").replace(path)
    for _ in range(3):
        geoip.refresh()
        assert geoip.lookup(BRITISH) == IN_LONDON
    assert len(lines) == 2 and "damaged" in lines[1]["problem"]


def test_a_file_written_in_place_is_unmapped(path: Path, lines: list[EventDict]) -> None:
    """Reading the lost pages of a truncated file through a mapping crashes the process."""
    geoip = GeoIP(make_city(path))
    os.truncate(path, 0)
    geoip.refresh()
    assert geoip.lookup(BRITISH) is None and geoip.describe() is None
    whole = make_city(path.with_name("whole.mmdb"), {"192.0.2.0/24": SPRINGFIELD})
    shutil.copyfile(whole, path)
    geoip.refresh()
    assert geoip.lookup(BRITISH) == IN_SPRINGFIELD
    assert len(lines) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_is_opened_once_its_permissions_allow_it(path: Path, lines: list[EventDict]) -> None:
    make_city(path).chmod(0)
    geoip = GeoIP(path)
    assert geoip.problem == lines[0]["problem"] == "Permission denied"
    path.chmod(0o600)
    geoip.refresh()
    assert geoip.lookup(BRITISH) == IN_LONDON


def test_only_regular_files_are_opened(path: Path) -> None:
    """Opening a pipe would block until another process writes."""
    os.mkfifo(path)
    assert GeoIP(path).problem == GeoIP(path.parent).problem == "not a regular file"
    assert GeoIP("a\0b").problem


@pytest.mark.parametrize("kind", ["GeoLite2-ASN", "GeoIP2-Anonymous-IP", ""])
def test_a_database_without_places_is_rejected(path: Path, lines: list[EventDict], kind: str) -> None:
    geoip = GeoIP(make_city(path, {"192.0.2.0/24": {"autonomous_system_number": 1}}, database_type=kind))
    (line,) = lines
    assert "has no places" in line["problem"] and geoip.describe() is None


# Descriptions


@pytest.mark.parametrize(
    ("kind", "cities", "postcodes"),
    [
        ("GeoLite2-City", True, True),
        ("GeoIP2-City-North-America", True, True),
        ("GeoIP2-Enterprise", True, True),
        ("GeoLite2-Country", False, False),
        ("GeoIP2-Country", False, False),
        ("DBIP-City-Lite", True, False),
        ("DBIP-City-Lite (compat=City)", True, False),
        ("DBIP-Country-Lite", False, False),
        ("DBIP-Country-Lite (compat=Country)", False, False),
        ("DBIP-Location (compat=City)", True, True),
        ("DBIP-Location-ISP (compat=Enterprise)", True, True),
        ("DBIP-ISP (compat=Enterprise)", False, False),
    ],
)
def test_a_database_type_determines_its_fields(path: Path, kind: str, cities: bool, postcodes: bool) -> None:
    described = GeoIP(make_city(path, CITIES, database_type=kind)).describe()
    assert described is not None
    assert (described.database_type, described.cities, described.postcodes) == (kind, cities, postcodes)


def test_a_description_is_one_readable_line(path: Path) -> None:
    described = GeoIP(make_city(path, built=1_790_000_000)).describe()
    assert str(described) == "GeoLite2-City of 2026-09-21: countries, cities, postcodes"
    for unlikely in (2**62, 2**63):
        make_city(path, database_type="DBIP-City-Lite", built=unlikely)
        assert str(GeoIP(path).describe()) == "DBIP-City-Lite: countries, cities"


def test_use_switches_to_another_database(path: Path, tmp_path: Path) -> None:
    """As at a reload of the settings. An unusable one leaves the previous one in use."""
    geoip, address = GeoIP(None), ip_address("192.0.2.1").packed
    assert geoip.lookup(address) is None
    geoip.use(make_city(path, {"192.0.2.0/24": LONDON}))
    assert geoip.lookup(address) is not None
    geoip.use(tmp_path / "missing.mmdb")
    assert geoip.problem
    assert geoip.lookup(address) is not None
    geoip.use(None)
    assert geoip.lookup(address) is None
    assert not geoip.problem
    geoip.close()
