"""Replays the kept inputs of every fuzz target, above all those that once made one fail."""

import importlib.util
import subprocess
import sys

import pytest

from fuzz import corpus, targets


@pytest.mark.parametrize("name", targets.names())
def test_no_kept_input_breaks_a_target(name: str) -> None:
    target, inputs = targets.load(name), corpus.kept(name)
    assert inputs, "a target without a corpus: python -m fuzz --keep"
    for data in [*inputs, *target.seeds(), b"", bytes(target.MAX_LENGTH), b"\xff" * target.MAX_LENGTH]:
        target.check(data)


def test_every_corpus_is_small_and_belongs_to_a_target() -> None:
    directories = {path.name for path in corpus.CORPORA.iterdir()}
    assert directories == set(targets.names())
    assert sum(path.stat().st_size for path in corpus.CORPORA.rglob("*") if path.is_file()) < 300_000


def test_fuzzing_runs_with_the_engine_and_reports_a_missing_one() -> None:
    fuzzed = subprocess.run(
        [sys.executable, "-m", "fuzz", "--seconds", "1", "endpoint"],
        capture_output=True,
        text=True,
        check=True,
        cwd=corpus.ROOT,
    )
    engine = importlib.util.find_spec("atheris") is not None
    assert ("inputs" in fuzzed.stdout) == engine and ("nothing is fuzzed" in fuzzed.stderr) == (not engine)
    unknown = [sys.executable, "-m", "fuzz", "nonsense"]
    assert subprocess.run(unknown, capture_output=True, check=False, cwd=corpus.ROOT).returncode == 1
