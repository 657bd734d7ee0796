"""The table of reasons: every refusal of an announce or a scrape is in it, with an explanation."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from tests.syntax import nodes_of
from tools.reasons_page import PAGE, with_tables
from tracker import refusals
from tracker.core.rate_limits import LIMITED
from tracker.core.work import Reason as WorkReason
from tracker.frontends.work.requests import PHRASES, STATUSES
from tracker.refusals import (
    ADDRESS_HIDDEN,
    ADDRESS_IMPOSSIBLE,
    CLOSED,
    NAMES,
    PROXY_HEADER_MISSING,
    PROXY_HEADER_UNEXPECTED,
    REASONS,
    SUBJECTS,
    UPGRADE_MISSING,
    Busy,
    Refusal,
    SilentlyDropped,
    explained,
)

ROOT = Path(__file__).parents[1]
REFUSING = ("core", "frontends/http", "frontends/udp", "frontends/websocket", "wire")
"""The folders that refuse announces and scrapes."""


def test_the_documents_show_each_reason() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert re.findall(r"<!-- reasons: (\w+) -->", page) == [*SUBJECTS, "closed"]
    assert with_tables(page) == page, "run `make docs`"


def test_every_reason_is_explained_once() -> None:
    rows = [each for reasons in SUBJECTS.values() for each in reasons]
    assert len({each.name for each in rows}) == len(rows)
    for each in rows:
        assert each.text and each.meaning and each in explained(each.counted_as), each
    assert all(CLOSED.values()) and set(NAMES) > CLOSED.keys()


def calls(*folders: str) -> Iterator[tuple[str, ast.Call]]:
    for folder in folders:
        for path in sorted((ROOT / "tracker" / folder).rglob("*.py")):
            for node in nodes_of(path):
                match node:
                    case ast.Call(func=ast.Name(name)):
                        yield name, node
                    case ast.Call(func=ast.Attribute(ast.Name(module), name)) if module != "self":
                        yield name, node


def test_a_text_outside_the_table_cannot_be_sent() -> None:
    """Encoders take a Refusal, counters a Label (mypy), and only the module of the table makes labels and texts."""
    outside = [path for path in (ROOT / "tracker").rglob("*.py") if path.name != "refusals.py"]
    makers = [path.name for path in outside if re.search(r"\bLabel\(", path.read_text(encoding="utf-8"))]
    assert makers == ["history.py"], "a page of the dashboard looks one up"
    for name, reason in REASONS.items():
        sent = Refusal(name, "an operator's text")
        assert sent.text == ("an operator's text" if reason.has_own_text else reason.text)
    assert {each.name for each in REASONS.values() if each.has_own_text} == {
        "client denied",
        "denied",
        "disabled",
        "pending",
        "user disabled",
    }
    unknown = Refusal("no such name", "x")
    assert (unknown.text, unknown.label) == ("internal error", "internal error")


@pytest.mark.parametrize("refused", [Busy(), SilentlyDropped("too many requests")])
def test_refusals_of_overload_are_of_the_table_too(refused: Refusal) -> None:
    assert refused.text in {each.text for each in REASONS.values()}
    assert refused.label in NAMES


def test_every_refusal_in_the_code_is_in_the_table_and_the_other_way_round() -> None:
    """Also those of the store, which its scripts name."""
    said = set(LIMITED.values()) | {"busy"}
    for function, call in calls(*REFUSING):
        place = {"Refusal": 0, "BadMessage": 0, "_count": 1}.get(function)
        if place is not None:
            found = [each.value for each in call.args[place : place + 1] if isinstance(each, ast.Constant)]
            said |= {each for each in found if isinstance(each, str)}
    for path in (*(ROOT / "tracker/frontends").rglob("*.py"), *(ROOT / "tracker/wire").rglob("*.py")):
        said |= set(re.findall(r'text = "([^"]+)"', path.read_text(encoding="utf-8"))) & REASONS.keys()
    said |= {ADDRESS_HIDDEN, ADDRESS_IMPOSSIBLE, PROXY_HEADER_MISSING, PROXY_HEADER_UNEXPECTED, UPGRADE_MISSING}
    scripts = "".join(each.read_text() for each in sorted((ROOT / "tracker/store/lua").rglob("*.lua")))
    in_scripts = {name for name in REASONS if f"'{name}'" in scripts}
    assert said <= REASONS.keys()
    assert said | in_scripts == REASONS.keys()
    refused_in_scripts = set(re.findall(r"(?:refuse\(|return false, |return nil, )'([a-z ]+)'", scripts))
    assert refused_in_scripts - REASONS.keys() == {
        "may not join",  # a rate limit replaces it
        "no copy",  # the tracker asks the main prefix for the user, and announces again
    }


@pytest.mark.parametrize("name", ["unknown torrent at first", "pending"])
def test_what_will_soon_work_is_retried_within_half_a_minute(name: str) -> None:
    error = Refusal(name)
    assert (error.interval_seconds, error.retry_in) == (refusals.QUICK_SECONDS, 1)


def test_every_refusal_of_work_has_a_status_that_is_explained() -> None:
    assert STATUSES.keys() == set(get_args(WorkReason))
    page = (ROOT / "docs/work.md").read_text(encoding="utf-8")
    assert not {status for status in (*STATUSES.values(), *PHRASES) if f"{status}" not in page}
    explained_ones = {int(status) for status in re.findall(r"^\| (\d{3}) \|", page, re.MULTILINE)}
    assert explained_ones == set(STATUSES.values()) | {413, 503}
