"""/settings, /health and /doctor: how the tracker is set up, and how it does."""

from typing import Literal

from pydantic import Field

from tracker import __version__, doctor
from tracker.admin.api.contract import Answer, Call, Endpoints
from tracker.settings_page import describe

endpoints = Endpoints("system", "How the tracker is set up, and how it does.")


class SettingRow(Answer):
    """A setting in force. Passwords and tokens are masked."""

    name: str
    value: str
    default: str
    sentence: str
    allowed: str


class SettingList(Answer):
    """Every setting."""

    items: list[SettingRow]


class Health(Answer):
    """How the tracker does."""

    ready: bool
    problems: list[str] = Field(description="Why it is not ready; empty when it is.")
    version: str
    store: str = Field(description="The store's server and version.")
    geoip: str = Field(description="The database of places, or why there is none; empty when none is named.")


class FindingRow(Answer):
    """One thing that was looked at, and what to do about it."""

    level: Literal["ok", "warning", "wrong"]
    subject: str
    text: str
    remedy: str = Field(description="Empty when there is nothing to do.")


class Findings(Answer):
    """What `tracker doctor` finds."""

    items: list[FindingRow]


@endpoints.get("/settings", "Settings in force")
async def settings(call: Call) -> SettingList:
    described = describe(call.desk.settings)
    return SettingList(
        items=[
            SettingRow(name=d.name, value=d.value, default=d.default, sentence=d.sentence, allowed=d.allowed)
            for d in described
        ]
    )


@endpoints.get("/health", "How the tracker does")
async def health(call: Call) -> Health:
    """Answers 200 as long as it can: `ready` says whether peers are served."""
    desk = call.desk
    problems = list(desk.problems())
    database = desk.places.describe()
    return Health(
        ready=not problems,
        problems=problems,
        version=__version__,
        store=desk.server,
        geoip=str(database) if database else desk.places.problem,
    )


@endpoints.get("/doctor", "Look everything over")
async def examine(call: Call) -> Findings:
    """Store and settings. Nothing is changed."""
    desk, stores = call.desk, call.stores
    patient = doctor.Patient(stores.connection, stores.keys, stores.counters, desk.settings, desk.clock)
    found = [each async for each in doctor.examine(patient)]
    return Findings(
        items=[FindingRow(level=f.level, subject=f.subject, text=f.text, remedy=f.remedy) for f in found]
    )
