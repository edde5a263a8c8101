"""What the scanner sslyze finds at a TLS listener, where it is installed (`pip install sslyze`, best on its own)."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import pytest

from tests.integration.tls_brokers import Security, with_broker

SECONDS = 120
OLD = ("ssl_2_0_cipher_suites", "ssl_3_0_cipher_suites", "tls_1_0_cipher_suites", "tls_1_1_cipher_suites")
NEW = ("tls_1_2_cipher_suites", "tls_1_3_cipher_suites")
SECURE: Mapping[str, Mapping[str, Any]] = {
    "tls_compression": {"supports_compression": False},
    "openssl_ccs_injection": {"is_vulnerable_to_ccs_injection": False},
    "tls_fallback_scsv": {"supports_fallback_scsv": True},
    "heartbleed": {"is_vulnerable_to_heartbleed": False},
    "robot": {"robot_result": "NOT_VULNERABLE_RSA_NOT_SUPPORTED"},
    "session_renegotiation": {
        "is_vulnerable_to_client_renegotiation_dos": False,
        "supports_secure_renegotiation": True,
    },
    "tls_extended_master_secret": {"supports_ems_extension": True},
}
"""What each scan has to find."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """The results by the names of scans."""
    program = shutil.which("sslyze")
    if program is None:
        pytest.skip("sslyze is not installed")
    folder = tmp_path_factory.mktemp("scanner")
    security = Security(folder / "certificates")
    report = folder / "report.json"

    def scan(bootstrap: str) -> None:
        port = bootstrap.rpartition(":")[2]
        # The authority is the test's: with it the scanner trusts the certificate.
        authority = f"--certinfo_ca_file={security.authority.file}"
        command = [program, "--mozilla_config=disable", "--certinfo", authority, "--tlsv1_2", "--tlsv1_3", "--tlsv1_1"]
        command += ["--tlsv1", "--sslv3", "--sslv2", "--compression", "--openssl_ccs", "--fallback", "--heartbleed"]
        command += ["--robot", "--reneg", "--ems", "--quiet", f"--json_out={report}", f"localhost:{port}"]
        subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)

    with_broker(security.settings(folder / "data"), scan)
    (server,) = json.loads(report.read_text())["server_scan_results"]
    return {name: each["result"] for name, each in server["scan_result"].items() if each["status"] == "COMPLETED"}


def test_scanner_finds_new_versions_with_forward_secrecy_only(found: Mapping[str, Any]) -> None:
    assert [name for name in OLD if found[name]["accepted_cipher_suites"]] == []
    for name in NEW:
        accepted = found[name]["accepted_cipher_suites"]
        assert accepted
        assert {each["ephemeral_key"]["type_name"] for each in accepted} == {"ECDH"}
        assert all(
            "GCM" in each["cipher_suite"]["name"] or "POLY1305" in each["cipher_suite"]["name"] for each in accepted
        )


@pytest.mark.parametrize("scan", SECURE)
def test_scanner_finds_no_weakness(scan: str, found: Mapping[str, Any]) -> None:
    assert {name: found[scan][name] for name in SECURE[scan]} == SECURE[scan]


def test_scanner_trusts_the_certificate(found: Mapping[str, Any]) -> None:
    (deployment,) = found["certificate_info"]["certificate_deployments"]
    trusted = {
        each["trust_store"]["name"]: each["was_validation_successful"] for each in deployment["path_validation_results"]
    }
    assert trusted["Supplied CA file"]
    assert deployment["received_chain_has_valid_order"]
    assert not deployment["verified_chain_has_sha1_signature"]
