"""Names of hosts in Host headers."""

from __future__ import annotations

import pytest

from odradek.ports.hosts import host_of_header


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("LocalHost:8080", "localhost"),
        ("[::1]:8080", "::1"),
        ("example.org", "example.org"),
        ("", ""),
        ("a:1:2", "a:1:2"),
    ],
)
def test_host_is_read_from_header(header: str, host: str) -> None:
    assert host_of_header(header) == host
