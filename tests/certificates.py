"""Certificates for tests, made by the openssl command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"
# Python 3.13 rejects certificates without them (VERIFY_X509_STRICT).
IDENTIFIERS = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid"


class Certificate(NamedTuple):
    """Files in PEM: the key, the certificate, and both together."""

    key: str
    certificate: str
    both: str


class Authority:
    """An authority in a folder, which signs certificates."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("the openssl command is not installed")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.file = str(folder / "ca.pem")
        _run(
            *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"),
            *("-keyout", str(folder / "ca.key"), "-out", self.file, "-subj", f"/CN={name}"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
        )

    def issue(self, subject: str, names: str = NAMES, *, days: int = 30, password: str = "") -> Certificate:
        """A certificate for a subject such as `/O=Acme/CN=alice`; negative days: one that has expired."""
        stem = self._folder / f"{len(list(self._folder.iterdir()))}"
        key, request, certificate, both, extra = (str(stem) + end for end in (".key", ".csr", ".crt", ".pem", ".ext"))
        Path(extra).write_text(f"{names}\n{IDENTIFIERS}\n")
        encryption = ("-passout", f"pass:{password}") if password else ("-nodes",)
        _run(
            *("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *encryption),
            *("-keyout", key, "-out", request, "-subj", subject),
        )
        _run(
            *("x509", "-req", "-in", request, "-CA", self.file, "-CAkey", str(self._folder / "ca.key")),
            *("-CAcreateserial", "-out", certificate, "-days", str(days), "-extfile", extra),
        )
        Path(both).write_text(Path(key).read_text() + Path(certificate).read_text())
        return Certificate(key, certificate, both)


def _run(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
