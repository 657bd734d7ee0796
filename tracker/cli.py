"""The ``tracker`` command: turns words into calls, and answers into lines."""

import asyncio
import os
import time
from collections.abc import Callable
from typing import Annotated

import typer

from tracker import __version__, doctor, logs, service, settings_page, terminal
from tracker.bittorrent import parse_info_hash
from tracker.commands import DENIED, Commands, Config, InfoHashes, each, with_stores
from tracker.commands.clients import clients
from tracker.commands.geoip import geoip
from tracker.commands.jobs import jobs
from tracker.commands.stats import show_stats
from tracker.commands.torrents import torrents
from tracker.commands.uniques import uniques
from tracker.commands.users import users
from tracker.errors import ClientError
from tracker.settings_sources import load
from tracker.stores import Stores
from tracker.terminal import say


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"swarmkeeper {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    help="A BitTorrent tracker, and the commands to look after it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(torrents, name="torrent")
app.add_typer(users, name="user")
app.add_typer(clients, name="client")
app.add_typer(uniques, name="unique")
app.add_typer(geoip, name="geoip")
app.add_typer(jobs, name="jobs")


def main() -> None:
    app(prog_name="tracker")


@app.callback()
def _main(
    config: Config = None,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version)
    ] = False,
) -> None:
    del config, version


@app.command()
def serve(config: Config = None) -> None:
    """Serve until SIGTERM or Ctrl-C; a second signal ends at once."""
    settings = load(config)
    logs.configure(settings.log)

    def ready(banner: service.Banner) -> None:
        typer.echo(terminal.banner_text(banner, os.getpid(), private=settings.users.private))

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(service.serve(settings, ready))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415  # a tracker without it is slower and works
    except ImportError:
        return None
    return uvloop.new_event_loop


@app.command("settings")
def show_settings(
    markdown: Annotated[bool, typer.Option("--markdown", help="All settings explained, as a page.")] = False,
    config: Config = None,
) -> None:
    """Print the settings in force, secrets masked."""
    if markdown:
        typer.echo(settings_page.as_markdown(), nl=False)
        return
    for row in settings_page.describe(load(config)):
        say(f"{row.name}={row.value}")


app.command("stats")(show_stats)


@app.command("doctor")
def look_over(config: Config = None) -> None:
    """Look the store and the settings over; exit code 1 when something is wrong."""
    settings = load(config)

    async def work(stores: Stores) -> None:
        patient = doctor.Patient(stores.connection, stores.keys, stores.counters, settings, time.time)
        colours = {"ok": typer.colors.GREEN, "warning": typer.colors.YELLOW, "wrong": typer.colors.RED}
        wrong = False
        async for finding in doctor.examine(patient):
            line = terminal.printable(str(finding))
            typer.echo(typer.style(line[:8], fg=colours[finding.level]) + line[8:])
            wrong |= finding.level == "wrong"
        if wrong:
            raise typer.Exit(1)

    with_stores(config, work)


@app.command()
def deny(
    info_hashes: InfoHashes,
    reason: Annotated[str, typer.Option(help="Shown to whoever announces it.")] = DENIED,
    config: Config = None,
) -> None:
    """Forbid torrents, registered or not, from the very next announce."""

    async def action(stores: Stores, text: str) -> str:
        await stores.torrents.deny(parse_info_hash(text), reason)
        return f"denied {text}"

    each(config, info_hashes, action)


@app.command()
def allow(info_hashes: InfoHashes, config: Config = None) -> None:
    """Take a denial back."""

    async def action(stores: Stores, text: str) -> str:
        if not await stores.torrents.allow(parse_info_hash(text)):
            raise ClientError("was not denied")
        return f"allowed {text}"

    each(config, info_hashes, action)
