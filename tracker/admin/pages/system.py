"""The settings page and the doctor page."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from tracker.admin.pages.rendering import Pages, get, render, wants_part
from tracker.doctor import DoctorContext
from tracker.doctor.checks import run_checks
from tracker.settings.model import Settings, variable
from tracker.settings.reference import Described, describe


class SystemPages(Pages):
    @get("/settings", "settings.html")
    async def settings(self, request: web.Request) -> dict[str, Any]:
        return {
            "parts": list(_parts(self._context.settings)),
            "wanted": request.query.get("q", "")[:100],
            "last": self._context.last_reload(),
        }

    @get("/doctor")
    async def doctor(self, request: web.Request) -> web.Response:
        """Runs the checks: a few store commands."""
        checked = DoctorContext(self._store, self._context.settings, self._clock)
        findings = [finding async for finding in run_checks(checked)]
        levels = Counter(finding.level for finding in findings)
        variables = {"findings": findings, "levels": levels, "problems": self._context.problems(), "at": self._clock()}
        return render(request, "parts/findings.html" if wants_part(request) else "doctor.html", variables)


def _parts(settings: Settings) -> Iterator[tuple[str, str, list[Described], int]]:
    """(name, sentence, settings, number of those that differ from their defaults) of each section."""
    rows = describe(settings)
    for name, field in Settings.model_fields.items():
        mine = [row for row in rows if row.name.startswith(variable(name, ""))]
        changed = sum(row.value != row.default for row in mine)
        yield name, (field.default.__doc__ or "").strip(), mine, changed
