"""The sections of settings: fields, lists, bounds."""

import pytest
from pydantic import ValidationError

from tracker.settings.background import StatHatSettings, StatsDSettings
from tracker.settings.model import FIELDS, RedisSettings, Settings, variable
from tracker.settings.public import AnnounceSettings, HttpSettings, UdpSettings
from tracker.settings.reference import sentences
from tracker.settings.site import LogSettings


def test_a_section_is_frozen_and_refuses_unknown_fields() -> None:
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


def test_every_setting_has_a_description_and_a_unique_variable() -> None:
    assert sentences().keys() == FIELDS.keys()
    assert all(sentence.endswith(".") for sentence in sentences().values())
    assert len({variable(*field) for field in FIELDS}) == len(FIELDS)


def test_every_number_has_a_maximum() -> None:
    """The store's scripts compute with doubles, and no key can expire after 2^63 ms."""
    numbers = {name: field for name, field in FIELDS.items() if field.annotation in (int, float, int | None)}
    assert len(numbers) > 35
    assert not [name for name, field in numbers.items() if not any(hasattr(m, "le") for m in field.metadata)]


def test_statistics_go_to_one_server() -> None:
    stathat, statsd = {"ezkey": "hidden"}, {"address": "[::1]:8125"}
    assert Settings.model_validate({"stathat": stathat}).stathat.ezkey
    assert Settings.model_validate({"statsd": statsd}).statsd.endpoint == ("::1", 8125)
    assert StatsDSettings().endpoint is None
    (line,) = Settings.model_validate({"statsd": statsd, "stathat": stathat}).contradictions()
    assert "choose one" in line and "hidden" not in line
    assert not Settings().contradictions()


@pytest.mark.parametrize("prefix", ["t:", "t:{t}:", "{t}.x-y_z:"])
def test_a_prefix_may_have_a_hash_tag(prefix: str) -> None:
    assert RedisSettings(prefix=prefix).prefix == prefix


@pytest.mark.parametrize("prefix", ["a~b", "a\n", "x" * 61])
def test_a_prefix_of_statistics_has_the_rules_of_names(prefix: str) -> None:
    for section in (StatHatSettings, StatsDSettings):
        with pytest.raises(ValidationError):
            section.model_validate({"prefix": prefix})


@pytest.mark.parametrize("text", ["", "6881", "22, 6881", "[1,65535]"])
def test_untold_ports_are_a_list_of_numbers(text: str) -> None:
    numbers = [int(number) for number in text.strip("[]").split(",") if number]
    assert AnnounceSettings.model_validate({"untold_ports": text}).untold_ports == tuple(numbers)


@pytest.mark.parametrize("text", ["0", "65536", "x", "6881-6889", ",".join(map(str, range(1, 66)))])
def test_other_untold_ports_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        AnnounceSettings.model_validate({"untold_ports": text})


@pytest.mark.parametrize("text", ["auto", "off", "0.0.0.0:6969,[::]:6969"])
def test_udp_listens_automatically_not_at_all_or_on_addresses(text: str) -> None:
    assert UdpSettings.model_validate({"listen": text}).listen == tuple(text.split(","))


@pytest.mark.parametrize("text", ["auto,off", "auto,0.0.0.0:1", "unix:/run/t", "0.0.0.0", "[]"])
def test_other_udp_addresses_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        UdpSettings.model_validate({"listen": text})
