import json

from openapi_spec_validator import validate

from tests.admin.api.asking import Program
from tests.admin.conftest import Admin
from tracker.admin.api import GROUPS
from tracker.admin.api.openapi import document

DOCUMENT = document(GROUPS)
OPERATIONS = [
    (path, method, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


def test_it_is_openapi_3_1() -> None:
    assert DOCUMENT["openapi"].startswith("3.1.")
    validate(DOCUMENT)


def test_every_endpoint_is_in_it_once() -> None:
    declared = [endpoint for group in GROUPS for endpoint in group.all]
    assert len(OPERATIONS) == len(declared)
    assert len({operation["operationId"] for _, _, operation in OPERATIONS}) == len(declared)
    assert len({endpoint.name for endpoint in declared}) == len(declared)


def test_every_operation_says_what_it_needs_and_refuses() -> None:
    for path, method, operation in OPERATIONS:
        where = f"{method} {path}"
        assert operation["summary"] and operation["tags"], where
        assert {"401", "403", "422", "429", "503"} <= operation["responses"].keys(), where
        assert ("404" in operation["responses"]) == ("{" in path), where
        assert ("415" in operation["responses"]) == ("requestBody" in operation), where
        assert operation["x-scope"] == "full" or method == "get", where


def test_every_reference_leads_somewhere() -> None:
    text = json.dumps(DOCUMENT)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in DOCUMENT["components"]["schemas"]


def test_bounds_of_parameters_are_described() -> None:
    for path, _, operation in OPERATIONS:
        for parameter in operation.get("parameters", ()):
            if parameter["schema"].get("type") == "integer":
                assert {"minimum", "maximum"} <= parameter["schema"].keys(), f"{path} {parameter['name']}"


async def test_it_is_served_to_readers(admin: Admin, reader: Program) -> None:
    async with reader.session.get("/api/openapi.json") as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert await answer.json() == json.loads(json.dumps(DOCUMENT))
    async with admin.client() as nobody:
        async with nobody.get("/api/openapi.json") as answer:
            assert answer.status == 401
