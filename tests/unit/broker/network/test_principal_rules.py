"""From certificates to principals: Java's text of a subject, Kafka's mapping rules."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from odradek.api.requests.session import ANONYMOUS, Principal
from odradek.broker.network.distinguished_names import subject_of
from odradek.broker.network.principal_rules import NoMatchingRule, certificate_principal, parse_rules
from tests.certificates import Authority


def der(path: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(path).read_text())


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("/CN=alice", "CN=alice"),
        ("/C=DE/ST=Hesse/L=Frankfurt/O=Acme, Inc./CN=x", r"CN=x,O=Acme\, Inc.,L=Frankfurt,ST=Hesse,C=DE"),
        ("/O=  lead #x /CN=#hash", r"CN=\#hash,O=\ \ lead \#x\ "),
        (
            "/DC=org/DC=example/UID=bob/CN=bob/emailAddress=b@x.y",
            "1.2.840.113549.1.9.1=#16056240782e79,CN=bob,UID=bob,DC=example,DC=org",
        ),
        ("/CN=Jürgen=é/street=Main/serialNumber=12", r"2.5.4.5=#13023132,STREET=Main,CN=Jürgen\=é"),
    ],
)
def test_subject_is_written_as_java_writes_it(subject: str, expected: str, tmp_path: Path) -> None:
    """The expected texts are those of Java 17's X500Principal.getName for the same certificates."""
    authority = Authority(tmp_path)
    path = str(tmp_path / "subject.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-key", str(tmp_path / "ca.key"), "-utf8", "-subj", subject, "-out", path],
        check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    assert subject_of(der(path)) == expected
    assert subject_of(der(authority.file)) == "CN=test CA"


def test_truncated_certificate_is_an_error(tmp_path: Path) -> None:
    data = der(Authority(tmp_path).file)
    for size in (0, 1, 10, 60):
        with pytest.raises(ValueError, match="cut off"):
            subject_of(data[:size])


def applied(text: str, subject: str) -> list[str | None]:
    return [rule.applied(subject) for rule in parse_rules(text)]


def test_rules_map_subjects_as_kafka_does() -> None:
    subject = "CN=Duke,OU=ServiceUsers,O=Org"
    assert applied("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", subject) == ["Duke"]
    assert applied("RULE:^CN=(.*?),OU=(.*?),O=(.*?)$/$1@$2/L", subject) == ["duke@serviceusers"]
    assert applied("RULE:^.*CN=(?<who>.*?),OU.*$/${who}/U, DEFAULT", subject) == ["DUKE", subject]
    assert applied("RULE:^CN=other$/x/,DEFAULT", subject) == [None, subject]
    assert applied("DEFAULT", subject) == [subject]
    assert applied(r"RULE:^CN=(.*?)\/x$/a\/$1/", "CN=b/x") == ["a/b"]
    assert applied("RULE:CN=Duke/x/", subject) == [None]


@pytest.mark.parametrize("text", ["RULE:a/b", "RULE:(/b/", "RULE:a/$1/", "nonsense", "DEFAULT,RULE:a/b/X"])
def test_unreadable_rule_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"rule|RULE|pattern"):
        parse_rules(text)


def test_certificate_gives_the_roles_of_its_subject(tmp_path: Path) -> None:
    certificate = der(Authority(tmp_path).issue("/O=Acme/OU=analysts/OU=a, b;c/CN=alice").certificate)
    rules = parse_rules("DEFAULT")
    assert certificate_principal(certificate, rules, "OU").roles == ("Role:analysts", "Role:a, b;c")
    assert certificate_principal(certificate, rules, "O").roles == ("Role:Acme",)
    assert certificate_principal(certificate, rules).roles == ()


def test_certificate_gives_the_principal(tmp_path: Path) -> None:
    certificate = der(Authority(tmp_path).issue("/O=Acme/CN=alice").certificate)
    rules = parse_rules("RULE:^CN=(.*?),.*$/$1/")
    assert certificate_principal(certificate, rules) == Principal("User", "alice")
    assert certificate_principal(certificate, parse_rules("DEFAULT")) == Principal("User", "CN=alice,O=Acme")
    assert certificate_principal(None, rules) == ANONYMOUS
    with pytest.raises(NoMatchingRule, match="CN=alice,O=Acme"):
        certificate_principal(certificate, parse_rules("RULE:^CN=bob$/bob/"))
