"""The group ``tracker work``, and what its commands share."""

from typing import Annotated

from typer import Argument, Option

from tracker.cli.commands import group
from tracker.store.work.records import Queue as QueueName

commands = group("Give work to volunteers: projects, items and claims.")

Project = Annotated[str, Argument(metavar="PROJECT", help="Name of a project.")]
Items = Annotated[list[str], Argument(metavar="ITEM…", help="Info hashes or texts.")]
Queue = Annotated[QueueName, Option()]
_MAX_HOURS = 1_000_000
OlderThan = Annotated[
    float | None, Option(min=0, max=_MAX_HOURS, metavar="HOURS", help="Only those at least this old.")
]
