"""The ``tracker`` command: which words there are, and where each is done."""

import signal
from typing import Annotated, ClassVar

import typer

from tracker import __version__
from tracker.commands import Config
from tracker.commands.menu import Entry, Menu, Sections
from tracker.terminal import say

SECTIONS: Sections = {
    "Run": {
        "serve": Entry("serve:serve", "Serve until SIGTERM or Ctrl-C."),
        "health": Entry("health:health", "Ask the tracker on this machine whether it is alive."),
        "doctor": Entry("doctor:look_over", "Look the store and the settings over."),
        "settings": Entry("settings:show_settings", "Print the settings in force."),
        "completion": Entry("completion:completion", "Print the script that lets a shell complete words."),
    },
    "What is served": {
        "torrent": Entry("torrents:torrents", "Register torrents, and look at them."),
        "deny": Entry("denials:deny", "Forbid torrents."),
        "allow": Entry("denials:allow", "Take a denial back."),
        "denied": Entry("denials:denied", "List denied torrents."),
        "user": Entry("users:users", "Users of a private tracker: passkeys and totals."),
        "client": Entry("clients:clients", "Client programs: the allow-list, and who came."),
    },
    "What happens": {
        "stats": Entry("stats:show_stats", "Print what was counted and measured."),
        "top": Entry("top:show_top", "Watch the tracker, live."),
        "score": Entry("scores:scores", "Scores of torrents, and how far scoring is behind."),
        "unique": Entry("uniques:uniques", "Unique users, by place and by torrent."),
        "geoip": Entry("geoip:geoip", "Where addresses are in the world."),
        "jobs": Entry("jobs:jobs", "The queue of background jobs."),
    },
    "Who sees it": {
        "token": Entry("tokens:tokens", "Tokens for the admin port."),
        "sign-in-link": Entry("tokens:sign_in_link", "Print a link that opens the dashboard, once."),
    },
    "Keep": {
        "import": Entry("imports:import_register", "Register what is in files and folders."),
        "export": Entry("exports:export_register", "Write the register into a file."),
        "backup": Entry("backups:backup", "Copy the private store into a file."),
        "restore": Entry("backups:restore", "Put a copy of the private store back."),
        "cleanup": Entry("maintenance:cleanup", "Find what no longer belongs into the store."),
        "reindex": Entry("maintenance:reindex", "List what is not listed as it should."),
        "wipe-stats": Entry("maintenance:wipe_stats", "Begin statistics anew."),
    },
}


class _Tracker(Menu):
    sections: ClassVar[Sections] = SECTIONS


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"swarmkeeper {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=_Tracker,
    help="A BitTorrent tracker, and the commands to look after it.",
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
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    del config, version
    if context.invoked_subcommand != "serve":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})  # see __main__.py
