"""Chooses a BitTorrent client by its URL. The libraries belong to the extra ``seed``, and are imported when used."""

from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tracker.errors import ClientError, StartupError
from tracker.volunteer.clients import TorrentClient

_FORMS = (
    "--client is qbittorrent://user@host:8080, transmission://user@host:9091 or internal:/folder; "
    "with +https after the name for a client behind TLS"
)


def open_client(client: str, password: str, *, label: str, folder: str) -> TorrentClient:
    """Opens the client that ``client`` names; nothing is sent yet. ``folder`` is where it stores data (empty: its
    default). Raises ClientError, and StartupError when a library is missing."""
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
