"""``python -m tracker`` and the script ``tracker`` are the ``tracker`` command.

SIGHUP is held back from the first line on: it would end a tracker whose modules are still being imported. start.py lets it
through once it is heeded, cli.py at once for every other command.
"""

import signal


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    from tracker import cli  # noqa: PLC0415  # not before the line above

    cli.main()


if __name__ == "__main__":
    main()
