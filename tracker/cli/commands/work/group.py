"""The group ``tracker work``, and what its commands share."""

from typing import Annotated

import typer

from tracker.cli.commands import group
from tracker.store.work.records import Queue as QueueName

commands = group("Give work to volunteers: projects, items and claims.")

Project = Annotated[str, typer.Argument(metavar="PROJECT", help="Name of a project.")]
Items = Annotated[list[str], typer.Argument(metavar="ITEM…", help="Info hashes or texts.")]
Queue = Annotated[QueueName, typer.Option()]
_MAX_HOURS = 1_000_000
OlderThan = Annotated[
    float | None, typer.Option(min=0, max=_MAX_HOURS, metavar="HOURS", help="Only those at least this old.")
]
