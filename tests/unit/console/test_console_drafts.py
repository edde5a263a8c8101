"""The form that writes a stored record again sends what it had."""

import pytest

from odradek.client.model import CREATE_TIME, ConsumerRecord
from odradek.console.messages.masks import RawRecord
from odradek.console.pages.produce import content, draft_of, has_headers, headers_of

Headers = list[tuple[str, bytes | None]]


def record(headers: Headers, key: bytes | None = None, value: bytes | None = None) -> RawRecord:
    return ConsumerRecord("t", 0, 0, 1000, CREATE_TIME, key, value, headers, 7)


def submitted(text: str) -> str:
    """A text area as browsers send it."""
    return text.replace("\n", "\r\n")


@pytest.mark.parametrize(
    "headers",
    [
        [("null", None), ("empty", b""), ("null", None)],
        [("a", b"1"), ("a", b"=x"), ("hex", b"hex:00"), ("bytes", b"\xff\x00")],
        [("lines", b"a\nb"), ("separators", "a\u2028b\x85c\x0bd".encode()), ("return", b"a\rb")],
        [(" space ", b" v ")],
    ],
)
def test_headers_of_a_stored_record_are_sent_again(headers: Headers) -> None:
    """A null header became an empty one, and some characters began another header."""
    draft = draft_of(record(headers))
    assert headers_of(submitted(draft.headers)) == headers
    assert has_headers(draft, record(headers))


@pytest.mark.parametrize("name", ["a=b", "a\nb", ""])
def test_header_that_the_form_cannot_have_is_noticed(name: str) -> None:
    stored = record([(name, b"v")])
    assert not has_headers(draft_of(stored), stored)


@pytest.mark.parametrize("data", [None, b"", b"\xff", b"a\r\nb", "\u2028\x0b".encode(), b"\n a\n"])
def test_keys_and_values_are_sent_again(data: bytes | None) -> None:
    draft = draft_of(record([], data, data))
    assert content(submitted(draft.key), draft.key_form, "key") == data
    assert content(submitted(draft.value), draft.value_form, "value") == data
