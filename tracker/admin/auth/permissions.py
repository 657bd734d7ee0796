"""Which role each route needs, and under which operation the audit log records a change by it.

RULES lists every route that changes something, and those that show secrets. Any other GET needs role ``read``. A change
without a rule is refused.
"""

from typing import NamedTuple

from tracker.admin.auth.hosts import SAFE_METHODS
from tracker.store.access.tokens import Role

OPEN = frozenset({"/health", "/ready", "/sign-in", "/static/{path}"})
"""The routes without authentication. They show nothing about the tracker but its health."""


class Rule(NamedTuple):
    """``role``: the lowest role that may use the route. ``operation``: its name in the audit log; empty: no change."""

    role: Role
    operation: str = ""


def rule_of(method: str, route: str) -> Rule | None:
    """The rule of a route, which is a path with placeholders; None: the route is closed."""
    if method in SAFE_METHODS:
        return RULES.get(f"GET {route}", Rule("read"))
    return RULES.get(f"{method} {route}")


_API: dict[str, Rule] = {
    "POST /torrents": Rule("operate", "torrent.add"),
    "POST /torrents/batch": Rule("operate", "torrent.batch"),
    "POST /torrent-files": Rule("operate", "torrent.add"),
    "PATCH /torrents/{info_hash}": Rule("operate", "torrent.edit"),
    "DELETE /torrents/{info_hash}": Rule("operate", "torrent.remove"),
    "POST /torrents/{info_hash}/dht-lookup": Rule("operate", "torrent.dht_lookup"),
    "PUT /denials/{info_hash}": Rule("operate", "denial.add"),
    "DELETE /denials/{info_hash}": Rule("operate", "denial.remove"),
    "POST /users": Rule("operate", "user.add"),
    "POST /users/batch": Rule("operate", "user.batch"),
    "POST /user-torrents/batch": Rule("operate", "user_torrent.batch"),
    "POST /users/lookup": Rule("operate"),
    "PATCH /users/{user_id}": Rule("operate", "user.edit"),
    "POST /users/{user_id}/passkey": Rule("operate", "user.rotate"),
    "DELETE /users/{user_id}": Rule("admin", "user.delete"),
    "POST /users/{user_id}/forgive": Rule("operate", "user.forgive"),
    "POST /users/{user_id}/forgive/{torrent_id}": Rule("operate", "user.forgive"),
    "PUT /users/{user_id}/freeleech/{info_hash}": Rule("operate", "freeleech.give"),
    "DELETE /users/{user_id}/freeleech/{info_hash}": Rule("operate", "freeleech.revoke"),
    "PUT /users/{user_id}/rules/{name}": Rule("operate", "user.edit"),
    "DELETE /users/{user_id}/rules/{name}": Rule("operate", "user.edit"),
    "PUT /torrents/{info_hash}/rules/{name}": Rule("operate", "torrent.edit"),
    "DELETE /torrents/{info_hash}/rules/{name}": Rule("operate", "torrent.edit"),
    "PUT /groups/{group_id}": Rule("operate", "group.set"),
    "PATCH /groups/{group_id}": Rule("operate", "group.set"),
    "DELETE /groups/{group_id}": Rule("operate", "group.delete"),
    "PUT /multipliers": Rule("admin", "multipliers.set"),
    "PUT /multipliers/rules/{name}": Rule("admin", "multipliers.set"),
    "DELETE /multipliers/rules/{name}": Rule("admin", "multipliers.set"),
    "PUT /clients/{prefix}": Rule("operate", "client.allow"),
    "DELETE /clients/{prefix}": Rule("operate", "client.disallow"),
    "PUT /denied-clients/{prefix}": Rule("operate", "client.deny"),
    "DELETE /denied-clients/{prefix}": Rule("operate", "client.undeny"),
    "POST /work/projects": Rule("operate", "project.create"),
    "PATCH /work/projects/{project}": Rule("operate", "project.edit"),
    "DELETE /work/projects/{project}": Rule("admin", "project.delete"),
    "POST /work/projects/{project}/items": Rule("operate", "items.add"),
    "POST /work/projects/{project}/item-list": Rule("operate", "items.add"),
    "DELETE /work/projects/{project}/items": Rule("operate", "items.purge"),
    "DELETE /work/projects/{project}/item": Rule("operate", "items.remove"),
    "POST /work/projects/{project}/claims/release": Rule("operate", "claims.release"),
    "GET /work/blocked": Rule("operate"),
    "POST /work/blocked": Rule("operate", "block.add"),
    "DELETE /work/blocked": Rule("operate", "block.remove"),
    "GET /work/projects/{project}/blocked": Rule("operate"),
    "POST /work/projects/{project}/blocked": Rule("operate", "block.add"),
    "DELETE /work/projects/{project}/blocked": Rule("operate", "block.remove"),
    "GET /work/projects/{project}/blocked-log": Rule("operate"),
    "DELETE /queues/{queue}/jobs": Rule("operate", "jobs.purge"),
    "PUT /queues/{queue}/limits": Rule("operate", "jobs.limit"),
    "POST /jobs/{id}/retry": Rule("operate", "jobs.retry"),
    "POST /reprocess": Rule("operate", "jobs.reprocess"),
    "POST /sweep": Rule("operate", "jobs.sweep"),
    "GET /audit": Rule("admin"),
    "GET /audit/csv": Rule("admin"),
    "GET /audit/json-lines": Rule("admin"),
    "GET /tokens": Rule("admin"),
    "POST /tokens": Rule("admin", "token.create"),
    "DELETE /tokens/{token_id}": Rule("admin", "token.revoke"),
}
"""Paths after /api/v1."""

