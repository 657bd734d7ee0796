"""``tracker work seed``: the program of volunteers. It needs no store and no settings of a tracker."""

import asyncio
import hashlib
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from typer import BadParameter, Option, confirm

from tracker.cli.commands.work.claims import commands
from tracker.cli.terminal import note, say
from tracker.errors import ClientError, StartupError
from tracker.names import printable
from tracker.volunteer.clients import ClientUnavailable, TorrentClient

if TYPE_CHECKING:
    from tracker.volunteer.loop import Confirm, Rules, State
    from tracker.volunteer.work_api import Identity

PASSKEY = "SWARMKEEPER_PASSKEY"
PASSWORD = "SWARMKEEPER_CLIENT_PASSWORD"  # noqa: S105  # the name of a variable
_LOCAL = ("localhost", "127.0.0.1", "::1")
_MAX_SECRET = 4096
_FORMS = (
    "--client is qbittorrent://user@host:8080, transmission://user@host:9091 or internal:/folder; "
    "with +https after the name for a client behind TLS"
)


def _size(text: str) -> int:
    from pydantic import ByteSize, TypeAdapter, ValidationError  # noqa: PLC0415

    try:
        return int(TypeAdapter(ByteSize).validate_python(text))
    except ValidationError:
        raise BadParameter("is written like 500GB or 2TB") from None


MaxTorrents = Annotated[int, Option("--max", min=1, max=100_000, metavar="N", help="Maximum number of torrents.")]
Label = Annotated[str, Option(metavar="LABEL", help="Label of the torrents added here; others are not changed.")]
PasskeyFile = Annotated[Path | None, Option(metavar="FILE", help=f"File with your passkey. Default: ${PASSKEY}.")]
Name = Annotated[str, Option(metavar="NAME", help="Your name, in a project without passkeys. Needs --port.")]
AutoDrop = Annotated[bool, Option("--auto-drop", help="Do not ask before dropping torrents that are no longer needed.")]


@commands.command("seed")
def seed(
    url: Annotated[str, Option(metavar="URL", help="The project: https://tracker.example/seeds.")],
    client: Annotated[
        str,
        Option(
            metavar="CLIENT", help="qbittorrent://user@host:8080, transmission://user@host:9091, or internal:/folder."
        ),
    ],
    space: Annotated[int, Option(parser=_size, metavar="SIZE", help="Maximum disk space to fill, such as 500GB.")],
    max_torrents: MaxTorrents = 50,
    folder: Annotated[str, Option(metavar="FOLDER", help="Folder for data, as the client sees it.")] = "",
    label: Label = "swarmkeeper",
    passkey_file: PasskeyFile = None,
    name: Name = "",
    port: Annotated[
        int, Option(min=0, max=65_535, metavar="PORT", help="Where your client accepts connections, with --name.")
    ] = 0,
    client_password_file: Annotated[
        Path | None, Option(metavar="FILE", help=f"File with the client's password. Default: ${PASSWORD}.")
    ] = None,
    state: Annotated[
        Path | None, Option(metavar="FILE", help="Where to remember claims. Default: below ~/.local/state.")
    ] = None,
    auto_drop: AutoDrop = False,
    delete_data: Annotated[bool, Option("--delete-data", help="Delete the data of dropped torrents.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Print what would be done, and exit.")] = False,
    once: Annotated[bool, Option("--once", help="Run one round, and exit.")] = False,
    every: Annotated[float, Option(min=1, max=86_400, metavar="SECONDS", help="Time between rounds.")] = 300,
) -> None:
    """Seed torrents that need seeders, with your own BitTorrent client.

    Asks the tracker for torrents while there is space, and adds them to the client. Torrents without the label are not
    changed.
    """
    # For this command only: the other ones of `tracker work` do not wait for these.
    from tracker.system import logs  # noqa: PLC0415
    from tracker.volunteer.loop import Rules, open_state, read_state  # noqa: PLC0415
    from tracker.volunteer.work_api import Unavailable  # noqa: PLC0415

    logs.configure()
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # it logs each retry; the loop logs the outcome
    if not re.fullmatch(r"[-_.0-9A-Za-z]{1,50}", label, re.ASCII):
        raise BadParameter("--label has 1 to 50 letters, digits, dots, - and _")
    identity = _identity(name, port, passkey_file)
    password = _secret(client_password_file, PASSWORD)
    _check_url(url, sends_passkey=bool(identity.passkey))
    rules = Rules(space, max_torrents, auto_drop, delete_data, round_seconds=every)
    path = state or _default_state(url, client, label)
    with nullcontext(read_state(path)) if dry_run else open_state(path) as held:
        with _closing(open_client(client, password, label=label, folder=folder)) as opened:
            run = _run(url, identity, opened, held, rules, dry_run=dry_run, once=once)
            try:
                asyncio.run(run)
            except (Unavailable, ClientUnavailable) as error:  # with --once or --dry-run
                raise ClientError(str(error)) from error


