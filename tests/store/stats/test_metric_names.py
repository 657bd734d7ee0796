"""B11: names of metrics are unambiguous, readable, bounded, and can be read back."""

import re
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.harness import info_hash
from tracker.store.metrics import (
    MAX_PLACE_BYTES,
    NOWHERE,
    PlaceNames,
    escape,
    metrics,
    place_names,
    unescape,
    user_name,
)

IH = info_hash(7).hex()
STATHAT_PREFIX = 60
texts = st.text(max_size=30)
names = st.text(min_size=1, max_size=200)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("London", "London"),
        ("New York", "New_York"),
        ("New_York", "New%5FYork"),
        ("St. Gallen", "St%2E_Gallen"),
        ("Saint-Denis", "Saint-Denis"),
        ("São Paulo", "São_Paulo"),
        ("Sa\u0303o Paulo", "São_Paulo"),  # decomposed: the same city
        ("東京", "東京"),
        ("दिल्ली", "दिल्ली"),
        ("\u0301x", "%CC%81x"),  # a mark with nothing to stand on
        ("50%", "50%25"),
        ("a/b:c~d", "a%2Fb%3Ac%7Ed"),
        ("a\u200bb\n", "a%E2%80%8Bb%0A"),
        ("a\u3164b", "a%E3%85%A4b"),  # a letter that shows nothing
        ("Ⅳ²", "%E2%85%A3%C2%B2"),
        ("🏙", "%F0%9F%8F%99"),
    ],
)
def test_the_escaping_as_documented(text: str, escaped: str) -> None:
    """B11."""
    assert escape(text) == escaped
    assert unescape(escaped) == normalize("NFC", text)


@given(texts)
def test_escaping_can_be_undone(text: str) -> None:
    """B11: so different names stay different."""
    escaped = escape(text)
    assert unescape(escaped) == normalize("NFC", text)
    assert not re.search(r"[\s./:~]", escaped)
    assert re.fullmatch(r"(?:[^%]|%[0-9A-F]{2})*", escaped)


def test_lone_surrogates_are_no_trouble() -> None:
    assert unescape(escape("\ud800\udc00")) == "\ud800\udc00"


@given(
    st.lists(
        st.tuples(names, st.one_of(st.just(""), names), names, names), min_size=2, max_size=2, unique=True
    )
)
def test_different_places_have_different_names(places: list[tuple[str, str, str, str]]) -> None:
    """B11: also where names are too long to be kept whole."""
    first, second = (tuple(normalize("NFC", part) for part in place) for place in places)
    one, other = place_names(*first), place_names(*second)
    assert (one.country == other.country) == (first[0] == second[0])
    assert (one.city == other.city) == (first[:3] == second[:3])
    assert (one.postcode == other.postcode) == ((first[0], first[3]) == (second[0], second[3]))


@given(names, names, names, names)
def test_every_name_fits_into_a_statistic(country: str, subdivision: str, city: str, postcode: str) -> None:
    """B11: at most 255 bytes with StatHat's prefix, and no `~`."""
    for metric in metrics(info_hash(7), place_names(country, subdivision, city, postcode)):
        assert len(metric.encode()) + STATHAT_PREFIX <= 255
        assert "~" not in metric


def test_two_springfields_differ() -> None:
    assert place_names("US", "IL", "Springfield", "").city == "US/IL/Springfield"
    assert place_names("US", "MA", "Springfield", "").city == "US/MA/Springfield"
    assert place_names("SG", "", "Singapore", "").city == "SG/Singapore"
    assert place_names("GB", "ENG", "London", "SW1A") == ("GB", "GB/ENG/London", "GB/SW1A")


def test_what_is_unknown_has_no_name() -> None:
    """B10: a city without a country could be any."""
    assert place_names("", "IL", "Springfield", "62701") == NOWHERE
    assert place_names("US", "", "", "") == PlaceNames("US")


def test_a_long_name_is_cut_and_cannot_be_read_back() -> None:
    """B11: the cut shows, and no whole name looks like it."""
    long = place_names("GB", "", "Llan" + "fair" * 40, "")
    assert len(long.city) == MAX_PLACE_BYTES
    assert re.fullmatch("GB/Llan(fair)+(f|fa|fai)?%-[0-9a-f]{32}", long.city)
    with pytest.raises(ValueError, match="cut"):
        unescape(long.city.split("/")[-1])
    other = place_names("GB", "", "Llan" + "fair" * 41, "").city
    assert other != long.city
    escapes = place_names("GB", "", "." * 60, "").city  # never in the middle of an escape
    assert re.fullmatch("GB/(%2E)+%-[0-9a-f]{32}", escapes)


def test_the_seven_metrics() -> None:
    """B8: their names."""
    assert set(metrics(info_hash(7), place_names("GB", "ENG", "London", "SW1A"))) == {
        "countries.GB.users",
        "cities.GB/ENG/London.users",
        "postcodes.GB/SW1A.users",
        f"torrents.{IH}.users",
        f"torrents.{IH}.countries.GB.users",
        f"torrents.{IH}.cities.GB/ENG/London.users",
        f"torrents.{IH}.postcodes.GB/SW1A.users",
    }
    assert list(metrics(info_hash(7), NOWHERE)) == [f"torrents.{IH}.users"]


@pytest.mark.parametrize(
    ("address", "prefix", "user"),
    [
        ("c0000201", 64, "192.0.2.1"),
        ("20010db8000100020003000400050006", 64, "2001:db8:1:2::/64"),
        ("20010db8000100020003000400050006", 48, "2001:db8:1::/48"),
        ("20010db8000100020003000400050006", 57, "2001:db8:1::/57"),
        ("20010db8000100020003000400050006", 128, "2001:db8:1:2:3:4:5:6"),
    ],
)
def test_whom_an_address_counts_as(address: str, prefix: int, user: str) -> None:
    """B10."""
    assert user_name(bytes.fromhex(address), prefix) == user
