"""Everything that fuzzing has found worth keeping, what once broke something above all, holds with every change."""

import importlib.util
import subprocess
import sys

import pytest

from fuzz import corpus, targets


@pytest.mark.parametrize("name", targets.names())
def test_what_was_found_breaks_nothing(name: str) -> None:
    target, inputs = targets.load(name), corpus.kept(name)
    assert inputs, "a target without a corpus: python -m fuzz --keep"
    for data in [*inputs, *target.seeds(), b"", bytes(target.LONGEST), b"\xff" * target.LONGEST]:
        target.check(data)


def test_the_corpora_are_small_and_nobodys_else() -> None:
    directories = {path.name for path in corpus.CORPORA.iterdir()}
    assert directories == set(targets.names())
    assert sum(path.stat().st_size for path in corpus.CORPORA.rglob("*") if path.is_file()) < 300_000


def test_it_runs_where_there_is_an_engine_and_says_so_where_there_is_none() -> None:
    fuzzed = subprocess.run(
        [sys.executable, "-m", "fuzz", "--seconds", "1", "compact"],
        capture_output=True,
        text=True,
        check=True,
        cwd=corpus.ROOT,
    )
    engine = importlib.util.find_spec("atheris") is not None
    assert ("inputs" in fuzzed.stdout) == engine and ("nothing is fuzzed" in fuzzed.stderr) == (not engine)
    unknown = [sys.executable, "-m", "fuzz", "nonsense"]
    assert subprocess.run(unknown, capture_output=True, check=False, cwd=corpus.ROOT).returncode == 1
