import json

from tests.admin.api.api_client import ApiClient
from tests.admin.conftest import Admin
from tracker.admin.api import GROUPS
from tracker.admin.api.openapi import document
from tracker.store.stats.slices import PRECISIONS

DOCUMENT = document(GROUPS)
OPERATIONS = [
    (path, method, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
]


def test_the_document_is_valid_openapi_3_1() -> None:
    from openapi_spec_validator import validate  # noqa: PLC0415  # each process of a run would take two seconds for it

    assert DOCUMENT["openapi"].startswith("3.1.")
    validate(DOCUMENT)


def test_the_description_says_how_to_name_the_sources_of_places() -> None:
    """Their licences ask for it."""
    for source in ("https://db-ip.com", "https://www.maxmind.com"):
        assert source in DOCUMENT["info"]["description"]


def test_every_endpoint_is_in_the_document_once() -> None:
    declared = [endpoint for group in GROUPS for endpoint in group.all]
    assert len(OPERATIONS) == len(declared)
    assert len({operation["operationId"] for _, _, operation in OPERATIONS}) == len(declared)
    assert len({endpoint.name for endpoint in declared}) == len(declared)


OPERATION_IDS = """
    audit_list_all changes_list_all changes_webhooks clients_allow clients_deny clients_disallow
    clients_list_all clients_list_denied clients_software clients_undeny denials_allow denials_deny
    denials_list_all dht_hashes dht_list_all dht_look_up dht_lookups exports_audit_as_csv
    exports_audit_as_json_lines exports_peers exports_torrents_as_csv exports_torrents_as_json_lines
    exports_user_torrents exports_users_as_csv exports_users_as_json_lines freeleech_give freeleech_list_all
    freeleech_take_back groups_delete groups_edit groups_list_all groups_replace groups_show history_chart
    jobs_limit jobs_list_all jobs_purge jobs_queues jobs_reprocess jobs_retry jobs_show jobs_sweep
    multipliers_replace multipliers_show rules_of_all rules_of_torrent rules_of_user rules_remove_of_all
    rules_remove_of_torrent rules_remove_of_user rules_set_of_all rules_set_of_torrent rules_set_of_user
    scores_lag scores_ranking statistics_counter statistics_counters statistics_distribution
    statistics_distributions statistics_refusals statistics_statistics system_examine system_health
    system_settings tokens_create tokens_list_all tokens_revoke torrents_batch torrents_create torrents_edit
    torrents_file torrents_history torrents_list_all torrents_peers torrents_remove torrents_show
    torrents_uniques torrents_upload uniques_figure uniques_top user_torrents_batch users_batch users_create
    users_delete users_edit users_forgive users_forgive_one users_hit_and_runs users_list_all users_lookup
    users_pending_hit_and_runs users_rotate users_show users_torrents users_unregistered work_blocked_block
    work_blocked_block_everywhere work_blocked_list_all work_blocked_list_everywhere work_blocked_log
    work_blocked_unblock work_blocked_unblock_everywhere work_claims_list_all work_claims_release work_create
    work_delete work_edit work_items_add work_items_add_list work_items_list_all work_items_purge
    work_items_remove work_items_show work_list_all work_policy_preview work_results_leaderboard
    work_results_log work_show
"""


def test_operation_ids_are_those_that_generated_clients_use() -> None:
    assert sorted(operation["operationId"] for _, _, operation in OPERATIONS) == OPERATION_IDS.split()


def test_names_of_schemas_have_no_paths_of_modules() -> None:
    """Two models of one name would get them, and generated clients would change with every move of a model."""
    assert not [name for name in DOCUMENT["components"]["schemas"] if "__" in name]


def test_every_operation_names_its_role_and_errors() -> None:
    for path, method, operation in OPERATIONS:
        where = f"{method} {path}"
        assert operation["summary"] and operation["tags"], where
        assert {"401", "403", "422", "429", "503"} <= operation["responses"].keys(), where
        assert ("404" in operation["responses"]) == ("{" in path or path.endswith("/lookup")), where
        assert ("415" in operation["responses"]) == ("requestBody" in operation), where
        assert operation["x-role"] != "read" or method == "get", where


def test_every_reference_has_a_target() -> None:
    text = json.dumps(DOCUMENT)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in DOCUMENT["components"]["schemas"]


def test_a_body_has_one_type_so_that_generated_clients_import() -> None:
    """For two types, openapi-python-client 0.29 generates a union with a type that it does not import."""
    bodies = [operation["requestBody"] for _, _, operation in OPERATIONS if "requestBody" in operation]
    assert bodies
    assert [len(body["content"]) for body in bodies] == [1] * len(bodies)


def test_a_precision_is_an_enumeration_of_integers() -> None:
    schemas = [
        parameter["schema"]
        for _, _, operation in OPERATIONS
        for parameter in operation.get("parameters", ())
        if parameter["name"] == "precision"
    ]
    models = DOCUMENT["components"]["schemas"].values()
    responses = [model["properties"]["precision"] for model in models if "precision" in model.get("properties", ())]
    assert len(schemas) == len(responses) == 2
    for schema in (*schemas, *responses):
        assert (schema["type"], schema["enum"]) == ("integer", list(PRECISIONS))
    assert {schema["default"] for schema in schemas} == {60}


def test_bounds_of_parameters_are_described() -> None:
    for path, _, operation in OPERATIONS:
        for parameter in operation.get("parameters", ()):
            if parameter["schema"].get("type") == "integer" and "enum" not in parameter["schema"]:
                assert {"minimum", "maximum"} <= parameter["schema"].keys(), f"{path} {parameter['name']}"


async def test_the_document_needs_role_read(admin: Admin, reader: ApiClient) -> None:
    async with reader.session.get("/api/openapi.json") as response:
        assert (response.status, response.content_type) == (200, "application/json")
        assert await response.json() == json.loads(json.dumps(DOCUMENT))
    async with admin.client() as nobody:
        async with nobody.get("/api/openapi.json") as response:
            assert response.status == 401
