"""Writes rows to CSV and JSON lines."""

import csv
import json
from typing import IO

from tracker.cli.files.rows import COLUMNS, Kind, Row, guarded, typed


class CsvRows:
    """Rows of one kind; the first line names the columns."""

    def __init__(self, file: IO[str], kind: Kind) -> None:
        # With CR and LF in the line terminator, the writer quotes fields that contain either.
        self._rows = csv.writer(file, lineterminator="\r\n")
        self._rows.writerow(("kind", *COLUMNS[kind]))

    def write(self, kind: Kind, row: Row) -> None:
        cells = (guarded(name, row.get(name, "")) for name in COLUMNS[kind])
        self._rows.writerow((kind, *cells))


class JsonRows:
    """Rows of any kind, one object per line."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, kind: Kind, row: Row) -> None:
        self._file.write(json.dumps({"kind": kind, **typed(row)}) + "\n")