def open_client(client: str, password: str, *, label: str, folder: str) -> TorrentClient:
    """Opens the client that ``client`` names; nothing is sent yet. ``folder`` is where it stores data (empty: its
    default). Raises ClientError, and StartupError when a library is missing: they belong to the extra ``seed``."""
    try:
        url = urlsplit(client)
        kind, _, security = url.scheme.partition("+")
        valid = url.port is None or url.port > 0
    except ValueError:
        raise ClientError(_FORMS) from None
    if url.password is not None:
        raise ClientError("a password does not belong into --client: use --client-password-file")
    if not valid or security not in ("", "https"):
        raise ClientError(_FORMS)
    user = unquote(url.username or "")
    try:
        match kind:
            case "qbittorrent":
                from tracker.volunteer.clients.qbittorrent import QBittorrent  # noqa: PLC0415

                return QBittorrent(_web_address(url), user, password, label=label, folder=folder)
            case "transmission":
                from tracker.volunteer.clients.transmission import Transmission  # noqa: PLC0415

                return Transmission(_web_address(url), user, password, label=label, folder=folder)
            case "internal":
                from tracker.volunteer.clients.internal import Internal, typed_settings  # noqa: PLC0415

                if url.netloc or not url.path or folder:
                    raise ClientError("internal is written internal:/folder, without --folder")
                settings = typed_settings(dict(parse_qsl(url.query, keep_blank_values=True)))
                return Internal(Path(unquote(url.path)).absolute(), settings=settings)
    except ImportError as error:
        raise StartupError(f"{error.name} is not installed: pip install 'swarmkeeper[seed]'") from None
    raise ClientError(_FORMS)


def _web_address(url: SplitResult) -> str:
    if not url.hostname:
        raise ClientError(_FORMS)
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    port = f":{url.port}" if url.port else ""
    return f"{'https' if url.scheme.endswith('+https') else 'http'}://{host}{port}{url.path}"


async def _run(
    url: str, identity: "Identity", client: TorrentClient, state: "State", rules: "Rules", *, dry_run: bool, once: bool
) -> None:
    from tracker.system.event_loop import running  # noqa: PLC0415
    from tracker.volunteer.loop import Volunteer  # noqa: PLC0415
    from tracker.volunteer.work_api import WorkApi  # noqa: PLC0415

    async with WorkApi.open(url, identity) as api:
        volunteer = Volunteer(api, client, state, rules, confirm=_confirm() if not dry_run else None)
        if dry_run:
            for line in await volunteer.preview():
                say(line)
        elif once:
            await volunteer.round()
        else:
            stop = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            async with running(volunteer.run):
                await stop.wait()


def _identity(name: str, port: int, passkey_file: Path | None) -> "Identity":
    from tracker.volunteer.work_api import Identity  # noqa: PLC0415

    if bool(name) != bool(port):
        raise BadParameter("--name and --port belong together")
    if name:
        if not re.fullmatch(r"[-_0-9A-Za-z]{3,30}", name, re.ASCII):
            raise BadParameter("--name has 3 to 30 letters, digits, - and _")
        return Identity(name=name, port=port)
    passkey = _secret(passkey_file, PASSKEY)
    if not passkey:
        raise ClientError(f"no passkey: set {PASSKEY}, or use --passkey-file")
    return Identity(passkey)


def _confirm() -> "Confirm | None":
    """Asks at the terminal; None without one."""
    if not sys.stdin.isatty():
        return None

    async def ask(name: str) -> bool:
        text = f"{printable(name)} is no longer needed. Drop it?"
        return await asyncio.to_thread(confirm, text)

    return ask


@contextmanager
def _closing(client: TorrentClient) -> Iterator[TorrentClient]:
    try:
        yield client
    finally:
        try:
            client.close()
        except ClientUnavailable:
            note("the client was not available at the end")


def _secret(path: Path | None, variable: str) -> str:
    """The content of a file without surrounding space, else a variable. Neither is seen in the list of processes."""
    if path is None:
        text = os.environ.get(variable, "")
    else:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_MAX_SECRET)
    text = text.strip()
    if not text.isprintable():
        raise ClientError(f"{path or variable} must hold one line of printable characters")
    return text


def _check_url(url: str, *, sends_passkey: bool) -> None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) > 0
    except ValueError:
        valid = None
    if not valid or parts.username is not None or parts.query or parts.fragment:
        raise ClientError("--url is written https://tracker.example:6980/project, without a passkey")
    if sends_passkey and parts.scheme == "http" and parts.hostname not in _LOCAL:
        note("the passkey is sent unencrypted, because --url is not https")


def _default_state(url: str, client: str, label: str) -> Path:
    base = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state").expanduser()
    name = hashlib.sha256("\n".join((url, client, label)).encode()).hexdigest()[:16]
    return base / "swarmkeeper" / f"seed-{name}.json"
