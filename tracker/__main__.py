"""``python -m tracker`` is the ``tracker`` command."""

from tracker.cli import main

if __name__ == "__main__":
    main()
