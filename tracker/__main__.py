"""``python -m tracker`` and the script ``tracker`` are the ``tracker`` command.

SIGHUP is blocked from the first line on: by default it would end a tracker that is still importing its modules.
app/start.py unblocks it after installing a handler; cli/main.py unblocks it at once for every other command.

Modules that are imported stay, so they are rarely searched for garbage, and not at the exit, where Python searches them
several times: that took a third of a command's CPU time.
"""

import atexit
import gc
import signal


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    gc.set_threshold(50_000, 20, 50)
    atexit.register(gc.freeze)
    from tracker.cli import main  # noqa: PLC0415

    main.main()


if __name__ == "__main__":
    main()
