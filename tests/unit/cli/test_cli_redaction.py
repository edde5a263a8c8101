"""Secrets that `odradek debug bundle` removes."""

from __future__ import annotations

import pytest

from odradek.cli.actions.redaction import REDACTED, redact, redact_setting


@pytest.mark.parametrize(
    "text",
    [
        "ssl.key.password=hunter2",
        'ScramLoginModule required username="a" password="hunter2 with words";',
        '{"client_secret": "hunter2", "user": "a"}',
        r'"event": "{\"password\": \"hunter2\"}"',
        "Authorization: Bearer hunter2.x",
        "token eyJhbunter2.eyJhunter2.hunter2",
        "jdbc://someone:hunter2@host/db",
        "odradek users --password hunter2",
        "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2",
        "hunter2\nAAAA=\n-----END PRIVATE KEY-----",
    ],
)
def test_secret_is_removed_from_text(text: str) -> None:
    shown = redact(text)
    assert "hunter2" not in shown
    assert REDACTED in shown


@pytest.mark.parametrize("text", ["topic orders-3: 5 records", 'request="DescribeDelegationToken",quantile="0.5"} 1'])
def test_text_without_a_secret_is_unchanged(text: str) -> None:
    assert redact(text) == text


def test_setting_is_removed_by_its_name() -> None:
    assert redact_setting("ssl.keystore.password", "hunter2") == REDACTED
    assert redact_setting("log.dirs", "/data") == "/data"
    assert redact_setting("password", None) is None
