"""Changes single conditions of a file, one after the other, and runs the nearest tests (`make mutate ARGS=path`).

    python tools/mutate.py FILE[:FIRST[-LAST]] ... [--tests PATH ...] [--list]

Each change is one word of one condition: `<` becomes `<=`, `and` becomes `or`, a `not` goes. A change that no test
notices is printed: a test is missing, or the condition is not needed. The checkout stays as it is, as the tests run in
a copy of it. The exit status is 1 when a change was not noticed.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.nearest_tests import ROOT, nearest_tests

COPIED = ("tracker", "tests", "loadtest", "fuzz", "tools", "docs", "deploy", "pyproject.toml", "redis.conf")
SECONDS = 600
"""Tests that take longer have noticed the change: it made a loop endless."""
TEXT = {
    ".py": r"""\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\#[^\n]*""",
    ".lua": r"""\[\[.*?\]\]|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|--[^\n]*""",
}
"""Strings and comments, by language."""
CONDITION = {
    ".py": r"<=|>=|==|!=|(?<![<-])<(?!<)|(?<![>-])>(?!>)|\b(?:is not|not in|is|not|and|or)\b",
    ".lua": r"<=|>=|==|~=|<|>|\b(?:not|and|or)\b",
}
OPPOSITES = {"is": "is not", "is not": "is", "not in": "in", "and": "or", "or": "and", "!=": "==", "~=": "=="}
OPPOSITES |= {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "not": ""}


class Change(NamedTuple):
    line: int
    start: int
    end: int
    before: str
    after: str

    def apply(self, text: str) -> str:
        return text[: self.start] + self.after + text[self.end :]

    def shown(self, text: str) -> str:
        """The changed line, with the word before and after the change."""
        line = text.splitlines()[self.line - 1].strip()
        return f"{self.line}: {line}   [{self.before} -> {self.after or 'gone'}]"


def changes(text: str, suffix: str) -> Iterator[Change]:
    """All changes of single conditions in a Python or Lua text."""
    unequal = "~=" if suffix == ".lua" else "!="
    pattern = re.compile(rf"(?P<text>{TEXT[suffix]})|(?P<word>{CONDITION[suffix]})", re.DOTALL)
    for found in pattern.finditer(text):
        if word := found["word"]:
            line = text.count("\n", 0, found.start()) + 1
            yield Change(line, found.start(), found.end(), word, OPPOSITES.get(word, unequal))


def chosen(file: Path, lines: str) -> list[Change]:
    """The changes of a file; of a line or of `first-last` where that is given."""
    first, _, last = lines.partition("-")
    found = changes(file.read_text(encoding="utf-8"), file.suffix)
    return [each for each in found if not lines or int(first) <= each.line <= int(last or first)]


def passes(folder: Path, tests: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "--numprocesses", "0", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in {0, 1, 2}:
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


def unnoticed(target: Path, wanted: Sequence[Change], tests: Sequence[str], folder: Path) -> Iterator[str]:
    """The changes of a file in ``folder`` that the tests there do not notice."""
    if not passes(folder, tests):
        raise SystemExit(f"without a change, these tests fail: {' '.join(tests)}")
    text = target.read_text(encoding="utf-8")
    for each in wanted:
        target.write_text(each.apply(text), encoding="utf-8")
        if passes(folder, tests):
            yield f"{target.relative_to(folder)}:{each.shown(text)}"
    target.write_text(text, encoding="utf-8")


def copy_checkout(folder: Path) -> None:
    for name in COPIED:
        if (source := ROOT / name).is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, folder / name)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make mutate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE[:FIRST[-LAST]]")
    parser.add_argument("--tests", nargs="+", help="these instead of the nearest ones")
    parser.add_argument("--list", action="store_true", help="only print the changes and the nearest tests")
    options = parser.parse_args(arguments)
    total = survived = 0
    with tempfile.TemporaryDirectory(prefix="sk-") as name:
        folder = Path(name)
        if not options.list:
            copy_checkout(folder)
        for argument in options.files:
            path, _, lines = argument.partition(":")
            file = Path(path).resolve()
            target = file if options.list else folder / file.relative_to(ROOT)
            wanted = chosen(target, lines)
            tests = options.tests or [str(each.relative_to(ROOT)) for each in nearest_tests(file)]
            print(f"{argument}: {len(wanted)} changes, {' '.join(tests) or 'no tests'}", flush=True)
            if options.list:
                print(*(each.shown(file.read_text(encoding="utf-8")) for each in wanted), sep="\n")
                continue
            for line in unnoticed(target, wanted, tests, folder):
                print(f"not noticed: {line}", flush=True)
                survived += 1
            total += len(wanted)
    if not options.list:
        print(f"{total - survived} of {total} changes were noticed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
