"""The table of refusals: every refusal of an announce or a scrape is in it, and docs/announce.md shows it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tracker.core.rate_limits import LIMITED
from tracker.refusals import REFUSALS, Refusal, refusal

ROOT = Path(__file__).parents[1]
ELSEWHERE = ("frontends/work", "wire/torrent_file.py", "core/work")
"""What these refuse is no announce and no scrape."""


def row(name: str, found: Refusal) -> str:
    seconds = found.interval_seconds or (
        "the usual one" if found.retry_in == "never" else 60 * found.retry_in
    )
    minutes = f"1 to {found.retry_in}" if name == "busy" else found.retry_in
    interval = f"60 to {seconds}" if name == "busy" else seconds
    counted = "its text" if found.text == name else found.label or name
    return f"| {found.text} | {counted} | {minutes} | {interval} |".replace("<passkey>", "&lt;passkey&gt;")


def test_the_documents_show_each_refusal_with_its_retry() -> None:
    page = (ROOT / "docs/announce.md").read_text(encoding="utf-8")
    _, _, table = page.partition(
        "| the client shows | counted as | retry in | interval |\n|---|---|---|---|\n"
    )
    shown = re.match(r"(?:\|.*\n)*", table)
    assert shown
    assert shown[0].splitlines() == [row(name, found) for name, found in REFUSALS.items()]


def calls() -> Iterator[tuple[str, ast.Call]]:
    """(function, call) of all calls in the modules that refuse announces and scrapes."""
    for folder in ("core", "frontends", "wire"):
        for path in sorted((ROOT / "tracker" / folder).rglob("*.py")):
            if not path.relative_to(ROOT / "tracker").as_posix().startswith(ELSEWHERE):
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                        yield node.func.id, node


def test_announces_are_refused_by_the_table_only() -> None:
    found = list(calls())
    assert len(found) > 500
    assert "ClientError" not in {function for function, _ in found}


def test_every_refusal_in_the_code_is_in_the_table_and_the_other_way_round() -> None:
    """Also those of the store, which its scripts name."""
    said = set(LIMITED.values()) | {"busy"}
    for function, call in calls():
        place = {"refusal": 0, "_count": 1}.get(function)
        if place is not None:
            found = [each.value for each in call.args[place : place + 1] if isinstance(each, ast.Constant)]
            said |= {each for each in found if isinstance(each, str)}
    for path in [*(ROOT / "tracker/frontends").rglob("*.py"), ROOT / "tracker/core/announce.py"]:
        constants = re.findall(r'(?:text|_[A-Z_]+) = "([^"]+)"', path.read_text(encoding="utf-8"))
        said |= set(constants) & REFUSALS.keys()
    scripts = "".join(each.read_text() for each in sorted((ROOT / "tracker/store/lua").rglob("*.lua")))
    in_scripts = {name for name in REFUSALS if f"'{name}'" in scripts}
    assert said <= REFUSALS.keys()
    assert said | in_scripts == REFUSALS.keys()
    refused_in_scripts = set(re.findall(r"(?:refuse\(|return false, |return nil, )'([a-z ]+)'", scripts))
    assert refused_in_scripts - REFUSALS.keys() == {"may not join"}, "which a rate limit replaces"


@pytest.mark.parametrize("name", ["unknown torrent at first", "pending"])
def test_what_will_soon_work_is_retried_within_half_a_minute(name: str) -> None:
    error = refusal(name)
    assert (error.interval_seconds, error.retry_in) == (30, 1)


def test_an_operators_reason_replaces_the_text_only() -> None:
    error = refusal("disabled", "a better version is out")
    assert (error.text, error.label, error.retry_in) == ("a better version is out", "disabled", 60)
    assert refusal("no such name").label == "internal error"
