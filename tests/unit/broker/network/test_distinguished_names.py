"""The subject of a certificate as Java writes it, from DER that the test makes (RFC 2253)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from odradek.broker.network.distinguished_names import expiry_of, subject_of, subject_values

UTF8, NUMERIC, PRINTABLE, T61, IA5, GENERAL, UNIVERSAL, BMP = 0x0C, 0x12, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E
NAMES = {
    "CN": b"\x55\x04\x03",
    "OU": b"\x55\x04\x0b",
    "2.5.4.5": b"\x55\x04\x05",
    "1.2.840.113549.1.9.1": b"\x2a\x86\x48\x86\xf7\x0d\x01\x09\x01",
}


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(octets))) + octets + content


def attribute(name: str, tag: int, value: bytes) -> bytes:
    return der(0x30, der(0x06, NAMES[name]) + der(tag, value))


def certificate(*sets: list[bytes], version: bool = True, until: bytes = der(0x17, b"300102030405Z")) -> bytes:
    """With a relative name for each set of attributes."""
    subject = der(0x30, b"".join(der(0x31, b"".join(attributes)) for attributes in sets))
    validity = der(0x30, der(0x17, b"200102030405Z") + until)
    before = der(0x02, b"\x01") + der(0x30, b"") + der(0x30, b"") + validity
    return der(0x30, der(0x30, (der(0xA0, der(0x02, b"\x02")) if version else b"") + before + subject))


@pytest.mark.parametrize(
    ("tag", "value", "text"),
    [
        (UTF8, "köln".encode(), "köln"),
        (NUMERIC, b"12 34", "12 34"),
        (PRINTABLE, b"broker-1", "broker-1"),
        (T61, "köln".encode("latin-1"), "köln"),
        (IA5, b"a@b", "a@b"),
        (GENERAL, b"a b", "a b"),
        (UNIVERSAL, "köln".encode("utf-32-be"), "köln"),
        (BMP, "köln".encode("utf-16-be"), "köln"),
    ],
)
@pytest.mark.parametrize("version", [True, False], ids=["v3", "v1"])
def test_name_is_read_in_every_form_of_text(tag: int, value: bytes, text: str, version: bool) -> None:
    found = certificate([attribute("OU", UTF8, b"x")], [attribute("CN", tag, value)], version=version)
    assert subject_of(found) == f"CN={text},OU=x"
    assert subject_values(found, "CN") == [text]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ('a,b=c+d<e>f#g;h"i\\j', 'a\\,b\\=c\\+d\\<e\\>f\\#g\\;h\\"i\\\\j'),
        ("  two ", "\\ \\ two\\ "),
        ("in side", "in side"),
        ("x" * 300, "x" * 300),
    ],
)
def test_characters_with_a_meaning_are_escaped(value: str, text: str) -> None:
    assert subject_of(certificate([attribute("CN", UTF8, value.encode())])) == f"CN={text}"


def test_attribute_without_a_keyword_or_text_appears_encoded() -> None:
    found = certificate(
        [attribute("2.5.4.5", PRINTABLE, b"77"), attribute("CN", 0x04, b"\xff")],
        [attribute("1.2.840.113549.1.9.1", IA5, b"a")],
        [attribute("OU", UTF8, b"one"), attribute("OU", UTF8, b"two")],
    )
    assert subject_of(found) == "OU=one+OU=two,1.2.840.113549.1.9.1=#160161,2.5.4.5=#13023737+CN=#0401ff"
    assert subject_values(found, "OU") == ["one", "two"]
    assert subject_values(found, "CN") == []


@pytest.mark.parametrize(
    ("until", "year"), [(der(0x17, b"300102030405Z"), 2030), (der(0x18, b"20510102030405Z"), 2051)]
)
def test_expiry_is_read_in_both_forms(until: bytes, year: int) -> None:
    assert expiry_of(certificate([], until=until)) == datetime(year, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize("size", [0, 1, 3, 20, -1])
def test_certificate_that_is_cut_off_is_rejected(size: int) -> None:
    found = certificate([attribute("CN", UTF8, b"broker")])
    with pytest.raises(ValueError, match="cut off"):
        subject_of(found[:size])
