"""What all commands share.

An expected error is one line on standard error and exit code 1; wrong usage is exit code 2. Commands connect to the
store of the running tracker, or start the private store for the duration of the command. Slow imports (the store's
client, the validation of settings) happen where they are used: `tracker --help`, shell completion and health checks do
not need them.
"""

import inspect
import logging
import os
import re
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from tracker.cli.terminal import Column, Listing, Row, complain, describe, note, say
from tracker.errors import ClientError, SettingsError, StartupError, StoreUnavailable, plain
from tracker.system.logger import FirstLine

if TYPE_CHECKING:
    from tracker.cli.commands.options import OptionsOf
    from tracker.operations.audit import Change
    from tracker.operations.snapshots import Kind
    from tracker.settings.model import Settings
    from tracker.store.store import Store
    from tracker.system.torrent_files import TorrentFiles


Command = Callable[..., Any]
F = TypeVar("F", bound=Command)
Pages = AsyncIterator[Iterable[Row] | str]
"""What a command yields that ``lists``: rows, and notes, which --json leaves out."""
Columns = str | Sequence[Column]
"""Of a table, or their text for ``terminal.columns``."""


class StoreRefused(Exception):
    """The store replied with an error."""


class Commands(TyperGroup):
    """Prints expected errors as one line, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = plain(error.message)
            raise
        except SettingsError as error:
            for problem in error.problems:
                complain(problem)
        except StoreUnavailable as error:
            complain(f"{error}; `tracker doctor` checks the store")
        except ClientError as error:
            complain(str(error))
        except (StartupError, StoreRefused) as error:
            from tracker.system.masking import mask  # noqa: PLC0415

            complain(mask(str(error)))
        except UnicodeEncodeError as error:
            # Python turns arguments that are not UTF-8 into lone surrogates.
            if error.reason != "surrogates not allowed":
                raise
            complain("an argument of this command is not UTF-8 text")
        except BrokenPipeError:
            raise
        except OSError as error:
            named = error.filename is not None and error.strerror
            complain(f"{error.filename}: {error.strerror}" if named else str(error))
        raise typer.Exit(1)


config_file: ContextVar[Path | None] = ContextVar("config", default=None)
"""What ``--config`` of the command that runs names."""


def _note_config(ctx: typer.Context, value: Path | None) -> None:
    """``--config`` may stand before a command or after it; the last one wins."""
    if value is not None or ctx.parent is None:
        config_file.set(value)


Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML file with settings.", callback=_note_config)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
Limit = Annotated[int, typer.Option(min=1, help="Maximum number of lines.")]
LimitOrAll = Annotated[int, typer.Option(min=1, help="Maximum number of lines.", show_default="all")]
InfoHash = Annotated[str, typer.Argument(metavar="INFO_HASH", help="40 hexadecimal digits.")]


def _check_month(month: str | None) -> str | None:
    if month is not None and not re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", month, re.ASCII):
        raise typer.BadParameter("must be a year and a month, such as 2026-11")
    return month


Month = Annotated[
    str | None, typer.Option(metavar="YYYY-MM", help="Only this month (UTC). Default: all time.", callback=_check_month)
]


@dataclass(frozen=True, slots=True)
class Traits:
    """How ``runnable`` runs a command that uses the store."""

    lists: Columns | Callable[..., Columns] = ()
    """The command yields pages of rows. They are printed as a table with these columns, or as JSON. Columns that depend
    on the command's arguments are a function of them."""
    audited: str = ""
    """The command changes something, and gets the ``change``. This is its name in the audit log."""
    each: "Kind | None" = None
    """The command changes objects of this kind: it runs for each value of its argument, as ``run_each`` does, and
    returns the line to print."""
    secret: bool = False
    """With ``each``: as of ``run_each``."""
    checks: Command | None = None
    """Before the store is opened, this gets the command's arguments that it names, and raises what is wrong."""
    given: "OptionsOf | None" = None
    """What the command has options for. Its parameter ``given`` gets those that were given, by name."""


def traits(**traits: Any) -> Callable[[F], F]:
    """Those of a command that is in no group."""

    def decorate(function: F) -> F:
        function.traits = Traits(**traits)  # type: ignore[attr-defined]
        return function

    return decorate


class Group(typer.Typer):
    def command(self, name: str | None = None, *, context_settings: Any = None, **options: Any) -> Callable[[F], F]:
        """``options`` are the command's ``Traits``."""

        def register(function: F) -> F:
            prepared = runnable(traits(**options)(function))
            super(Group, self).command(name, context_settings=context_settings)(prepared)
            return function

        return register


