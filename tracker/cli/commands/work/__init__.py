"""``tracker work …``: projects, items and claims of work distribution."""

from tracker.cli.commands.work import claims, drain, items, projects, seed
from tracker.cli.commands.work.group import commands

__all__ = ["claims", "commands", "drain", "items", "projects", "seed"]
