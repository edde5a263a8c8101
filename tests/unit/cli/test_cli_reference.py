"""Examples and the reference fit the parsers."""

import argparse
import shlex
from collections.abc import Iterator

import pytest

from odradek.cli.arguments.examples import examples_of
from odradek.cli.catalog import COMMANDS, load, parser_of
from odradek.cli.kcat.options import separated
from odradek.cli.main import joined, kcat_parser
from odradek.cli.reference import FILE, REGENERATE, is_shown, reference
from tests.unit.house.sources import ROOT

PARSERS = {**{name: parser_of(name, load(name)) for name in COMMANDS}, "kcat": kcat_parser()}
EXAMPLES = {
    name: [line for line in examples_of(parser) if not line.startswith("#")] for name, parser in PARSERS.items()
}


def command_lines(line: str) -> Iterator[list[str]]:
    """The calls of `odradek` in a line of shell, without what surrounds them."""
    words: list[str] = []
    lexer = shlex.shlex(line.replace("$(", " ; "), posix=True, punctuation_chars="|;<>()")
    lexer.whitespace_split = True
    for word in [*lexer, ";"]:
        if word[0] not in "|;<>()":
            words.append(word)
            continue
        if words[:1] == ["odradek"]:
            yield words[1:]
        words = []


def test_command_lines_are_found_in_shell():
    assert list(command_lines("printf 'odradek x' | odradek a -f '%t|' b:0,1 < f")) == [["a", "-f", "%t|", "b:0,1"]]
    assert list(command_lines("eval $(odradek b c)")) == [["b", "c"]]


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_examples_can_be_parsed(line: str):
    found = list(command_lines(line.replace('"', "") if "$(" in line else line))
    assert found
    for words in found:
        if words[0].startswith("-"):
            kcat_parser().parse(separated(words))
        else:
            parser_of(words[0], load(words[0])).parse(joined(words[1:]))


@pytest.mark.parametrize("name", PARSERS)
def test_every_command_has_examples(name: str):
    assert EXAMPLES[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_text(name: str):
    parser = parser_of(name, load(name))
    assert not [each.dest for each in parser._actions if is_shown(each) and not each.help]


def test_the_reference_is_up_to_date():
    assert (ROOT / FILE).read_text() == reference(), f"regenerate it: {REGENERATE}"


def test_rows_of_tables_keep_their_columns():
    assert isinstance(kcat_parser(), argparse.ArgumentParser)
    tables = [line for line in reference().splitlines() if line.startswith("| ")]
    assert not [line for line in tables if line.replace("\\|", "").count("|") != 3]