def group(about: str) -> Group:
    group = Group(cls=Commands, help=about, no_args_is_help=True, rich_markup_mode=None)
    group.callback()(_accept_config)
    return group


def _accept_config(config: Config = None) -> None:
    del config  # _note_config reads it


def runnable(function: Command) -> Command:
    """The function as typer runs it, with ``--config``. A coroutine gets the open store. One that returns a Row, or
    yields pages, has ``--json``."""
    has: Traits = getattr(function, "traits", Traits())
    parameters: list[Parameter] = []
    for each in signature(function).parameters.values():
        if has.given and each.name == "given":
            parameters += has.given.parameters
        elif each.name not in ("store", "change"):
            parameters.append(each)
    if has.each:
        about = copy(parameters[0].annotation.__metadata__[0])
        about.metavar += "…"
        parameters[0] = parameters[0].replace(annotation=Annotated[list[str], about])
    shows = bool(has.lists) or function.__annotations__["return"] is Row
    if shows:
        parameters.append(Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson))
    parameters.append(Parameter("config", Parameter.KEYWORD_ONLY, default=None, annotation=Config))

    @wraps(function)
    def run(config: None, **arguments: Any) -> None:
        del config  # _note_config reads it
        if has.given:
            arguments = has.given.collect(arguments)
        if has.checks:
            has.checks(**{name: arguments[name] for name in signature(has.checks).parameters})
        if has.each:
            items = arguments.pop(parameters[0].name)
            run_each(items, partial(function, **arguments), has.audited, has.each, secret=has.secret)
        elif has.lists or inspect.iscoroutinefunction(function):
            _run(function, has, arguments, as_json=shows and arguments.pop("as_json"), shows=shows)
        else:
            function(**arguments)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _run(function: Command, has: Traits, arguments: dict[str, Any], *, as_json: bool, shows: bool) -> None:
    async def work(store: "Store", **change: Any) -> None:
        if has.lists:
            listing = Listing(has.lists(**arguments) if callable(has.lists) else has.lists, as_json=as_json)
            async for page in function(store=store, **change, **arguments):
                if not isinstance(page, str):
                    listing.page(page)
                elif not as_json:
                    note(page)
        else:
            row = await function(store=store, **change, **arguments)
            if shows:
                describe(row, as_json=as_json)

    if has.audited:
        change_store(has.audited, lambda store, change: work(store, change=change))
    else:
        with_store(work)


def confirm(question: str, *, yes: bool = False) -> None:
    """Asks, unless the answer is ``yes``; ends the command if it is no. Ctrl-C ends it too: an event loop would only
    note that, and wait for the answer."""
    if not yes:
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            typer.confirm(question, abort=True)
        finally:
            signal.signal(signal.SIGINT, before)


def load_settings() -> "Settings":
    """The current settings. From here on only errors are logged: a command prints its own messages."""
    from tracker.settings.sources import load  # noqa: PLC0415

    settings = load(config_file.get())

    def configure() -> None:
        from tracker.system import logs  # noqa: PLC0415

        logs.configure("error", settings.log.format)

    root = logging.getLogger()
    root.addHandler(FirstLine(configure))
    root.setLevel(logging.ERROR)
    logging.captureWarnings(capture=True)
    return settings


def torrent_files(settings: "Settings") -> "TorrentFiles":
    from tracker.system.torrent_files import TorrentFiles  # noqa: PLC0415

    return TorrentFiles(settings.data.directory, enabled=settings.torrents.keep_files)


def with_store(work: "Callable[[Store], Coroutine[Any, Any, None]]") -> None:
    """Runs ``work`` with the store open. ``Commands`` handles what it raises."""
    settings = load_settings()
    directory = settings.data.directory.absolute()
    if settings.redis.url is None and not directory.exists():  # most likely the wrong working directory
        note(f"no tracker has used {directory} yet; a new store is created there")
    run_with_store(settings, work)


def run_with_store(settings: "Settings", work: "Callable[[Store], Coroutine[Any, Any, None]]") -> None:
    from tracker.runtime.store import open_store  # noqa: PLC0415
    from tracker.store.sharding.shards import named, noting_unavailable_shards  # noqa: PLC0415

    async def run() -> None:
        async with open_store(settings) as store:
            try:
                with noting_unavailable_shards() as missing:
                    await work(store)
            except StoreUnavailable as error:
                await store.connection.topology.look()
                raise StoreUnavailable(_with_unavailable(store, error)) from error
            if missing:
                unavailable = _unavailable_parts(store) or named(missing)
                note(f"the store does not answer for {unavailable}: what is there is missing here")

    run_async(run())


