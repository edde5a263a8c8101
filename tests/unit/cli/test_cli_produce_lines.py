"""How `odradek produce` cuts its input into records."""

import asyncio
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.arguments import options
from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.options import Parser
from odradek.cli.commands import produce


def records(data: bytes, end: bytes, chunk_bytes: int) -> list[bytes]:
    async def read(descriptor: int) -> list[bytes]:
        return [each async for each in produce.lines(descriptor, end=end)]

    with tempfile.TemporaryFile() as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce, "_CHUNK_BYTES", chunk_bytes)
        file.write(data)
        file.seek(0)
        return asyncio.run(read(file.fileno()))


@given(
    st.lists(st.sampled_from([b"a", b"b", b"ab", b"\r", b"\n"]), max_size=12),
    st.sampled_from([b"\n", b"ab", b"aab", b"aa"]),
    st.integers(1, 6),
)
def test_records_do_not_depend_on_chunks(parts: list[bytes], end: bytes, chunk_bytes: int):
    data = b"".join(parts)
    assert records(data, end, chunk_bytes) == records(data, end, 1_000)


def test_lines_lose_their_carriage_return():
    assert records(b"a\r\nb\n\nc", b"\n", 100) == [b"a", b"b", b"", b"c"]


def test_other_delimiters_keep_carriage_returns():
    assert records(b"a\r;b\n;c;", b";", 100) == [b"a\r", b"b\n", b"c"]


@pytest.mark.parametrize(("text", "expected"), [(r"\t", "\t"), (r"\x1e|\n", "\x1e|\n"), (":", ":"), (r"\\n", r"\n")])
def test_delimiters_are_written_with_escapes(text: str, expected: str):
    assert options.delimiter(text) == expected


@pytest.mark.parametrize("text", [r"\q", r"\xff", r"\x1", ""])
def test_a_delimiter_with_an_unknown_escape_is_rejected(text: str):
    parser = Parser()
    parser.add_argument("-D", type=options.delimiter)
    with pytest.raises(UsageError):
        parser.parse(["-D", text])


def test_headers_of_one_name_are_all_sent() -> None:
    assert produce.headers_of(["a=1", "b=x=y", "a=2"]) == [("a", b"1"), ("b", b"x=y"), ("a", b"2")]
