"""The pages of the tracker itself: its settings in force, and what the doctor finds."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from aiohttp import web

from tracker.admin.desk import Desk
from tracker.admin.pages.rendering import render, wants_part
from tracker.doctor import Patient, examine
from tracker.settings import Settings, variable
from tracker.settings_page import Described, describe


class Part(NamedTuple):
    """A section of the settings; ``changed`` of its fields are not at their defaults."""

    name: str
    sentence: str
    rows: list[Described]
    changed: int


def routes(desk: Desk) -> list[web.AbstractRouteDef]:
    async def settings(request: web.Request) -> web.Response:
        context = {"parts": list(_parts(desk.settings)), "wanted": request.query.get("q", "")[:100]}
        return render(request, "settings.html", context)

    async def doctor(request: web.Request) -> web.Response:
        """The examination itself: a few commands to the store."""
        stores = desk.stores
        patient = Patient(stores.connection, stores.keys, stores.counters, desk.settings, desk.clock)
        findings = [finding async for finding in examine(patient)]
        levels = Counter(finding.level for finding in findings)
        context = {"findings": findings, "levels": levels, "problems": desk.problems(), "at": desk.clock()}
        return render(request, "parts/findings.html" if wants_part(request) else "doctor.html", context)

    return [web.get("/settings", settings), web.get("/doctor", doctor)]


def _parts(settings: Settings) -> Iterator[Part]:
    rows = describe(settings)
    for name, field in Settings.model_fields.items():
        mine = [row for row in rows if row.name.startswith(variable(name, ""))]
        changed = sum(row.value != row.default for row in mine)
        yield Part(name, (field.default.__doc__ or "").strip(), mine, changed)
