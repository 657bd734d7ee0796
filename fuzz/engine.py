"""Fuzzes one target: ``python -m fuzz.engine TARGET SECONDS FOUND``.

``FOUND`` is a directory for new inputs. Failing inputs are written there as ``crash-…``, ``oom-…`` or ``timeout-…``.
The exit status is libFuzzer's: 0 without a failure. The engine exits the process, and so needs one of its own.
"""

import sys

import atheris

from fuzz import corpus

MAX_INPUT_SECONDS = 300
"""For one input, in real time. Long, because the machine may suspend the process."""
MAX_MEGABYTES = 1024


def main() -> None:
    name, seconds, found = sys.argv[1:]
    with atheris.instrument_imports(include=["tracker", "fuzz.targets", "bencodepy"]):
        from fuzz import targets  # noqa: PLC0415  # imports in this block are instrumented

        target = targets.load(name)
    options = [
        *(f"-max_total_time={seconds}", f"-max_len={target.MAX_LENGTH}", f"-artifact_prefix={found}/"),
        *(f"-timeout={MAX_INPUT_SECONDS}", f"-rss_limit_mb={MAX_MEGABYTES}", "-print_final_stats=1"),
        *("-use_value_profile=1", found, str(corpus.CORPORA / name)),
    ]
    atheris.Setup([sys.argv[0], *options], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
