"""Fuzzes one target in this process until it is told to end: ``python -m fuzz.engine TARGET SECONDS FOUND``.

``FOUND`` is a directory for new inputs; what breaks a target is written there as ``crash-…``, ``oom-…`` or ``timeout-…``. The
exit status is libFuzzer's: 0 when nothing broke. It never returns, and so has a process of its own.
"""

import sys

import atheris

from fuzz import corpus

SLOWEST_SECONDS = 300
"""For one input, by the clock: a machine may halt for a while."""
MOST_MEGABYTES = 1024


def main() -> None:
    name, seconds, found = sys.argv[1:]
    with atheris.instrument_imports(include=["tracker", "fuzz.targets", "bencodepy"]):
        from fuzz import targets  # noqa: PLC0415  # what is imported here is instrumented

        target = targets.load(name)
    options = [
        *(f"-max_total_time={seconds}", f"-max_len={target.LONGEST}", f"-artifact_prefix={found}/"),
        *(f"-timeout={SLOWEST_SECONDS}", f"-rss_limit_mb={MOST_MEGABYTES}", "-print_final_stats=1"),
        *("-use_value_profile=1", found, str(corpus.CORPORA / name)),
    ]
    atheris.Setup([sys.argv[0], *options], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
