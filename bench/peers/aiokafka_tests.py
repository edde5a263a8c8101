#!/usr/bin/env python3
"""aiokafka's own `tests/test_sasl.py` against a broker with SASL and ACLs, as the environment's aiokafka.

    aiokafka_tests.py --source DIR --bootstrap HOST:PORT [--authority FILE] --admin FILE [-- PYTEST_ARGS...]

Its package on PyPI has no tests: DIR is a checkout of aiokafka's repository (v0.14.0). The suite's own conftest.py
runs Kafka in Docker; the one here gives it the running broker. --bootstrap is the listener of SASL_PLAINTEXT, --admin
a `--command-config` of a super user. With --authority, the certificate of the brokers' authority, --bootstrap is the
listener of SASL_SSL: the suite knows plain text only, so the option of its clients is replaced. Ends with pytest's
summary.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

CONFTEST = '''"""The running broker in the place of a container."""
import asyncio, os, subprocess, sys
import pytest
from tests import _testutil

HOST, PORT = os.environ["SUITE_BOOTSTRAP"].rsplit(":", 1)


class Acls(_testutil.ACLManager):
    def __init__(self):
        self._active_acls = []

    def _exec(self, verb, *options):
        words = [word for option in options for word in option.split(" ", 1)]
        command = {"--add": "add", "--remove": "remove", "--list": "list"}[verb]
        done = subprocess.run(
            [sys.executable, "-m", "odradek.cli.main", "acls", command, *words,
             *(["--yes"] if command == "remove" else []), "--command-config", os.environ["SUITE_ADMIN"]],
            capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.encode()


class Config:
    def add_scram_user(self, name, password):
        assert (name, password) == ("test", "test"), "the broker has this user already"


class Kerberos:
    def kinit(self, principal):
        if "SUITE_KEYTAB" not in os.environ:
            pytest.skip("needs a KDC")
        subprocess.run(["kinit", "-kt", os.environ["SUITE_KEYTAB"], principal], check=True)

    def kdestroy(self):
        subprocess.run(["kdestroy"], check=True)


@pytest.fixture(scope="class")
def setup_test_class(request):
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    of = request.cls
    of.loop, of.kafka_host, of.kafka_port, of.kafka_sasl_plain_port = loop, HOST, int(PORT), int(PORT)
    of.acl_manager, of.kafka_config, of.kerberos_utils = Acls(), Config(), Kerberos()
    of.hosts, of.kafka_version = [], "4.3.0"
    yield
    loop.close()
    asyncio.set_event_loop(None)
'''


PLAIN_TEXT = 'security_protocol="SASL_PLAINTEXT",'
OVER_TLS = 'security_protocol="SASL_SSL", ssl_context=create_ssl_context(cafile=os.environ["SUITE_AUTHORITY"]),'
IMPORTS = "import os\n\nfrom aiokafka.helpers import create_ssl_context\n"


def encrypt(tests: pathlib.Path) -> None:
    """Let the clients of a file of tests connect by TLS. Raises SystemExit if none does."""
    text = tests.read_text()
    if PLAIN_TEXT not in text:
        raise SystemExit(f"{tests.name} has no client of SASL_PLAINTEXT")
    tests.write_text(IMPORTS + text.replace(PLAIN_TEXT, OVER_TLS))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, type=pathlib.Path)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--authority", type=pathlib.Path)
    parser.add_argument("--admin", required=True, type=pathlib.Path)
    parser.add_argument("pytest_args", nargs="*")
    args = parser.parse_args()
    wanted = [args.source / "tests" / name for name in ("__init__.py", "_testutil.py", "test_sasl.py")]
    if missing := [str(path) for path in wanted if not path.exists()]:
        parser.error(f"--source is no checkout of aiokafka: {missing[0]} does not exist")
    with tempfile.TemporaryDirectory(prefix="aiokafka-tests-") as home:
        folder = pathlib.Path(home) / "tests"
        folder.mkdir()
        for path in wanted:
            shutil.copy(path, folder)
        if args.authority is not None:
            encrypt(folder / "test_sasl.py")
        (folder / "conftest.py").write_text(CONFTEST)
        (pathlib.Path(home) / "pytest.ini").write_text("[pytest]\n")
        env = {
            **os.environ,
            "SUITE_BOOTSTRAP": args.bootstrap,
            "SUITE_ADMIN": str(args.admin.resolve()),
            "SUITE_AUTHORITY": "" if args.authority is None else str(args.authority.resolve()),
            "PYTHONPATH": home,
        }
        options = ["-q", "-rs", "--tb=short", "-p", "no:cacheprovider", "-p", "no:randomly", "--timeout=120"]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, *args.pytest_args, "tests"], cwd=home, env=env
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
