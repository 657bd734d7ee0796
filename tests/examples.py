"""How many examples hypothesis tries: few on every change, many in `make test-all`."""

from hypothesis import HealthCheck, settings

NAMED = 50
"""Examples of a test that names no number, where tests get the numbers they name."""
SHORT, LONG = 30, 500
"""The same by profile."""


def register_profiles() -> None:
    """The short profile repeats its examples, so that what fails is what was changed. The long one looks for new
    examples."""
    settings.register_profile("short", max_examples=SHORT, deadline=None, derandomize=True, database=None)
    settings.register_profile("long", max_examples=LONG, deadline=None)
    settings.load_profile("short")


def examples(number: int, **changes: object) -> settings:
    """``number`` of them, fewer in the short profile, more in the long one, as in tests that name no number."""
    scaled = max(1, number * settings().max_examples // NAMED)
    return settings(max_examples=scaled, suppress_health_check=list(HealthCheck), **changes)  # type: ignore[arg-type]
