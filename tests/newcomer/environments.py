"""Fresh environments: Odradek's wheel with the packages that it requires, and none of the development environment."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

from tests.unit.house.sources import ROOT

TIME_LIMIT_SECONDS = 120


def closure(*requirements: str) -> dict[str, Distribution]:
    """The distributions that these requirements need, with what those need in turn, as they are installed here."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(each) for each in requirements]
    while waiting:
        wanted = waiting.pop()
        extras = wanted.extras or {""}
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        if wanted.name in found:
            continue
        found[wanted.name] = distribution(wanted.name)
        for each in found[wanted.name].requires or ():
            needed = Requirement(each)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                needed.marker = None
                waiting.append(needed)
    return found


def copy_distribution(found: Distribution, target: Path) -> None:
    """Copy the files of an installed distribution that lie in its directory of packages."""
    for path in found.files or ():
        if ".." not in path.parts and "__pycache__" not in path.parts:
            copy = target / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(path.locate()), copy)


def run_quietly(*command: str | Path, cwd: Path = ROOT) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TIME_LIMIT_SECONDS)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def install_wheel(directory: Path) -> None:
    """Make a virtual environment in which pip has installed the wheel of this tree.

    The packages that the wheel requires, confluent-kafka, which a reader of the README has, and the extras `arrow` and
    `console` are copied from the development environment: pip finds them installed, and needs no package index. It
    fails if one is missing.
    """
    run_quietly(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", directory / "dist", ".")
    run_quietly(sys.executable, "-m", "venv", directory / "venv")
    (packages,) = (directory / "venv" / "lib").glob("python*/site-packages")
    needed = closure("odradek[console]", "confluent-kafka", "pyarrow", "numpy")
    del needed["odradek"]
    for each in needed.values():
        copy_distribution(each, packages)
    (wheel,) = (directory / "dist").glob("odradek-*.whl")
    python = directory / "venv" / "bin" / "python"
    run_quietly(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index", wheel)


def shared_environment(directory: Path) -> Path:
    """The `bin` of an environment that the first of several test processes makes in `directory`."""
    directory.mkdir(exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "ready").exists():
            shutil.rmtree(directory / "made", ignore_errors=True)  # of an attempt that failed
            install_wheel(directory / "made")
            (directory / "ready").touch()
    return directory / "made" / "venv" / "bin"


class Newcomer:
    """A person with an own home directory, a working directory and a shell in which `odradek` is installed."""

    def __init__(self, programs: Path, directory: Path) -> None:
        self.directory = directory / "work of a newcomer"
        """Where commands run; its name has spaces, as people's directories have."""
        self.variables: dict[str, str] = {}
        """What the person has exported."""
        self._programs = programs
        self.directory.mkdir()

    def _environment(self, variables: dict[str, str]) -> dict[str, str]:
        path = f"{self._programs}:/usr/local/bin:/usr/bin:/bin"
        java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
        return {
            "PATH": path,
            "HOME": str(self.directory.parent),
            "LANG": "C.UTF-8",
            **java,
            **self.variables,
            **variables,
        }

    def attempt(self, commands: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run commands in a shell that stops at the first failure; they have no terminal."""
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.directory,
            env=self._environment(variables),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_SECONDS,
        )

    def run(self, commands: str, **variables: str) -> str:
        """Run commands that must succeed; their standard output."""
        done = self.attempt(commands, **variables)
        assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
        return done.stdout

    def program(self, code: str) -> str:
        """Run a Python program that must succeed; its standard output."""
        (self.directory / "program.py").write_text(code)
        return self.run("python program.py")

    @contextmanager
    def serving(self, command: str, **variables: str) -> Iterator[str]:
        """Run a command that starts brokers, and end it with SIGTERM; the bootstrap addresses."""
        log = self.directory / "serve.log"
        with log.open("ab") as errors:
            process = subprocess.Popen(
                ["bash", "-euc", f"exec {command}"],
                cwd=self.directory,
                env=self._environment(variables),
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdout is not None
        try:
            ready = process.stdout.readline().split()
            assert ready[:2] == ["odradek", "ready"], log.read_text()
            yield ready[2].removeprefix("bootstrap=")
            process.terminate()
            assert process.wait(TIME_LIMIT_SECONDS) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
