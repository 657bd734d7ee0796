"""Writes rows of the register."""

import csv
import json
from typing import IO

from tracker.register.rows import COLUMNS, Kind, Row, guarded, typed


class CsvRows:
    """One kind of row: the first line names the columns."""

    def __init__(self, file: IO[str], kind: Kind) -> None:
        # With both characters in its line end it quotes whatever holds either, and a name may.
        self._rows = csv.writer(file, lineterminator="\r\n")
        self._rows.writerow(("kind", *COLUMNS[kind]))

    def write(self, kind: Kind, row: Row) -> None:
        cells = (guarded(name, row.get(name, "")) for name in COLUMNS[kind])
        self._rows.writerow((kind, *cells))


class JsonRows:
    """Any rows, an object a line."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, kind: Kind, row: Row) -> None:
        self._file.write(json.dumps({"kind": kind, **typed(row)}) + "\n")
