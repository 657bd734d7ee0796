"""Checks of the machine for UDP."""

from pathlib import Path
from typing import Any

import pytest

from tracker.doctor.settings_checks import check_udp
from tracker.settings.model import Settings


def levels(system: Path, **sections: Any) -> list[tuple[str, str]]:
    return [(found.level, found.subject) for found in check_udp(Settings.model_validate(sections), system)]


@pytest.mark.parametrize(("granted", "level"), [("212992", "warning"), ("4194304", "ok"), ("unreadable", "ok")])
def test_a_small_receive_buffer_is_a_warning(tmp_path: Path, granted: str, level: str) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core/rmem_max").write_text(f"{granted}\n")
    assert levels(tmp_path) == [(level, "udp")]
    assert levels(tmp_path, udp={"receive_buffer_bytes": 4096}) == [("ok", "udp")]


def test_connection_tracking_is_named(tmp_path: Path) -> None:
    (tmp_path / "netfilter").mkdir()
    (tmp_path / "netfilter/nf_conntrack_max").write_text("65536\n")
    assert levels(tmp_path) == [("ok", "udp"), ("ok", "udp firewall")]


@pytest.mark.parametrize(("listen", "found"), [("0.0.0.0:1", True), ("[::]:1", True), ("192.0.2.7:1", False)])
def test_all_addresses_are_a_warning_where_replies_may_come_from_another(
    tmp_path: Path, listen: str, found: bool
) -> None:
    settings = Settings.model_validate({"udp": {"listen": [listen, "0.0.0.1:1" if found else "1.1.1.1:1"]}})
    for knows, expected in ((True, False), (False, found)):
        findings = list(check_udp(settings, tmp_path, knows_destination=knows))
        assert ("udp addresses" in [each.subject for each in findings]) == expected


@pytest.mark.parametrize(
    "sections", [{"udp": {"listen": "off"}}, {"udp": {"listen": "127.0.0.1:6969"}}, {"users": {"private": "required"}}]
)
def test_nothing_is_checked_where_udp_is_off_or_local(tmp_path: Path, sections: dict[str, Any]) -> None:
    assert levels(tmp_path, **sections) == []
