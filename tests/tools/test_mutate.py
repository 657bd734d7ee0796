"""Single conditions are changed one by one, and those that no test notices are told."""

from pathlib import Path

import pytest

from tools.mutate import changes, main, unnoticed

RULE = """
def is_adult(age: int) -> bool:  # a comment with < and not
    return age > 17
"""
WEAK = """
from rule import is_adult

def test_adults() -> None:
    assert is_adult(30) and not is_adult(5)
"""
STRONG = f"{WEAK}    assert not is_adult(17) and is_adult(18)\n"


def changed(text: str, suffix: str) -> list[str]:
    return [each.apply(text) for each in changes(text, suffix)]


def test_each_condition_of_python_is_changed_once() -> None:
    assert changed("x = 'a < b' if a <= b and not c else d is not e  # a == b", ".py") == [
        "x = 'a < b' if a < b and not c else d is not e  # a == b",
        "x = 'a < b' if a <= b or not c else d is not e  # a == b",
        "x = 'a < b' if a <= b and  c else d is not e  # a == b",
        "x = 'a < b' if a <= b and not c else d is e  # a == b",
    ]
    assert changed("def f(a: int) -> int:\n    return a << 1 if a not in b else a >> 1", ".py") == [
        "def f(a: int) -> int:\n    return a << 1 if a in b else a >> 1"
    ]


def test_each_condition_of_lua_is_changed_once() -> None:
    assert changed("if a ~= 'x or y' or b then return '<' end -- not", ".lua") == [
        "if a == 'x or y' or b then return '<' end -- not",
        "if a ~= 'x or y' and b then return '<' end -- not",
    ]
    assert changed("return a == b", ".lua") == ["return a ~= b"]


@pytest.mark.slow
def test_what_no_test_notices_is_told(tmp_path: Path) -> None:
    rule, tests = tmp_path / "rule.py", tmp_path / "test_rule.py"
    rule.write_text(RULE)
    wanted = list(changes(RULE, ".py"))
    tests.write_text(WEAK)
    assert list(unnoticed(rule, wanted, ["test_rule.py"], tmp_path)) == ["rule.py:3: return age > 17   [> -> >=]"]
    tests.write_text(STRONG)
    assert list(unnoticed(rule, wanted, ["test_rule.py"], tmp_path)) == []
    assert rule.read_text() == RULE


def test_the_changes_and_the_nearest_tests_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "tracker/token_bucket.py", "tracker/store/lua/jobs/claim.lua"]) == 0
    shown = capsys.readouterr().out
    assert "changes, tests/test_token_bucket.py\n" in shown and "changes, tests/store/jobs\n" in shown
