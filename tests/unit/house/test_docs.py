"""What the documents name is there: tests, modules, sections of documents, commands and their options, settings."""

import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from odradek.cli.arguments.options import Parser
from odradek.cli.catalog import COMMANDS, load
from odradek.cli.main import kcat_parser
from odradek.client.config import ADMIN_DEFAULTS, CONSUMER_DEFAULTS, PRODUCER_DEFAULTS
from odradek.metadata.configs.catalog import GROUP, TOPIC, broker_definition
from tests.unit.house.sources import PACKAGE, ROOT

DOCUMENTS = (
    "README.md",
    "CONTRIBUTING.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
)
FILES = (".py", ".toml", ".properties", ".sqlite", ".checkpoint")
NO_SETTINGS = frozenset(("transaction.version", "odradek.sim", "os.sendfile", "odradek.format"))
"""What looks like a setting: a feature, a module, a function, a field of meta.properties."""


@cache
def text_of(document: str) -> str:
    return (ROOT / document).read_text()


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", text)


@cache
def paths() -> frozenset[str]:
    """Files and directories of the repository that documents speak of, relative to it."""
    tops = ("src", "tests", "bench", "examples", "docs", "requirements")
    found = [path for top in tops for path in (ROOT / top).rglob("*") if "__pycache__" not in path.parts]
    return frozenset(path.relative_to(ROOT).as_posix() for path in found)


def exists(pattern: str) -> bool:
    return pattern in paths() or any(fnmatch(path, pattern) for path in paths())


def rows(document: str) -> Iterator[list[str]]:
    """The cells of the rows of its tables."""
    for line in text_of(document).splitlines():
        if line.startswith("| ") and not line.startswith("|--"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_every_test_that_a_feature_names_exists() -> None:
    missing, named = [], 0
    for cells in rows("docs/FEATURES.md"):
        directory = ""
        for name in quoted(cells[-1]):
            if name.endswith(".py"):
                head, slash, tail = name.rpartition("/")
                directory = head if slash else directory
                named += 1
                if not exists(f"tests/{directory}/{tail}"):
                    missing.append(f"{cells[0]}: {directory}/{tail}")
            elif re.fullmatch(r"[a-z]+(/[a-z]+)*", name) and name != "long":
                directory = name.removeprefix("tests/")
                if not exists(f"tests/{directory}"):
                    missing.append(f"{cells[0]}: {name}")
    assert not missing
    assert named > 50, "are these still the tables?"


def test_every_feature_that_is_there_names_what_shows_it() -> None:
    claims = [cells for cells in rows("docs/FEATURES.md") if len(cells) == 3 and re.match(r"(yes|partly)\b", cells[1])]
    assert len(claims) > 50
    assert not [cells[0] for cells in claims if not quoted(cells[2])]


def test_every_module_of_the_architecture_exists() -> None:
    missing = []
    for name in quoted(text_of("docs/ARCHITECTURE.md")):
        module = name.partition(":")[0]
        inside = re.fullmatch(r"[a-z_]+/[\w*/-]+\.py", module)
        if inside and not exists(f"src/odradek/{module}") and not exists(module):
            missing.append(name)
    assert not missing


def test_the_map_names_every_package_and_what_is_in_it() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    mapped, missing = set(), []
    for cells in rows("docs/ARCHITECTURE.md"):
        package = cells[0].strip("`")
        if package not in packages:
            continue
        mapped.add(package)
        modules = [name for cell in cells[1:] for name in quoted(cell) if name.endswith(".py")]
        paths = [each if each.startswith(f"{package}/") else f"{package}/{each}" for each in modules]
        missing += [path for path in paths if not exists(f"src/odradek/{path.replace('NN', '*')}")]
    assert mapped == packages
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document: str) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(document)):
        if "://" in target:
            continue
        name, _, section = target.partition("#")
        path = (ROOT / document).parent / name if name else ROOT / document
        if not path.exists():
            broken.append(target)
        elif section:
            headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            if section not in anchors:
                broken.append(target)
    assert not broken


PUBLISHED = False
"""Whether the package index has Odradek: set it with the first release (docs/RELEASING.md)."""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_install_commands_work_from_a_clone_until_published(document: str) -> None:
    if document != "docs/RELEASING.md" and not PUBLISHED:
        assert not re.findall(r"pip install [^`\n]*odradek\[", text_of(document))


def test_readme_examples_define_every_name(tmp_path: Path) -> None:
    examples = re.findall(r"```python\n(.*?)```", text_of("README.md"), re.DOTALL)
    assert len(examples) >= 3
    for number, example in enumerate(examples):
        (tmp_path / f"example{number}.py").write_text(example)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--isolated",
            "--select",
            "F821,E9",
            "--output-format",
            "concise",
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@cache
def options_of(command: str) -> frozenset[str]:
    parser = Parser()
    load(command).configure(parser)
    return frozenset(option for action in parser._actions for option in action.option_strings)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_commands_and_their_options_exist(document: str) -> None:
    wrong = []
    text = text_of(document).replace("\\\n", " ")
    blocks = [*quoted(text), *re.findall(r"^    (?:.*\| *)?(odradek .*)$", text, re.MULTILINE)]
    of_kcat = {option for action in kcat_parser()._actions for option in action.option_strings}
    for line in blocks:
        if re.match(r"odradek -[A-Za-z]\b", line):
            wrong += [f"{line}: {each}" for each in re.findall(r"(?<!\S)(-[A-Za-z])", line) if each not in of_kcat]
            continue
        match = re.match(r"odradek ([a-z|-]+)(.*)", line)
        if match is None or line.startswith(("odradek ready", "odradek --version")):
            continue
        for command in match[1].split("|"):
            if command not in COMMANDS:
                wrong.append(line)
                continue
            given = re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", match[2].partition("#")[0].partition(" | ")[0])
            wrong += [f"{line}: {option}" for option in given if option not in options_of(command)]
    assert not wrong


@pytest.mark.parametrize(
    "document", ["docs/STORAGE.md", "docs/CLUSTER.md", "docs/ARCHITECTURE.md", "docs/RELIABILITY.md"]
)
def test_settings_are_kafkas_or_ours(document: str) -> None:
    of_clients = {
        name.replace("_", ".") for each in (ADMIN_DEFAULTS, CONSUMER_DEFAULTS, PRODUCER_DEFAULTS) for name in each
    }
    known = NO_SETTINGS | of_clients | TOPIC.keys() | GROUP.keys()
    names = {name.partition("=")[0] for name in quoted(text_of(document))}
    settings = {name for name in names if re.fullmatch(r"[a-z]+(\.[a-z]+)+", name) and not name.endswith(FILES)}
    assert not {name for name in settings - known if broker_definition(name) is None}
