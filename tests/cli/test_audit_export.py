"""The audit log as CSV and JSON lines."""

import csv
import io
import json
from collections.abc import AsyncIterator
from dataclasses import asdict, replace

import pytest

from tests.store.access.test_audit import ENTRY
from tests.store.harness import Store, running
from tracker.cli.commands.audit import entries
from tracker.operations.export import csv_lines, json_lines
from tracker.store.access.audit import COLUMNS, AuditEntry, AuditFilter
from tracker.store.schema.keys import Keys
from tracker.store.swarms.rules import SwarmRules


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[Store]:
    async with running(Store(redis_url, Keys(prefix), SwarmRules())) as store:
        yield store


def _csv(found: list[AuditEntry]) -> list[list[str]]:
    return list(csv.reader(io.StringIO(csv_lines(COLUMNS, map(asdict, found)), newline="")))


async def test_exports_have_all_entries_newest_first(store: Store) -> None:
    for number in range(3):
        await store.audit.add(replace(ENTRY, operation=f"user.{number}"))
    await store.audit.add(replace(ENTRY, operation="other"))
    wanted = AuditFilter(operation="user")
    (found,) = [page async for page in entries(store.audit, wanted, 10)]
    lines = json_lines(map(asdict, found)).decode().splitlines()
    assert [json.loads(line)["operation"] for line in lines] == ["user.2", "user.1", "user.0"]
    header, *rows = _csv(found)
    assert tuple(header) == COLUMNS
    assert [row[COLUMNS.index("operation")] for row in rows] == ["user.2", "user.1", "user.0"]
    assert json.loads(rows[0][COLUMNS.index("objects")]) == json.loads(lines[0])["objects"]


async def test_a_limit_counts_entries(store: Store) -> None:
    for _ in range(5):
        await store.audit.add(ENTRY)
    found = [len(page) async for page in entries(store.audit, AuditFilter(), 3)]
    assert found == [3]


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@a", "\tx", "\rx"])
def test_no_cell_is_a_formula(name: str) -> None:
    _, row = _csv([replace(ENTRY, actor=name)])
    assert row[COLUMNS.index("actor")] == f"'{name}"
