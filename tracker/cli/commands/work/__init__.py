"""``tracker work …``: projects, items and claims of work distribution."""

from tracker.cli.commands.work import claims, items, seed
from tracker.cli.commands.work.group import commands

__all__ = ["claims", "commands", "items", "seed"]
