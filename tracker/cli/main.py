"""The ``tracker`` command: its subcommands by section, and the function that runs each."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tracker import __version__, commit
from tracker.cli.commands import Commands, Config, runnable
from tracker.cli.terminal import say


@dataclass(frozen=True, slots=True)
class Entry:
    """``where`` is ``module:name`` of a function or group under tracker.cli.commands; ``about`` is its line in the
    list."""

    where: str
    about: str

    @cache  # noqa: B019  # entries live as long as the process; tests run many commands in one
    def load(self, name: str) -> Any:
        module, _, attribute = self.where.partition(":")
        found = getattr(import_module(f"tracker.cli.commands.{module}"), attribute)
        if isinstance(found, typer.Typer):
            group = typer.main.get_group(found)
            group.name = name
            return group
        single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        single.command(name)(runnable(found))
        return typer.main.get_command(single)


SECTIONS: Mapping[str, Mapping[str, Entry]] = {
    "Run": {
        "serve": Entry("serve:serve", "Serve until SIGTERM or Ctrl-C."),
        "health": Entry("health:health", "Check the health of the tracker on this machine."),
        "doctor": Entry("doctor:doctor", "Check the store and the settings."),
        "settings": Entry("settings:show_settings", "Print the current settings."),
        "completion": Entry("settings:completion", "Print a shell completion script."),
    },
    "Torrents and users": {
        "torrent": Entry("torrents:torrents", "Register and inspect torrents."),
        "deny": Entry("torrents:deny", "Put torrents on the deny list."),
        "allow": Entry("torrents:allow", "Remove torrents from the deny list."),
        "denied": Entry("torrents:denied", "List denied torrents."),
        "user": Entry("users:users", "Manage users: passkeys, totals, hit-and-runs."),
        "group": Entry("users:groups", "Manage groups of users: rules for all users of a group."),
        "multipliers": Entry("users:multipliers", "Show or set freeleech and double upload for all users."),
        "freeleech": Entry("users:freeleech", "Give users freeleech tokens for torrents."),
        "client": Entry("clients:clients", "Manage allowed and denied clients; show client statistics."),
        "work": Entry("work:commands", "Give work to volunteers: projects, items and claims."),
    },
    "Monitoring": {
        "stats": Entry("stats:show_stats", "Print counters and distributions."),
        "top": Entry("top:show_top", "Show live activity, like top(1)."),
        "score": Entry("torrents:scores", "Show torrent scores and scoring progress."),
        "unique": Entry("uniques:uniques", "Show unique users by location and torrent."),
        "geoip": Entry("geoip:geoip", "Look up the location of addresses."),
        "dht": Entry("dht:dht", "Show the node of the DHT, and ask the DHT."),
        "jobs": Entry("jobs:jobs", "Show and manage background jobs."),
        "changes": Entry("audit:show_changes", "Print the change feed: joins, completions, stops and more."),
    },
    "Access": {
        "token": Entry("tokens:tokens", "Manage tokens for the admin port."),
        "audit": Entry("audit:show_audit", "Show who changed what."),
        "sign-in-link": Entry("tokens:sign_in_link", "Print a one-time sign-in link for the dashboard."),
    },
    "Backup and maintenance": {
        "import": Entry("imports:import_records", "Import torrents, users and lists from files."),
        "sync": Entry("sync:sync", "Keep the tables of a site's own database, or move in from them."),
        "export": Entry("exports:export_records", "Export torrents, users and lists to a file."),
        "backup": Entry("maintenance:backup", "Back up the private store to a file."),
        "restore": Entry("maintenance:restore", "Restore the private store from a backup."),
        "reshard": Entry("maintenance:reshard", "Copy the store into one with another number of shards."),
        "cleanup": Entry("maintenance:cleanup", "Find stale keys in the store."),
        "reindex": Entry("maintenance:reindex", "Rebuild the lists of torrents, denials, users and clients."),
        "wipe-stats": Entry("maintenance:wipe_stats", "Reset all statistics."),
    },
}


_ENTRIES = {name: entry for entries in SECTIONS.values() for name, entry in entries.items()}


class _Menu(Commands):
    """Commands in sections. Listing them, for --help or for shell completion, imports none of them: importing all takes
    a second."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, entry in _ENTRIES.items():
            self.add_command(TyperCommand(name, help=entry.about, short_help=entry.about))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        entry = _ENTRIES.get(args[0])
        if entry is None:
            return super().resolve_command(ctx, args)
        return args[0], entry.load(args[0]), args[1:]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        del ctx
        width = max(map(len, _ENTRIES))
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry.about) for name, entry in entries.items()])


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"swarmkeeper {__version__} (commit {commit()})")
        raise typer.Exit


app = typer.Typer(
    cls=_Menu,
    help="A BitTorrent tracker, with commands to manage it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    app(prog_name="tracker")


@app.callback()
def _main(
    context: typer.Context,
    config: Config = None,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print version and commit, and exit.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    del config, version
    if context.invoked_subcommand != "serve":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # see __main__.py
