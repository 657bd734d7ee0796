"""The ``tracker`` command: its subcommands by section, and the function that runs each."""

import signal
from typing import Annotated, ClassVar

import typer

from tracker import __version__, commit
from tracker.cli.commands import Config
from tracker.cli.commands.menu import Entry, Menu, Sections
from tracker.cli.terminal import say

SECTIONS: Sections = {
    "Run": {
        "serve": Entry("serve:serve", "Serve until SIGTERM or Ctrl-C."),
        "health": Entry("health:health", "Check the health of the tracker on this machine."),
        "doctor": Entry("doctor:doctor", "Check the store and the settings."),
        "settings": Entry("settings:show_settings", "Print the current settings."),
        "completion": Entry("menu:completion", "Print a shell completion script."),
    },
    "Torrents and users": {
        "torrent": Entry("torrents:torrents", "Register and inspect torrents."),
        "deny": Entry("denials:deny", "Put torrents on the deny list."),
        "allow": Entry("denials:allow", "Remove torrents from the deny list."),
        "denied": Entry("denials:denied", "List denied torrents."),
        "user": Entry("users:users", "Manage users: passkeys, totals, hit-and-runs."),
        "group": Entry("groups:groups", "Manage groups of users: rules for all users of a group."),
        "multipliers": Entry("multipliers:multipliers", "Show or set freeleech and double upload for all users."),
        "freeleech": Entry("freeleech:freeleech", "Give users freeleech tokens for torrents."),
        "client": Entry("clients:clients", "Manage allowed and denied clients; show client statistics."),
        "work": Entry("work:commands", "Give work to volunteers: projects, items and claims."),
    },
    "Monitoring": {
        "stats": Entry("stats:show_stats", "Print counters and distributions."),
        "top": Entry("top:show_top", "Show live activity, like top(1)."),
        "score": Entry("scores:scores", "Show torrent scores and scoring progress."),
        "unique": Entry("uniques:uniques", "Show unique users by location and torrent."),
        "geoip": Entry("geoip:geoip", "Look up the location of addresses."),
        "dht": Entry("dht:dht", "Show the node of the DHT, and ask the DHT."),
        "jobs": Entry("jobs:jobs", "Show and manage background jobs."),
        "changes": Entry("changes:show_changes", "Print the change feed: joins, completions, stops and more."),
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
        "backup": Entry("backups:backup", "Back up the private store to a file."),
        "restore": Entry("backups:restore", "Restore the private store from a backup."),
        "reshard": Entry("reshard:reshard", "Copy the store into one with another number of shards."),
        "cleanup": Entry("maintenance:cleanup", "Find stale keys in the store."),
        "reindex": Entry("maintenance:reindex", "Rebuild the lists of torrents, denials, users and clients."),
        "wipe-stats": Entry("maintenance:wipe_stats", "Reset all statistics."),
    },
}


class _Tracker(Menu):
    sections: ClassVar[Sections] = SECTIONS


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"swarmkeeper {__version__} (commit {commit()})")
        raise typer.Exit


app = typer.Typer(
    cls=_Tracker,
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
