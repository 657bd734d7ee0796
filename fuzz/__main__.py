"""Fuzzes what reads strangers' bytes: `python -m fuzz [--seconds N] [--keep] [TARGET…]`; exit status 1 when something broke."""

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
    asked = _options()
    unknown = set(asked.targets) - set(targets.names())
    if unknown:
        sys.exit(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(targets.names())}")
    if importlib.util.find_spec("atheris") is None:
        print(
            "!! atheris is not installed, which has no wheel for this system: nothing is fuzzed",
            file=sys.stderr,
        )
        return
    names = asked.targets or targets.names()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sound = list(pool.map(lambda name: _fuzz(name, asked.seconds), names))
    broken = [name for name, found in zip(names, sound, strict=True) if found is None]
    if asked.keep:
        for name, found in zip(names, sound, strict=True):
            corpus.keep(name, corpus.fewest(targets.load(name), [*corpus.kept(name), *(found or ())]))
    if broken:
        sys.exit(f"broken: {', '.join(broken)}")


def _fuzz(name: str, seconds: int) -> list[bytes] | None:
    """New inputs; ``None`` when something broke, and what did is kept as ``fuzz-NAME-…`` in the working directory."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as directory:
        found = Path(directory)
        known = corpus.kept(name)
        for number, seed in enumerate([] if known else targets.load(name).seeds()):
            (found / f"seed-{number}").write_bytes(seed)
        (corpus.CORPORA / name).mkdir(parents=True, exist_ok=True)
        engine = [sys.executable, "-m", "fuzz.engine", name, str(seconds), directory]
        run = subprocess.run(
            engine, capture_output=True, text=True, errors="replace", cwd=corpus.ROOT, check=False
        )
        new = [path for path in found.iterdir() if re.fullmatch("[0-9a-f]{40}|seed-[0-9]+", path.name)]
        broke = [path for path in found.iterdir() if path not in new]
        for path in broke:
            Path(f"fuzz-{name}-{path.name}").write_bytes(path.read_bytes())
        tried = _RUNS.search(run.stderr)
        print(f"{name:14} {tried[1] if tried else '?':>9} inputs, {len(new)} new", flush=True)
        if run.returncode or broke:
            print(_told(run.stdout + run.stderr), file=sys.stderr, flush=True)
            return None
        return [path.read_bytes() for path in new]


def _told(output: str) -> str:
    """The traceback and what follows, without the progress."""
    lines = [line for line in output.splitlines() if not re.match(r"#\d+\s|INFO:", line)]
    return "\n".join(lines[-60:])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="what to fuzz (everything)")
    parser.add_argument("--seconds", type=int, default=60, help="how long for each (60)")
    parser.add_argument(
        "--keep", action="store_true", help="add to the corpora what runs code that nothing there does"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
