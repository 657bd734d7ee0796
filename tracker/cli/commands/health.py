"""``tracker health``, for Docker and other supervisors. It imports little, and needs neither a token nor the store."""

import http.client
import socket
from contextlib import closing
from typing import Annotated

from typer import Exit, Option

from tracker.cli.commands import AsJson, config_file
from tracker.cli.terminal import describe
from tracker.errors import ClientError
from tracker.settings.sources import load

_SECONDS = 5.0
_LOCAL = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "*": "127.0.0.1"}


def health(
    ready: Annotated[bool, Option("--ready", help="Check readiness, not just liveness.")] = False,
    public: Annotated[bool, Option("--public", help="Use the public port, not the admin port.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the health of the tracker on this machine; exit code 1 if it is unhealthy or, with --ready, not ready."""
    settings = load(config_file.get())
    listen = settings.http.listen if public or not settings.admin.enabled else settings.admin.listen
    path = "/ready" if ready else "/health"
    try:
        status, text = _ask(listen[0], path)
    except (OSError, http.client.HTTPException) as error:
        raise ClientError(f"no answer from a tracker at {listen[0]}: {str(error) or type(error).__name__}") from error
    describe({"healthy": status == 200, "answer": text, "address": listen[0]}, as_json=as_json)
    if status != 200:
        raise Exit(1)


def _ask(address: str, path: str) -> tuple[int, str]:
    is_unix = address.startswith("unix:")
    host, _, port = ("localhost", "", "80") if is_unix else address.rpartition(":")
    if port == "0":
        raise ClientError("the settings let the system choose the port (0), so it is unknown here")
    connection = http.client.HTTPConnection(_LOCAL.get(host, host).strip("[]"), int(port), timeout=_SECONDS)
    with closing(connection):
        if is_unix:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(_SECONDS)
            connection.sock.connect(address.removeprefix("unix:"))
        connection.request("GET", path, headers={"Connection": "close"})
        answer = connection.getresponse()
        return answer.status, answer.read(1000).decode("utf-8", "replace").strip()
