"""The file in which the volunteer's program remembers what it claimed and added.

It is replaced as a whole before and after each step, so the program can be killed at any time. It is readable by its
owner only, because announce URLs contain the passkey.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from tracker.errors import StartupError
from tracker.system.private_file import private_file

_MAX_BYTES = 64 * 1024 * 1024


class Item(BaseModel):
    """A torrent that was claimed. Times are epoch seconds.

    ``claimed``: nothing happened in the client yet. ``adding``: the client may or may not have it. ``added``: it has.
    ``foreign``: the client had it before, so it is left alone.
    """

    size: int
    name: str = ""
    stage: Literal["claimed", "adding", "added", "foreign"] = "claimed"
    token: str = ""
    torrent_url: str = ""
    announce_url: str = ""
    rounds_missing: int = 0  # rounds in a row in which the client did not list it
    unlisted_since: float = 0.0  # when the tracker stopped listing it; 0: it lists it
    too_large: bool = False  # it turned out larger than claimed, and is stopped


class State(BaseModel):
    items: dict[str, Item] = {}  # by info hash
    asking: list[str] | None = None
    """While a claim is being requested: the info hashes that the tracker listed before. Else None."""


class StateFile:
    """``state`` is what was read. Only its holder may use ``path`` (``open_state``). Without one nothing is saved."""

    def __init__(self, path: Path | None, state: State) -> None:
        self._path = path
        self.state = state

    def save(self) -> None:
        if self._path is None:
            return
        with private_file(self._path) as file:
            file.write(self.state.model_dump_json().encode())


@contextmanager
def open_state(path: Path) -> Iterator[StateFile]:
    """Raises StartupError if another process uses the file, or if it is not readable."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartupError(f"another process uses {path}") from None
        yield StateFile(path, read_state(path))
    finally:
        os.close(lock)


def read_state(path: Path) -> State:
    """What the file holds, also while another process uses it. Raises StartupError."""
    try:
        with path.open("rb") as file:
            return State.model_validate_json(file.read(_MAX_BYTES))
    except FileNotFoundError:
        return State()
    except ValidationError:
        raise StartupError(f"{path} is damaged; if you remove it, labelled torrents are found again") from None
