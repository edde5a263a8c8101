"""What `odradek configs --alter` prints."""

import argparse
import json

import pytest

from odradek.cli.arguments.config_entities import Entity, show_altered


def test_document_of_a_change_has_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    changes = {
        "ssl.keystore.password": "hunter2",
        "listener.name.clients.plain.sasl.jaas.config": "hunter2",
        "log.retention.ms": "1000",
        "ssl.key.password": None,
    }
    show_altered(argparse.Namespace(output="json"), [Entity("brokers", "1")], changes)
    text = capsys.readouterr().out
    assert "hunter2" not in text
    assert json.loads(text)["configs"] == {
        **dict.fromkeys(list(changes)[:2], "********"), "log.retention.ms": "1000", "ssl.key.password": None
    }  # fmt: skip
