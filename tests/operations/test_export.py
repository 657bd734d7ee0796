"""Rows as CSV and JSON lines."""

from typing import Any

from tracker.operations.export import csv_lines, json_lines

ROWS: list[dict[str, Any]] = [
    {"name": "=1+1", "size": None, "labels": ["a"]},
    {"name": 'a "b",\r\nc', "size": -5, "labels": ()},
]


def test_rows_as_csv() -> None:
    """What a spreadsheet would run begins with an apostrophe."""
    text = csv_lines(("name", "size", "labels"), ROWS)
    assert text == 'name,size,labels\r\n\'=1+1,,"[""a""]"\r\n"a ""b"",\r\nc",-5,[]\r\n'
    assert csv_lines(("name",), ROWS[:1], header=False) == "'=1+1\r\n"


def test_rows_as_json_lines() -> None:
    assert json_lines(ROWS[:1]) == b'{"name":"=1+1","size":null,"labels":["a"]}\n'
