"""The subject of a certificate as RFC 2253 text, exactly as Java's `X500Principal.getName` writes it.

Kafka's principals are made of this text: ACLs and quotas that name it must mean the same client here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_VALIDITY: Final = 3
_SUBJECT: Final = 4
_STRINGS: Final = {
    0x0C: "utf-8",
    0x12: "ascii",  # NumericString
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Attributes that RFC 2253 has a keyword for; others appear with their number and their encoding."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER. Raises ValueError for other bytes."""
    tag, subject = _field(certificate, _SUBJECT)
    if tag != _SEQUENCE:
        raise ValueError("the certificate has no subject")
    return ",".join(_relative_name(names) for _, names in reversed(_elements(subject)))


def subject_values(certificate: bytes, keyword: str) -> list[str]:
    """The values of an attribute of the subject, such as `OU`, as they are. Raises ValueError for other bytes."""
    _, subject = _field(certificate, _SUBJECT)
    found = []
    for _, names in _elements(subject):
        for _, attribute in _elements(names):
            _, identifier, start = _element(attribute, 0)
            tag, value, _ = _element(attribute, start)
            encoding = _STRINGS.get(tag)
            if _KEYWORDS.get(_object_identifier(identifier)) == keyword and encoding is not None:
                found.append(value.decode(encoding, "replace"))
    return found


def expiry_of(certificate: bytes) -> datetime:
    """The time at which a certificate in DER ceases to be valid. Raises ValueError for other bytes."""
    _, validity = _field(certificate, _VALIDITY)
    tag, text = _elements(validity)[1]
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC)


def _field(certificate: bytes, index: int) -> tuple[int, bytes]:
    """Tag and content of a field: serial number, signature algorithm, issuer, validity, subject."""
    try:
        _, fields, _ = _element(certificate, 0)
        _, fields, _ = _element(fields, 0)
        tag, _, after = _element(fields, 0)
        position = after if tag == _VERSION else 0
        for _ in range(index):
            _, _, position = _element(fields, position)
        tag, content, _ = _element(fields, position)
    except IndexError as error:
        raise ValueError("the certificate is cut off") from error
    return tag, content


def _relative_name(names: bytes) -> str:
    return "+".join(_attribute(attribute) for _, attribute in _elements(names))


def _attribute(attribute: bytes) -> str:
    _, identifier, start = _element(attribute, 0)
    tag, value, end = _element(attribute, start)
    number = _object_identifier(identifier)
    keyword, encoding = _KEYWORDS.get(number), _STRINGS.get(tag)
    if keyword is None or encoding is None:
        return f"{keyword or number}=#{attribute[start:end].hex()}"
    return f"{keyword}={_escaped(value.decode(encoding, 'replace'))}"


def _escaped(text: str) -> str:
    """Spaces at both ends are escaped, and the characters that have a meaning."""
    inner = text.strip(" ")
    leading = len(text) - len(text.lstrip(" "))
    trailing = len(text) - leading - len(inner)
    kept = "".join(f"\\{each}" if each in _ESCAPED else each for each in inner)
    return "\\ " * leading + kept + "\\ " * trailing


def _object_identifier(data: bytes) -> str:
    numbers: list[int] = []
    current = 0
    for byte in data:
        current = current << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(current)
            current = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _elements(data: bytes) -> list[tuple[int, bytes]]:
    found = []
    position = 0
    while position < len(data):
        tag, content, position = _element(data, position)
        found.append((tag, content))
    return found


def _element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Tag, content and end of the element at a position. IndexError where the data ends before it."""
    tag, size = data[position], data[position + 1]
    start = position + 2
    if size & 0x80:
        count = size & 0x7F
        size = int.from_bytes(data[start : start + count], "big")
        start += count
    end = start + size
    if end > len(data):
        raise IndexError(end)
    return tag, data[start:end], end