_PAGES: dict[str, Rule] = {
    "POST /torrents/bulk": Rule("operate", "torrent.bulk"),
    "POST /torrents/add": Rule("operate", "torrent.add"),
    "POST /torrents/{info_hash}/edit": Rule("operate", "torrent.edit"),
    "POST /torrents/{info_hash}/multipliers": Rule("operate", "torrent.edit"),
    "POST /torrents/{info_hash}/multipliers/remove": Rule("operate", "torrent.edit"),
    "POST /torrents/{info_hash}/enable": Rule("operate", "torrent.edit"),
    "POST /torrents/{info_hash}/disable": Rule("operate", "torrent.edit"),
    "POST /torrents/{info_hash}/pend": Rule("operate", "torrent.edit"),
    "POST /torrents/{info_hash}/dht-lookup": Rule("operate", "torrent.dht_lookup"),
    "POST /torrents/{info_hash}/deny": Rule("operate", "denial.add"),
    "POST /torrents/{info_hash}/allow": Rule("operate", "denial.remove"),
    "POST /torrents/{info_hash}/remove": Rule("operate", "torrent.remove"),
    "POST /torrents/denied": Rule("operate", "denial.add"),
    "POST /torrents/denied/allow": Rule("operate", "denial.remove"),
    "POST /users": Rule("operate", "user.add"),
    "POST /users/bulk": Rule("operate", "user.bulk"),
    "POST /users/bulk/delete": Rule("admin", "user.bulk"),
    "POST /users/multipliers": Rule("admin", "multipliers.set"),
    "POST /users/multipliers/remove": Rule("admin", "multipliers.set"),
    "POST /users/lookup": Rule("operate"),
    "POST /users/groups": Rule("operate", "group.set"),
    "POST /users/groups/delete": Rule("operate", "group.delete"),
    "POST /users/{user_id}/edit": Rule("operate", "user.edit"),
    "POST /users/{user_id}/multipliers": Rule("operate", "user.edit"),
    "POST /users/{user_id}/multipliers/remove": Rule("operate", "user.edit"),
    "POST /users/{user_id}/freeleech": Rule("operate", "freeleech.give"),
    "POST /users/{user_id}/freeleech/revoke": Rule("operate", "freeleech.revoke"),
    "POST /users/{user_id}/passkey": Rule("operate"),
    "POST /users/{user_id}/rotate": Rule("operate", "user.rotate"),
    "POST /users/{user_id}/forgive": Rule("operate", "user.forgive"),
    "POST /users/{user_id}/delete": Rule("admin", "user.delete"),
    "POST /clients/allow": Rule("operate", "client.allow"),
    "POST /clients/disallow": Rule("operate", "client.disallow"),
    "POST /clients/deny": Rule("operate", "client.deny"),
    "POST /clients/undeny": Rule("operate", "client.undeny"),
    "POST /work": Rule("operate", "project.create"),
    "POST /work/{project}/settings": Rule("operate", "project.edit"),
    "POST /work/{project}/delete": Rule("admin", "project.delete"),
    "POST /work/{project}/items": Rule("operate", "items.add"),
    "POST /work/{project}/items/remove": Rule("operate", "items.remove"),
    "POST /work/{project}/items/purge": Rule("operate", "items.purge"),
    "POST /work/{project}/claims/release": Rule("operate", "claims.release"),
    "POST /work/blocked": Rule("operate", "block.add"),
    "POST /work/unblock": Rule("operate", "block.remove"),
    "POST /work/{project}/blocked": Rule("operate", "block.add"),
    "POST /work/{project}/unblock": Rule("operate", "block.remove"),
    "POST /world/update": Rule("operate", "places.update"),
    "POST /jobs/purge": Rule("operate", "jobs.purge"),
    "POST /jobs/reprocess": Rule("operate", "jobs.reprocess"),
    "POST /jobs/sweep": Rule("operate", "jobs.sweep"),
    "POST /jobs/{id}/retry": Rule("operate", "jobs.retry"),
    "GET /audit": Rule("admin"),
    "GET /tokens": Rule("admin"),
    "POST /tokens": Rule("admin", "token.create"),
    "POST /tokens/{token_id}/revoke": Rule("admin", "token.revoke"),
    "POST /sign-out": Rule("read"),
}

RULES: dict[str, Rule] = {**{key.replace(" ", " /api/v1", 1): rule for key, rule in _API.items()}, **_PAGES}
"""By method and route."""
