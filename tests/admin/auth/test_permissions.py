"""The routes and their roles. tests/admin/test_routes.py requests every route in every role."""

from tests.admin.conftest import Admin
from tracker.admin.auth.auth import RULES, SAFE_METHODS, Rule, rule_of
from tracker.admin.server import make_app


def test_what_is_not_in_the_table_is_readable_and_cannot_be_changed() -> None:
    assert rule_of("GET", "/anything") == rule_of("HEAD", "/anything") == Rule("read")
    assert rule_of("POST", "/anything") is None
    assert rule_of("HEAD", "/tokens") == rule_of("GET", "/api/v1/tokens") == Rule("admin")


async def test_every_rule_belongs_to_a_route_and_every_change_has_a_rule(admin: Admin) -> None:
    app = make_app(admin.context, admin.context.settings.admin, admin.addresses)
    routes = {f"{route.method} {route.resource.canonical}" for route in app.router.routes() if route.resource}
    assert set(RULES) <= routes
    changes = {route for route in routes if route.split()[0] not in SAFE_METHODS}
    assert changes - {"POST /sign-in"} <= set(RULES)


def test_only_admins_delete_users_and_projects_change_what_is_for_all_users_and_see_tokens_and_the_log() -> None:
    admins = {route.replace("/api/v1", "") for route, rule in RULES.items() if rule.role == "admin"}
    assert admins == {
        "DELETE /users/{user_id}",
        "POST /users/{user_id}/delete",
        "POST /users/bulk/delete",
        "DELETE /work/projects/{project}",
        "POST /work/{project}/delete",
        "PUT /multipliers",
        "PUT /multipliers/rules/{name}",
        "DELETE /multipliers/rules/{name}",
        "POST /users/multipliers",
        "POST /users/multipliers/remove",
        "GET /tokens",
        "POST /tokens",
        "DELETE /tokens/{token_id}",
        "POST /tokens/{token_id}/revoke",
        "GET /audit",
        "GET /audit/csv",
        "GET /audit/json-lines",
    }
