"""The group of ``tracker user …``, which its modules share."""

from tracker.cli.commands import group

users = group("Manage users: passkeys, totals, hit-and-runs.")