def run_async(work: Coroutine[Any, Any, None]) -> None:
    """Raises StoreRefused where the store replies with an error."""
    import asyncio  # noqa: PLC0415

    from redis.exceptions import RedisError  # noqa: PLC0415

    try:
        asyncio.run(work)
    except RedisError as error:
        raise StoreRefused(f"store error: {error}") from error


def _with_unavailable(store: "Store", error: Exception) -> str:
    """The error, and after it the unavailable parts."""
    unavailable = _unavailable_parts(store) if isinstance(error, StoreUnavailable) else ""
    text = store.shards.cause or str(error)
    return f"{text}; unavailable: {unavailable}" if unavailable else text


def _unavailable_parts(store: "Store") -> str:
    """Those of several shards on a cluster, with the addresses of the nodes; empty if there are none."""
    if not (store.shards.others and store.connection.topology.nodes):
        return ""
    found = [f"main store ({store.connection.master})"] if store.shards.main_is_unavailable else []
    found += [text] if (text := store.shards.unavailable_at_nodes) else []
    return ", ".join(found)


def change_store(operation: str, work: "Callable[[Store, Change], Coroutine[Any, Any, None]]") -> None:
    """As with_store, for a command that changes something. ``operation`` is its name in the audit log."""

    async def run(store: "Store") -> None:
        change = change_of(store, operation)
        try:
            await work(store, change)
        except BaseException:
            await change.record(failed=True)
            raise
        await change.record()

    with_store(run)


def change_of(store: "Store", operation: str) -> "Change":
    """A change by the user of the operating system who runs this command."""
    import getpass  # noqa: PLC0415
    import socket  # noqa: PLC0415

    from tracker.operations.audit import Caller, Change  # noqa: PLC0415

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # such as a container, whose users have no names
        user = f"uid {os.getuid()}"
    return Change(store, Caller(user, "admin", "cli", address=socket.gethostname()), operation)


def run_each(
    items: list[str],
    action: "Callable[[Store, str], Awaitable[str]]",
    operation: str,
    kind: "Kind",
    *,
    objects: Sequence[str] | None = None,
    created: Sequence[str] = (),
    secret: bool = False,
) -> None:
    """Runs ``action`` for each item in turn. Each failure is a line on standard error; exit code 1 after the last item.

    The audit log gets one entry. ``objects`` are what is changed, by default the items; ``action`` adds new ones to
    ``created``. ``secret`` items may be passkeys: an error names their position instead.
    """

    async def work(store: "Store", change: "Change") -> None:
        await change.touch_all(kind, items if objects is None else objects)
        failed = 0
        for number, item in enumerate(items, 1):
            try:
                for line in (await action(store, item)).split("\n"):
                    say(line)
            except (ClientError, OSError, StoreUnavailable) as error:
                shards = store.shards
                others_serve = not shards.main_is_unavailable and 0 < len(shards.unavailable) < len(shards)
                if isinstance(error, StoreUnavailable) and not others_serve:
                    raise
                failed += 1
                reason = error.strerror if isinstance(error, OSError) else _with_unavailable(store, error)
                complain(f"{f'argument {number}' if secret else item}: {reason}")
        for text in created:
            change.created(kind, text)
        if len(items) > 1 and failed < len(items):
            change.count(done=len(items) - failed, failed=failed)
        if failed:
            raise typer.Exit(1)

    change_store(operation, work)


PAGE = 100
"""Rows read from the store at a time."""
EVERYTHING = 2**53
"""No limit."""

T = TypeVar("T")


async def in_order(limit: int, read: Callable[[int, int], Awaitable[Sequence[T]]]) -> AsyncIterator[Sequence[T]]:
    """Pages of an ordered list, up to ``limit`` items. ``read`` takes an offset and a count.

    The first page is yielded even if it is empty. The next empty page is the end; a short page is not, because items
    may have been removed meanwhile.
    """
    for offset in range(0, limit, PAGE):
        page = await read(offset, min(PAGE, limit - offset))
        if offset and not page:
            return
        yield page


async def in_no_order(read: Callable[[int, int], Awaitable[tuple[int, Sequence[T]]]]) -> AsyncIterator[Sequence[T]]:
    """Pages of a set. ``read`` takes a cursor and an approximate count; it returns the next cursor (0: the end) and a
    page."""
    cursor = -1
    while cursor:
        cursor, page = await read(max(cursor, 0), PAGE)
        yield page
