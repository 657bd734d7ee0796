"""Writes the register into files that others cannot read, and that are there whole or not at all."""

import csv
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
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


@contextmanager
def private_file(path: Path) -> Iterator[IO[bytes]]:
    """A file for its owner alone that takes the place of ``path`` when the block ends well."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as opened:
            yield opened
            opened.flush()
            os.fsync(file)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
