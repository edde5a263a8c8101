"""Log lines that carry what clients sent."""

from __future__ import annotations

import json
import logging

import pytest

from odradek.broker.log_output import TEXT_FORM, JsonFormatter, LineFormatter, configure_logging, escaped

FORGED = "me\n2026-01-01 00:00:00,000 INFO odradek.broker: user admin logged in"
HOSTILE = ["\n", "\r", "\x1b[2J", "\x00", "\x7f", "\x9b", "\u2028", "\x85", "\u202e", "\udc80"]


def record(message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("odradek.broker", logging.INFO, __file__, 1, message, arguments, exc_info)


def raised(text: str) -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_newline_in_client_id_forges_no_line() -> None:
    text = LineFormatter(TEXT_FORM).format(record("client %s is throttled", FORGED))
    assert text.count("\n") == 0
    assert "client me\\n2026-01-01" in text


@pytest.mark.parametrize("character", HOSTILE)
def test_hostile_characters_are_escaped_in_lines(character: str) -> None:
    text = LineFormatter(TEXT_FORM).format(record("topic %s", f"a{character}b"))
    assert character not in text
    assert len(text.splitlines()) == 1
    text.encode("utf-8")


@pytest.mark.parametrize("character", HOSTILE)
def test_hostile_characters_are_escaped_in_json(character: str) -> None:
    text = JsonFormatter().format(record("topic %s", f"a{character}b"))
    assert character not in text
    assert len(text.splitlines()) == 1
    assert json.loads(text.encode("utf-8"))["message"] == f"topic a{character}b"


def test_ordinary_names_are_logged_as_they_are() -> None:
    assert escaped("Bestellungen-größe \\ 注文 🙂") == "Bestellungen-größe \\ 注文 🙂"


def test_message_of_exception_forges_no_line() -> None:
    text = LineFormatter(TEXT_FORM).format(record("request failed", error=raised(FORGED)))
    first, *traceback = text.split("\n")
    assert first.endswith("INFO odradek.broker: request failed")
    assert traceback[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in traceback)


def test_fields_of_a_logging_call_are_fields_in_json() -> None:
    event = record("slow")
    event.__dict__["fields"] = {"api": "Produce", "client_id": FORGED}
    entry = json.loads(JsonFormatter().format(event))
    assert (entry["api"], entry["client_id"], entry["message"]) == ("Produce", FORGED, "slow")


def test_exception_in_json_forges_no_line() -> None:
    text = JsonFormatter().format(record("request failed", error=raised(FORGED)))
    assert "\n" not in text
    assert json.loads(text)["exception"].endswith(FORGED)


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("name", ["odradek.client", "kafka.authorizer.logger", "kazoo.client", "asyncio"])
def test_every_logger_of_a_broker_escapes(form: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", form)
    logging.getLogger(name).warning("connection of %s is closed", FORGED)
    written = capsys.readouterr().err
    assert "admin logged in" in written
    assert written.count("\n") == 1
