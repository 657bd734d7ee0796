"""The fragments that scripts share: each name has one place, and each fragment is used."""

import re
from collections import Counter
from importlib import resources
from pathlib import Path

LUA = Path(str(resources.files("tracker.store") / "lua"))
TEXTS = {str(path.relative_to(LUA)): path.read_text("utf-8") for path in sorted(LUA.rglob("*.lua"))}
FRAGMENTS = {name: text for name, text in TEXTS.items() if not text.startswith("#!lua")}
SHARED = {name: text for name, text in FRAGMENTS.items() if name.startswith("lib/")}


def included_in(name: str) -> set[str]:
    """All fragments of a script or fragment."""
    direct = re.findall(r"^ *--@ include (\S+)$", TEXTS[name], re.MULTILINE)
    return set(direct).union(*(included_in(fragment) for fragment in direct))


def names_defined_in(text: str) -> list[str]:
    """The functions and variables that a fragment adds to the script that includes it."""
    functions = re.findall(r"^local function (\w+)", text, re.MULTILINE)
    variables = re.findall(r"^local ((?!function\b)\w+(?:, \w+)*)", text, re.MULTILINE)
    return functions + [name for group in variables for name in group.split(", ")]


def test_no_two_fragments_define_the_same_name() -> None:
    names = Counter(name for text in FRAGMENTS.values() for name in names_defined_in(text))
    assert names["load_torrent"] == names["CLOCK_SLACK"] == 1
    assert not {name: number for name, number in names.items() if number > 1}


def test_each_fragment_is_included_by_a_script() -> None:
    included = set().union(*(included_in(name) for name in TEXTS.keys() - FRAGMENTS.keys()))
    assert included == FRAGMENTS.keys()


def test_what_only_announces_need_stands_in_their_steps() -> None:
    others = TEXTS.keys() - FRAGMENTS.keys() - {"announce/announce.lua"}
    shared = set().union(*map(included_in, others))
    assert {name for name in included_in("announce/announce.lua") - shared if name in SHARED} == set()
    assert not {name for name in shared if name.startswith("announce/")}


def test_each_fragment_says_what_it_is_and_fits_the_page() -> None:
    for name, text in FRAGMENTS.items():
        assert text.startswith(f"-- {Path(name).name}: "), name
        assert len(text.splitlines()) <= (200 if name in SHARED else 500), name


def test_lines_are_at_most_120_characters() -> None:
    assert not [(name, line) for name, text in TEXTS.items() for line in text.splitlines() if len(line) > 120]
