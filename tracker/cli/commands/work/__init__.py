"""``tracker work …``: projects, items and claims of work distribution."""

from tracker.cli.commands.work import items, seed
from tracker.cli.commands.work.claims import commands

__all__ = ["commands", "items", "seed"]
