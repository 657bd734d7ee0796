import pytest
from pydantic import SecretStr, ValidationError

from tracker.settings.model import Settings, values_of, with_values
from tracker.settings.reference import describe
from tracker.settings.site import MAX_WEBHOOKS, ChangeSettings

HOOK = {"max_entries": 9, "webhook_urls": "https://site.example/hook/?key=hunter2", "webhook_secret": "hunter2" * 3}


def test_webhooks_keep_their_urls_as_they_are() -> None:
    found = Settings.model_validate({"changes": HOOK}).changes
    assert [url.get_secret_value() for url in found.webhook_urls] == [HOOK["webhook_urls"]]


def test_each_url_has_a_secret_of_its_own() -> None:
    hooks = HOOK | {"webhook_urls": "https://h/1,https://h/2,https://h/3", "webhook_secrets": f"{'b' * 16},{'c' * 16}"}
    found = Settings.model_validate({"changes": hooks}).changes.receivers
    assert found == {"https://h/1": "hunter2" * 3, "https://h/2": "b" * 16, "https://h/3": "c" * 16}


def test_secrets_without_urls_are_allowed() -> None:
    hooks = {"webhook_secret": "a" * 16, "webhook_secrets": "b" * 16}
    assert Settings.model_validate({"changes": hooks}).changes.receivers == {}


@pytest.mark.parametrize(
    "change",
    [
        {"max_entries": -1},
        {"webhook_secret": None},
        {"webhook_secret": ""},
        {"webhook_secret": "hunter2"},
        {"webhook_urls": "ftp://hunter2/"},
        {"webhook_urls": "https://hunter2@h/"},
        {"webhook_urls": "https:///hunter2"},
        {"webhook_urls": "https://h/#hunter2"},
        {"webhook_urls": "https://h/hunter2 x"},
        {"webhook_urls": "https://h:x/hunter2"},
        {"webhook_urls": "https://h/hunter2,https://h/hunter2", "webhook_secrets": "hunter2-" * 3},
        {"webhook_urls": "https://h/1,https://h/2"},
        {"webhook_urls": "https://h/1,https://h/2", "webhook_secrets": "hunter2"},
        {"webhook_urls": "https://h/1,https://h/2", "webhook_secrets": "hunter2" * 3},
        {"webhook_secrets": "hunter2-" * 3},
        {"webhook_urls": ",".join(f"https://h/hunter2/{n}" for n in range(MAX_WEBHOOKS + 1))},
    ],
    ids=str,
)
def test_incomplete_and_wrong_webhooks_are_refused_without_showing_them(change: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"changes": {**HOOK, **change}})
    for error in caught.value.errors(include_input=False, include_context=False):
        assert "hunter2" not in error["msg"]


def test_webhooks_need_the_feed() -> None:
    (line,) = Settings.model_validate({"changes": {**HOOK, "max_entries": 0}}).contradictions()
    assert line == "changes: TRACKER_CHANGES__WEBHOOK_URLS needs TRACKER_CHANGES__MAX_ENTRIES"


def test_secrets_are_masked() -> None:
    settings = Settings.model_validate({"changes": HOOK})
    shown = {row.name: row.value for row in describe(settings)}
    assert shown["TRACKER_CHANGES__WEBHOOK_URLS"] == shown["TRACKER_CHANGES__WEBHOOK_SECRET"] == "***"
    assert "hunter2" not in repr(settings)


def test_a_reload_may_turn_the_feed_off_before_a_restart_drops_the_webhooks() -> None:
    before = Settings.model_validate({"changes": HOOK})
    after = with_values(before, values_of(Settings(changes=ChangeSettings(max_entries=0))))
    assert (after.changes.max_entries, after.changes.webhook_secret) == (0, SecretStr("hunter2" * 3))
