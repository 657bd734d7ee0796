"""Which role each route needs, and under which operation the audit log records a change by it.

Endpoints of the API and handlers of pages declare it beside their path. A GET without a rule needs role ``read``. A
change without a rule is refused.
"""

import re
from typing import NamedTuple

from tracker.admin.auth.hosts import SAFE_METHODS
from tracker.store.access.tokens import Role

OPEN = frozenset({"/health", "/ready", "/sign-in", "/static/{path}"})
"""The routes without authentication. They show nothing about the tracker but its health."""


class Rule(NamedTuple):
    """``role``: the lowest role that may use the route. ``operation``: its name in the audit log; empty: no change."""

    role: Role
    operation: str = ""


RULES: dict[str, Rule] = {"POST /sign-out": Rule("read")}
"""By method and route."""


def add_rule(method: str, path: str, rule: Rule) -> None:
    """``path``: its placeholders may have patterns, which the route has not."""
    RULES[f"{method} {re.sub(r':[^}]*', '', path)}"] = rule


def rule_of(method: str, route: str) -> Rule | None:
    """The rule of a route, which is a path with placeholders; None: the route is closed."""
    if method in SAFE_METHODS:
        return RULES.get(f"GET {route}", Rule("read"))
    return RULES.get(f"{method} {route}")
