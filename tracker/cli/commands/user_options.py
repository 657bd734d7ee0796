"""Arguments and options that commands of ``tracker user`` share."""

import sys
from typing import Annotated

import typer

from tracker.errors import ClientError


def read_secret(text: str | None) -> str | None:
    """The argument, or for ``-`` a line of standard input: other users of the machine can see its arguments."""
    if text != "-":
        return text
    try:
        line = sys.stdin.readline().strip()
    except UnicodeDecodeError:
        line = ""
    if not line:  # an empty passkey would mean a random one
        raise ClientError("the first line of standard input is empty or not UTF-8 text")
    return line


Who = Annotated[
    str,
    typer.Argument(
        metavar="USER", help="User id or passkey; `-` reads it from standard input.", callback=read_secret
    ),
]
WhoAll = Annotated[list[str], typer.Argument(metavar="USER…", help="User ids or passkeys.")]
Passkey = Annotated[
    str | None,
    typer.Option(
        "--passkey",
        help="16 to 64 letters, digits, _ or -; `-` reads it from standard input. Default: random.",
        callback=read_secret,
    ),
]
Name = Annotated[str | None, typer.Option("--name", help="Display name; an empty text removes it.")]
Reason = Annotated[
    str | None,
    typer.Option("--reason", help="Shown to the clients of a disabled user; an empty text: a default."),
]
Uploaded = Annotated[str | None, typer.Option("--uploaded", help="Total upload in bytes.")]
Downloaded = Annotated[str | None, typer.Option("--downloaded", help="Total download in bytes.")]
Snatches = Annotated[str | None, typer.Option("--snatches", help="Completed downloads.")]
Announces = Annotated[str | None, typer.Option("--announces", help="Announces so far.")]
CreditCut = Annotated[
    str | None, typer.Option("--credit-cut", help="Bytes that were not credited because of the maximum rate.")
]
Upload = Annotated[
    str | None,
    typer.Option("--upload-multiplier", help="Factor for the user's upload, 0 to 1000; 1: none."),
]
Download = Annotated[
    str | None,
    typer.Option("--download-multiplier", help="Factor for the user's download; 0: freeleech, 1: none."),
]
MaxDownloads = Annotated[
    str | None,
    typer.Option(
        "--max-downloads",
        help="Torrents downloaded at once; 0: any number, -1: as many as the setting allows.",
    ),
]
Exempt = Annotated[
    bool | None, typer.Option("--hnr-exempt/--no-hnr-exempt", help="The user gets no hit-and-runs.")
]
