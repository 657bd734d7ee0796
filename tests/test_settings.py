"""The settings themselves: fields, lists, and that they are frozen."""

import pytest
from pydantic import ValidationError

from tracker.settings import FIELDS, HttpSettings, LogSettings, RedisSettings, Settings, variable


def test_a_section_is_frozen_and_takes_nothing_unknown() -> None:
    with pytest.raises(ValidationError):
        Settings().log.level = "debug"  # type: ignore[misc]  # what is tested
    with pytest.raises(ValidationError):
        LogSettings.model_validate({"lvl": "debug"})


def test_a_list_may_be_written_as_text() -> None:
    written = HttpSettings.model_validate({"listen": "[::]:80, unix:/run/x", "trusted_proxies": "10.0.0.0/8"})
    assert written.listen == ("[::]:80", "unix:/run/x")
    assert str(written.trusted_proxies[0]) == "10.0.0.0/8"


@pytest.mark.parametrize("prefix", ["", "t", "t:*:", "t 1:", ":" * 65])
def test_a_prefix_ends_with_a_colon_and_holds_no_pattern(prefix: str) -> None:
    with pytest.raises(ValidationError):
        RedisSettings(prefix=prefix)


def test_every_setting_has_a_sentence_and_a_variable_of_its_own() -> None:
    sentences = [field.description or "" for field in FIELDS.values()]
    assert all(sentence.endswith(".") for sentence in sentences)
    assert len({variable(*field) for field in FIELDS}) == len(FIELDS)
