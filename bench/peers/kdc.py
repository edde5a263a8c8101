"""A key distribution center of MIT Kerberos (Debian's krb5-kdc, krb5-admin-server and krb5-user) on this machine."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

REALM = "ODRADEK.TEST"
SECONDS = 30
_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/lib/mit/sbin"))


def missing_program() -> str:
    """A program that is not installed; empty if all are."""
    return next((name for name in _PROGRAMS if shutil.which(name, path=_PATH) is None), "")


class Kdc:
    """A realm in a folder. `environment` is for processes that are to use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        config, profile = folder / "krb5.conf", folder / "kdc.conf"
        config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_lookup_realm = false\n"
            " rdns = false\n dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self._port}\n }}\n"
            f"[domain_realm]\n localhost = {REALM}\n"
        )
        profile.write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self._port}\n kdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
            f"  acl_file = {folder}/acl\n }}\n[logging]\n kdc = FILE:{folder}/kdc.log\n"
        )
        self.environment: Mapping[str, str] = {
            "KRB5_CONFIG": str(config),
            "KRB5_KDC_PROFILE": str(profile),
            "KRB5CCNAME": f"FILE:{folder}/tickets",
            "KRB5RCACHEDIR": str(folder),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def _run(self, *words: str) -> None:
        environment = {**os.environ, **self.environment, "PATH": _PATH}
        done = subprocess.run(words, env=environment, capture_output=True, timeout=SECONDS, check=False)
        if done.returncode:
            raise RuntimeError(f"{words[0]}: {done.stderr.decode(errors='replace')}")

    def key_table(self, principal: str) -> str:
        """Create a principal such as `kafka/localhost`; the file of its key."""
        path = str(self._folder / f"{principal.replace('/', '-')}.keytab")
        self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return path

    def log_in(self, principal: str, key_table: str) -> None:
        """Get tickets as `kinit` does, into the cache of `environment`."""
        self._run("kinit", "-kt", key_table, principal)

    def __enter__(self) -> Self:
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        environment = {**os.environ, **self.environment}
        program = shutil.which("krb5kdc", path=_PATH) or "krb5kdc"
        self._process = subprocess.Popen(
            [program, "-n"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    self.__exit__()
                    raise
                time.sleep(0.05)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
