"""Fuzzes the parsers of untrusted input. The exit status is 1 when a target failed."""

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fuzz import corpus, targets

_RUNS = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


def main() -> None:
    options = _options()
    unknown = set(options.targets) - set(targets.names())
    if unknown:
        sys.exit(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(targets.names())}")
    if importlib.util.find_spec("atheris") is None:
        print("!! atheris is not installed (no wheel for this system): nothing is fuzzed", file=sys.stderr)
        return
    names = options.targets or targets.names()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda name: _fuzz(name, options.seconds), names))
    failed = [name for name, found in zip(names, results, strict=True) if found is None]
    if options.keep:
        for name, found in zip(names, results, strict=True):
            corpus.keep(name, corpus.minimal(targets.load(name), [*corpus.kept(name), *(found or ())]))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def _fuzz(name: str, seconds: int) -> list[bytes] | None:
    """New inputs; ``None`` after a failure, whose input is copied to ``fuzz-NAME-…`` in the working directory."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        found = Path(directory)
        known = corpus.kept(name)
        for number, seed in enumerate([] if known else targets.load(name).seeds()):
            (found / f"seed-{number}").write_bytes(seed)
        (corpus.CORPORA / name).mkdir(parents=True, exist_ok=True)
        engine = [sys.executable, "-m", "fuzz.engine", name, str(seconds), directory]
        run = subprocess.run(engine, capture_output=True, text=True, errors="replace", cwd=corpus.ROOT, check=False)
        new = [path for path in found.iterdir() if re.fullmatch("[0-9a-f]{40}|seed-[0-9]+", path.name)]

        crashes = [path for path in found.iterdir() if path not in new]
        for path in crashes:
            Path(f"fuzz-{name}-{path.name}").write_bytes(path.read_bytes())

        executed = _RUNS.search(run.stderr)
        print(f"{name:14} {executed[1] if executed else '?':>9} inputs, {len(new)} new", flush=True)
        if run.returncode or crashes:
            print(_errors(run.stdout + run.stderr), file=sys.stderr, flush=True)
            return None
        return [path.read_bytes() for path in new]


def _errors(output: str) -> str:
    """The last 60 lines of the output, without progress lines."""
    lines = [line for line in output.splitlines() if not re.match(r"#\d+\s|INFO:", line)]
    return "\n".join(lines[-60:])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="what to fuzz (default: every target)")
    parser.add_argument("--seconds", type=int, default=60, help="seconds per target (60)")
    parser.add_argument("--keep", action="store_true", help="add inputs to the corpora that run new code")
    return parser.parse_args()


if __name__ == "__main__":
    main()
