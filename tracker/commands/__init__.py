"""The commands about torrents, users, clients and places, and what all commands share.

Everything expected that goes wrong is one line on standard error and exit code 1; wrong usage is 2.
Commands reach the store that a running tracker uses, or start the private one for a moment.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from redis.exceptions import RedisError
from typer.core import TyperGroup

from tracker import logs
from tracker.errors import ClientError, StartupError, StoreAway
from tracker.settings import Settings
from tracker.settings_sources import SettingsError, load
from tracker.stores import Stores, open_stores
from tracker.terminal import complain, say

PAGE = 100
"""Rows read from the store at a time."""
DENIED = "this torrent is not served here"


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
        except (StartupError, ClientError) as error:
            complain(str(error))
        except RedisError as error:
            complain(f"the store refused: {error}")
        except BrokenPipeError:
            raise
        except OSError as error:
            complain(str(error))
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
InfoHashes = Annotated[list[str], typer.Argument(metavar="INFO_HASH…", help="40 hexadecimal digits each.")]


def group(about: str) -> typer.Typer:
    group = typer.Typer(cls=Commands, help=about, no_args_is_help=True, rich_markup_mode=None)
    group.callback()(_accept_config)
    return group


def _accept_config(config: Config = None) -> None:
    del config  # _config_in_force finds it


def with_stores(config: Path | None, work: Callable[[Stores], Coroutine[Any, Any, None]]) -> None:
    settings = load(config)
    quiet(settings)
    directory = settings.data.directory.absolute()
    if settings.redis.url is None and not directory.exists():  # most likely in the wrong directory
        typer.echo(f"note: no tracker has run on {directory} yet; a new store is made there", err=True)

    async def run() -> None:
        async with open_stores(settings) as stores:
            await work(stores)

    asyncio.run(run())


def quiet(settings: Settings) -> None:
    """A command says by itself what went wrong; its logs would say it twice."""
    logs.configure(settings.log.model_copy(update={"level": "error"}))


def each(
    config: Path | None,
    items: list[str],
    action: Callable[[Stores, str], Awaitable[str]],
    *,
    secret: bool = False,
) -> None:
    """Does one after the other; what fails is a line on standard error and exit code 1 when all are done.

    ``secret`` items may be passkeys, and are not repeated in that line.
    """

    async def work(stores: Stores) -> None:
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


def shown_bytes(raw: bytes) -> str:
    """As in a URL: what is not plain text is ``%`` and two hexadecimal digits."""
    return quote(raw, safe="!#$&'()*+,/:;=?@[]<>^|~")
