"""What all commands share.

Everything expected that goes wrong is one line on standard error and exit code 1; wrong usage is 2.
Commands reach the store that a running tracker uses, or start the private one for a moment. What takes long to
import (the store's client, the settings' validation) is imported where it is used: `tracker --help`, completion in
the shell and health checks need none of it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from tracker.errors import ClientError, SettingsError, StartupError, StoreAway
from tracker.terminal import complain, say

if TYPE_CHECKING:
    from tracker.settings import Settings
    from tracker.stores import Stores


class StoreRefused(Exception):
    """The store answered with an error of its own."""


class Commands(TyperGroup):
    """Expected failures end a command with a line, not with a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except SettingsError as error:
            for problem in error.problems:
                complain(problem)
        except StoreAway as error:
            complain(f"{error}; `tracker doctor` looks it over")
        except (StartupError, ClientError, StoreRefused) as error:
            complain(str(error))
        except UnicodeEncodeError as error:
            if (
                error.reason != "surrogates not allowed"
            ):  # what Python makes of bytes in a command that are no text
                raise
            complain("a word of this command is not text in UTF-8")
        except BrokenPipeError:
            raise
        except OSError as error:
            named = error.filename is not None and error.strerror
            complain(f"{error.filename}: {error.strerror}" if named else str(error))
        raise typer.Exit(1)


def _config_in_force(ctx: typer.Context, value: Path | None) -> Path | None:
    """``--config`` may stand before a command as well as after it; the last one holds."""
    above = ctx.parent
    while value is None and above is not None:
        value = above.params.get("config")
        above = above.parent
    return value


Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A TOML file with settings.", callback=_config_in_force),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Month = Annotated[str | None, typer.Option(metavar="YYYY-MM", help="One month (UTC), not all time.")]
InfoHashes = Annotated[list[str], typer.Argument(metavar="INFO_HASH…", help="40 hexadecimal digits each.")]


def group(about: str) -> typer.Typer:
    group = typer.Typer(cls=Commands, help=about, no_args_is_help=True, rich_markup_mode=None)
    group.callback()(_accept_config)
    return group


def _accept_config(config: Config = None) -> None:
    del config  # _config_in_force finds it


def load_settings(config: Path | None) -> "Settings":
    """The settings in force; from here on only errors are logged, for a command says by itself what went wrong."""
    from tracker import logs  # noqa: PLC0415
    from tracker.settings_sources import load  # noqa: PLC0415

    settings = load(config)
    logs.configure(settings.log.model_copy(update={"level": "error"}))
    return settings


def check_month(month: str | None) -> None:
    """Wrong usage for what is no month."""
    if month is not None and not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", month, re.ASCII):
        raise typer.BadParameter("--month takes a year and a month, such as 2026-11")


def with_stores(config: Path | None, work: "Callable[[Stores], Coroutine[Any, Any, None]]") -> None:
    """Runs ``work`` with the store open; for what it raises see Commands."""
    settings = load_settings(config)
    directory = settings.data.directory.absolute()
    if settings.redis.url is None and not directory.exists():  # most likely in the wrong directory
        typer.echo(f"note: no tracker has run on {directory} yet; a new store is made there", err=True)
    run_with_stores(settings, work)


def run_with_stores(settings: "Settings", work: "Callable[[Stores], Coroutine[Any, Any, None]]") -> None:
    from redis.exceptions import RedisError  # noqa: PLC0415

    from tracker.stores import open_stores  # noqa: PLC0415

    async def run() -> None:
        async with open_stores(settings) as stores:
            await work(stores)

    try:
        asyncio.run(run())
    except RedisError as error:
        raise StoreRefused(f"the store refused: {error}") from error


def each(
    config: Path | None,
    items: list[str],
    action: "Callable[[Stores, str], Awaitable[str]]",
    *,
    secret: bool = False,
) -> None:
    """Does one after the other; what fails is a line on standard error and exit code 1 when all are done.

    ``secret`` items may be passkeys, and are not repeated in that line.
    """

    async def work(stores: "Stores") -> None:
        failed = False
        for number, item in enumerate(items, 1):
            try:
                for line in (await action(stores, item)).split("\n"):
                    say(line)
            except (ClientError, OSError) as error:
                failed = True
                reason = error.strerror if isinstance(error, OSError) else error
                complain(f"{f'argument {number}' if secret else item}: {reason}")
        if failed:
            raise typer.Exit(1)

    with_stores(config, work)
