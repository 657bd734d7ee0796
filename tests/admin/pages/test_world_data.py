import re

import pytest

from tracker.admin.pages.rendering import country_name
from tracker.admin.pages.world import country_code, world
from tracker.geoip import COUNTRY_NAMES


def test_every_country_of_the_map_has_a_name() -> None:
    found = world()
    assert found.outlines.keys() | found.dots.keys() <= COUNTRY_NAMES.keys()
    assert not found.outlines.keys() & found.dots.keys()
    assert {"GB", "US", "XK", "GF"} <= found.outlines.keys()
    assert {"SG", "MT", "HK"} <= found.dots.keys()


def test_outlines_are_paths_and_nothing_else_within_the_map() -> None:
    found = world()
    for code, path in found.outlines.items():
        assert re.fullmatch(r"(M-?\d+ ?-?\d+l[-\d ]+z)+", path), code
    for x, y in found.dots.values():
        assert 0 <= x <= found.width
        assert 0 <= y <= found.height


def test_an_unknown_code_is_its_own_name() -> None:
    assert country_name("GB") == "United Kingdom"
    assert country_name("Q%3C") == "Q%3C"


def test_every_country_name_has_its_code() -> None:
    assert len(COUNTRY_NAMES) > 245
    assert [code for code, name in COUNTRY_NAMES.items() if country_code(name) != code] == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Netherlands", "NL"),
        ("Turkey", "TR"),
        ("Türkiye", "TR"),
        ("Saint Kitts & Nevis", "KN"),
        ("Côte d'Ivoire", "CI"),
        ("United States of America", "US"),
        ("Hong Kong SAR China", "HK"),
        ("Atlantis", ""),
        ("", ""),
        ("%", ""),
    ],
)
def test_other_names_of_a_country_have_its_code(name: str, code: str) -> None:
    assert country_code(name) == code
