"""`odradek console` and `odradek serve --console` as processes, and the commands of docs/CONSOLE.md."""

import os
import shlex
import signal
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest

from odradek.cli.catalog import load, parser_of
from odradek.cli.main import main
from odradek.console.server import NICENESS
from odradek.testing.blocking import BlockingBroker


def url_of(process: subprocess.Popen[str]) -> str:
    """The address in the line that says that the console serves."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("odradek console ready url="):
            return line.split("url=")[1].split()[0]
    raise AssertionError("the console did not start")


def test_console_serves_until_sigterm(broker: BlockingBroker) -> None:
    command = [sys.executable, "-m", "odradek.cli.main", "console", "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, "-b", broker.bootstrap_servers], stdout=subprocess.PIPE, text=True) as process:
        with urllib.request.urlopen(url_of(process)) as response:
            assert "Overview" in response.read().decode()
        # Where processors are busy, brokers and producers of this machine come first.
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_serve_starts_a_console_that_ends_with_it(tmp_path: Path) -> None:
    """The console plots the figures of the broker's HTTP listener."""
    command = [sys.executable, "-m", "odradek.cli.main", "serve", "--data-dir", str(tmp_path)]
    command += ["--listen", "127.0.0.1:0", "--set", "odradek.http.listener=127.0.0.1:0", "--console", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        url = url_of(process)
        with urllib.request.urlopen(url) as response:
            assert "Overview" in response.read().decode()
        with urllib.request.urlopen(f"{url}c/cluster/metrics") as response:
            assert "Delay of the event loop" in response.read().decode()
        with urllib.request.urlopen(f"{url}c/cluster/clients") as response:
            assert "by what they call their software" in response.read().decode()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--listen", "0.0.0.0:0"], "--allow-anonymous"),
        (["--listen", "8080"], "HOST:PORT expected"),
        (["--cluster", "a=h:1", "--cluster", "a=h:1"], "is given twice"),
        (["--cluster", "a/b=h:1"], "NAME=HOST:PORT"),
        (["--cluster", "a=h:1", "-b", "h:1"], "exclude each other"),
        (["--mask", "x:body"], "TOPIC:value.FIELD"),
        (["--mask-file", os.devnull + "/x"], "--mask-file"),
        (["--login"], "security.protocol"),
        (["--oidc-client-id", "c"], "--oidc-client-id needs --oidc-issuer"),
        (["--login", "--oidc-issuer", "https://i.example"], "--oidc-client-id"),
        (["--oidc-issuer", "https://i.example", "--oidc-client-id", "c"], "--oidc-issuer needs --login"),
        (["--oidc-issuer", "https://i", "--oidc-client-secret-file", "/missing"], "--oidc-client-secret-file /missing"),
        (["--schema", "orders=missing.avsc"], "--schema orders=missing.avsc: No such file"),
        (["--schema", "orders"], "TOPIC=FILE.avsc"),
        (["--metrics", "x"], "HOST:PORT expected"),
        (["--metrics", "other=h:1"], "NAME of a cluster"),
        (["--metrics", "file:///etc/passwd"], "--metrics file:///etc/passwd"),
        (["--metrics", "h:1", "--cluster", "a=h:1", "--cluster", "b=h:1"], "with several clusters"),
    ],
)
def test_wrong_options_are_one_line(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("package", "options", "extra"),
    [
        ("fastavro", ["--schema", "orders=FILE"], "formats"),
        ("jwt", ["--login", "--oidc-issuer", "https://i.example", "--oidc-client-id", "c"], "oauth"),
    ],
)
def test_missing_package_is_named_with_its_extra(
    package: str,
    options: list[str],
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text('{"type": "record", "name": "order", "fields": [{"name": "id", "type": "int"}]}')
    monkeypatch.setitem(sys.modules, package, None)
    assert main(["console", *(each.replace("FILE", str(schema)) for each in options)]) == 1
    error = capsys.readouterr().err
    assert f"[{extra}]" in error
    assert error.count("\n") == 1


def test_console_of_a_protected_listener_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["serve", "--data-dir", str(tmp_path / "data"), "--security", "--console", "127.0.0.1:0"]
    assert main(words) == 2
    assert "odradek console --command-config" in capsys.readouterr().err


def test_options_of_the_page_are_known() -> None:
    """docs/CONSOLE.md: its commands are parsed; those without a login or a broker of others also run above."""
    root = Path(__file__).parents[3]
    commands = [
        shlex.split(line)[1:]
        for line in (root / "docs/CONSOLE.md").read_text().splitlines()
        if line.startswith("    odradek ")
    ]
    assert len(commands) >= 4
    for name, *words in commands:
        parser_of(name, load(name)).parse(words)


def test_wheel_has_templates_and_static_files(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(root)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    package = root / "src/odradek/console"
    files = [path for folder in ("templates", "static") for path in (package / folder).iterdir()]
    assert files
    assert {f"odradek/console/{path.relative_to(package).as_posix()}" for path in files} <= packed
