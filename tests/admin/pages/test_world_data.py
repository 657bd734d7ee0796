import re

from tracker.admin.world import country_name, world


def test_every_country_of_the_map_has_a_name() -> None:
    found = world()
    assert len(found.names) > 245
    assert found.outlines.keys() | found.dots.keys() <= found.names.keys()
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
