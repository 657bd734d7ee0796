"""A user and a torrent with every field that programs set, as the API and files write them."""

from collections.abc import Mapping
from typing import Any

USER: Mapping[str, Any] = {
    "enabled": False,
    "can_leech": False,
    "reason": "=unpaid",
    "upload_multiplier": 2.5,
    "upload_multiplier_until": 1_900_000_000,
    "download_multiplier": 0,
    "download_multiplier_until": 1_900_000_001,
    "max_downloads": 3,
    "hnr_exempt": True,
    "visible": False,
    "group": 20,
    "name": "-Alice",
    "uploaded": 2**53 - 1,
    "downloaded": 5,
    "snatches": 6,
    "announces": 7,
    "credit_cut": 8,
}
TORRENT: Mapping[str, Any] = {
    "name": "@one",
    "enabled": False,
    "reason": "+taken down",
    "private": True,
    "upload_multiplier": 0.000001,
    "upload_multiplier_until": 1_900_000_000,
    "download_multiplier": 0.5,
    "download_multiplier_until": 1_900_000_001,
    "size": 2**53 - 1,
    "labels": "films hd",
    "hybrid_of": "cd" * 20,
}
