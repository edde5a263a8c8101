"""Login settings in JAAS form, as Kafka's files have them; read as data, no class is loaded.

org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" user_alice="secret";
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": ("PLAIN",),
    "org.apache.kafka.common.security.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": ("OAUTHBEARER",),
    "com.sun.security.auth.module.Krb5LoginModule": ("GSSAPI",),
    "org.apache.zookeeper.server.auth.DigestLoginModule": ("DIGEST-MD5",),
}
"""Accepted modules and the mechanisms that each is for."""
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|\'((?:[^\'\\]|\\.)*)\'|([=;{}])|([^\s=;{}"\']+))', re.DOTALL)
_COMMENT: Final = re.compile(r'("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')|//[^\n]*|/\*.*?\*/', re.DOTALL)
"""Text in quotation marks, which stays, or a comment."""
_Token = tuple[str, bool]
"""A word, and whether it is a mark of the syntax."""
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class JaasError(ValueError):
    """The text is not one login module; the message has no values of options."""


class LoginModule(NamedTuple):
    """One login module with its options."""

    name: str
    mechanisms: tuple[str, ...]
    """The mechanisms that it is for."""
    options: Mapping[str, str]

    def __repr__(self) -> str:
        """Without the options, which are passwords."""
        return f"LoginModule({self.name})"


def parse_jaas(text: str) -> LoginModule:
    """The only login module of a `sasl.jaas.config`. Raises JaasError."""
    return _login_module(_tokens(text))


def section_of(text: str, name: str) -> LoginModule | None:
    """The login module of a section of a login file; None without that section. Raises JaasError.

    The file has sections `NAME { MODULE FLAG OPTION="VALUE" …; };`. Others may have any module, also several.
    """
    tokens = _tokens(_COMMENT.sub(lambda match: match[1] or " ", text))
    found: LoginModule | None = None
    position = 0
    while position < len(tokens):
        try:
            end = tokens.index(("}", True), position)
        except ValueError:
            raise JaasError("a section has no end") from None
        if tokens[position][1] or tokens[position + 1] != ("{", True) or tokens[end + 1 : end + 2] != [(";", True)]:
            raise JaasError('sections are NAME { MODULE FLAG OPTION="VALUE"; };')
        if tokens[position][0] == name:
            if found is not None:
                raise JaasError(f"the section {name} is there twice")
            found = _login_module(tokens[position + 2 : end])
        position = end + 2
    return found


def _login_module(tokens: list[_Token]) -> LoginModule:
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise JaasError('MODULE required NAME="VALUE" …; expected')
    name, flag = tokens[0][0], tokens[1][0]
    mechanisms = _MODULES.get(name)
    if mechanisms is None:
        raise JaasError(f"the login module {name!r} is not one of {', '.join(_MODULES)}")
    if flag.lower() not in _FLAGS:
        raise JaasError(f"one of {', '.join(_FLAGS)} expected after the login module")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if len(rest) % 3:
        raise JaasError('options are NAME="VALUE", and one login module is possible')
    for start in range(0, len(rest), 3):
        (option, is_mark), equals, (value, is_other_mark) = rest[start : start + 3]
        if is_mark or is_other_mark or equals != ("=", True):
            raise JaasError('options are NAME="VALUE", and one login module is possible')
        options[option] = value
    return LoginModule(name, mechanisms, options)


def plain_users(options: Mapping[str, str]) -> dict[str, str]:
    """Password by user of a PlainLoginModule in a broker's configuration."""
    return {name.removeprefix("user_"): text for name, text in options.items() if name.startswith("user_")}


def _tokens(text: str) -> list[_Token]:
    found = []
    position, text = 0, text.strip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise JaasError("a quotation mark has no end")
        double, single, mark, bare = match.groups()
        if mark is not None:
            found.append((mark, True))
        elif bare is not None:
            found.append((bare, False))
        else:
            found.append((_unescaped(single if double is None else double), False))
        position = match.end()
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text, flags=re.DOTALL)
