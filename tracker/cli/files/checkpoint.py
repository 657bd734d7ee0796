"""How far an import has come, kept in a file, so that an interrupted import continues where it stopped."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tracker.errors import ClientError


@dataclass(slots=True)
class Imported:
    """Records read so far, and their outcomes: number by outcome, and number that could not be imported."""

    records: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    problems: int = 0
    halves: dict[str, str] = field(default_factory=dict)
    """v2 halves of hybrid torrents whose v1 half has not come yet, by the info hash of that."""


class Checkpoint:
    """The progress of an import of ``inputs``. It holds no content of theirs but info hashes."""

    def __init__(self, path: Path, inputs: Sequence[Path]) -> None:
        self._path = path
        self._inputs = [_identity(each) for each in inputs]

    def load(self) -> Imported:
        """Raises ClientError if the file is damaged, or if it belongs to other files or to an earlier state of them."""
        try:
            found = json.loads(self._path.read_text())
        except FileNotFoundError:
            return Imported()
        except ValueError:
            raise ClientError(f"{self._path}: not a file of --resume") from None
        if not isinstance(found, Mapping) or found.get("inputs") != self._inputs:
            raise ClientError(f"{self._path}: belongs to an import of other files; delete it to start again")
        return Imported(found["records"], found["outcomes"], found["problems"], found["halves"])

    def save(self, done: Imported) -> None:
        new = self._path.with_name(f"{self._path.name}.new")
        new.write_text(
            json.dumps(
                {
                    "inputs": self._inputs,
                    "records": done.records,
                    "outcomes": done.outcomes,
                    "problems": done.problems,
                    "halves": done.halves,
                }
            )
        )
        new.replace(self._path)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)


def _identity(path: Path) -> list[str | int]:
    """A file is the same while its name, size and time are; a folder while its name is."""
    if path.is_dir():
        return [str(path)]
    status = path.stat()
    return [str(path), status.st_size, status.st_mtime_ns]
