"""B11: names of metrics are unique, readable, of bounded length, and reversible."""

import re
from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.harness import info_hash
from tests.store.stats.metrics import metrics
from tracker.store.stats.metric_names import (
    MAX_COUNTRY_BYTES,
    MAX_NAME_BYTES,
    NOWHERE,
    PlaceNames,
    escape,
    metric_of,
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
        ("\u0301x", "%CC%81x"),  # a combining mark without a letter
        ("50%", "50%25"),
        ("a/b:c~d", "a%2Fb%3Ac%7Ed"),
        ("a\u200bb\n", "a%E2%80%8Bb%0A"),
        ("a\u3164b", "a%E3%85%A4b"),  # an invisible character
        ("Ⅳ²", "%E2%85%A3%C2%B2"),
        ("🏙", "%F0%9F%8F%99"),
    ],
)
def test_escaping_follows_the_documentation(text: str, escaped: str) -> None:
    """B11."""
    assert escape(text) == escaped
    assert unescape(escaped) == normalize("NFC", text)


@given(texts)
def test_escaping_is_reversible(text: str) -> None:
    """B11: different names stay different."""
    escaped = escape(text)
    assert unescape(escaped) == normalize("NFC", text)
    assert not re.search(r"[\s./:~]", escaped)
    assert re.fullmatch(r"(?:[^%]|%[0-9A-F]{2})*", escaped)


def test_lone_surrogates_are_escaped() -> None:
    assert unescape(escape("\ud800\udc00")) == "\ud800\udc00"


@given(st.lists(st.tuples(names, names, names), min_size=2, max_size=2, unique=True))
def test_different_names_stay_different(places: list[tuple[str, str, str]]) -> None:
    """B11: also if they are too long to be stored whole."""
    first, second = (tuple(normalize("NFC", part) for part in place) for place in places)
    one, other = place_names(*first), place_names(*second)
    assert [a == b for a, b in zip(one, other, strict=True)] == [a == b for a, b in zip(first, second, strict=True)]


@given(names, names, names)
def test_every_name_fits_into_a_statistic(country: str, city: str, postcode: str) -> None:
    """B11: at most 255 bytes with StatHat's prefix, and no `~`."""
    for metric in metrics(info_hash(7), place_names(country, city, postcode)):
        assert len(metric.encode()) + STATHAT_PREFIX <= 255
        assert "~" not in metric


def test_cities_with_one_name_in_a_country_are_one_metric() -> None:
    """B8: a city is named by its English name alone."""
    assert place_names("United States", "Springfield", "") == PlaceNames("United_States", "Springfield")
    assert place_names("United Kingdom", "London", "SW1A") == ("United_Kingdom", "London", "SW1A")


def test_an_unknown_place_has_no_name() -> None:
    """B10: a city without a country is ambiguous."""
    assert place_names("", "Springfield", "62701") == NOWHERE
    assert place_names("France", "", "") == PlaceNames("France")


def test_a_long_name_is_cut_and_not_reversible() -> None:
    """B11: the cut is visible, and no whole name looks like a cut one."""
    long = place_names("X" * 200, "Llan" + "fair" * 40, "")
    assert (len(long.country), len(long.city)) == (MAX_COUNTRY_BYTES, MAX_NAME_BYTES)
    assert re.fullmatch("Llan(fair)+(f|fa|fai)?%-[0-9a-f]{32}", long.city)
    with pytest.raises(ValueError, match="cut"):
        unescape(long.city)
    other = place_names("GB", "Llan" + "fair" * 41, "").city
    assert other != long.city
    escapes = place_names("GB", "." * 60, "").city  # never in the middle of an escape
    assert re.fullmatch("(%2E)+%-[0-9a-f]{32}", escapes)


def test_the_seven_metrics() -> None:
    """B8: their names."""
    assert set(metrics(info_hash(7), place_names("United Kingdom", "London", "SW1A"))) == {
        "countries.United_Kingdom.users",
        "countries.United_Kingdom.cities.London.users",
        "countries.United_Kingdom.postcodes.SW1A.users",
        f"torrents.{IH}.users",
        f"torrents.{IH}.countries.United_Kingdom.users",
        f"torrents.{IH}.countries.United_Kingdom.cities.London.users",
        f"torrents.{IH}.countries.United_Kingdom.postcodes.SW1A.users",
    }
    assert list(metrics(info_hash(7), NOWHERE)) == [f"torrents.{IH}.users"]


@pytest.mark.parametrize(
    ("scope", "name", "metric"),
    [
        ("countries", "France", "countries.France.users"),
        ("cities", "France/Paris", "countries.France.cities.Paris.users"),
        ("postcodes", "France/75001", "countries.France.postcodes.75001.users"),
        ("torrents", IH, f"torrents.{IH}.users"),
    ],
)
def test_an_entry_of_a_leaderboard_names_its_metric(scope: str, name: str, metric: str) -> None:
    assert metric_of(scope, name) == metric


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
def test_an_address_counts_by_its_network_prefix(address: str, prefix: int, user: str) -> None:
    """B10."""
    assert user_name(bytes.fromhex(address), prefix) == user
