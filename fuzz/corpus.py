"""The kept inputs: for each target a minimal set that runs all the code that any input has run."""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from fuzz.targets import Target

ROOT = Path(__file__).parents[1]
CORPORA = Path(__file__).parent / "corpora"
_PACKAGE = str(ROOT / "tracker")

Arc = tuple[str, int, int]
"""(file, line, next line executed)."""


def kept(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPORA / name).glob("*"))]


def keep(name: str, inputs: Iterable[bytes]) -> None:
    """Replaces the corpus of a target."""
    directory = CORPORA / name
    directory.mkdir(parents=True, exist_ok=True)
    wanted = {hashlib.sha256(data).hexdigest()[:16]: data for data in inputs}
    for path in directory.glob("*"):
        if path.name not in wanted:
            path.unlink()
    for digest, data in wanted.items():
        (directory / digest).write_bytes(data)


def minimal(target: Target, inputs: Iterable[bytes]) -> list[bytes]:
    """The inputs needed for every arc of the tracker's code that any of them runs; short ones are preferred."""
    needed: list[bytes] = []
    seen: set[Arc] = set()
    for data in sorted(set(inputs), key=lambda each: (len(each), each)):
        arcs = _arcs(target, data)
        if arcs - seen:
            seen |= arcs
            needed.append(data)
    return needed


def _arcs(target: Target, data: bytes) -> set[Arc]:
    arcs: set[Arc] = set()

    def enter(frame: FrameType, event: str, argument: object) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(_PACKAGE):
            return None
        last = frame.f_lineno

        def step(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal last
            arcs.add((file, last, frame.f_lineno))
            last = frame.f_lineno
            return step

        return step

    sys.settrace(enter)
    try:
        target.check(data)
    finally:
        sys.settrace(None)
    return arcs
