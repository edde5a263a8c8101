"""Kerberos names, and the rules that make user names of them (Kafka's `KerberosName`, `KerberosShortNamer`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)\Z")
_RULE: Final = re.compile(
    r"(?:(DEFAULT)|RULE:\[(\d+):([^\]]*)\](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?(L|U)?)\Z", re.ASCII
)
_PARAMETER: Final = re.compile(r"\$(\d)", re.ASCII)
_GROUP: Final = re.compile(r"\\(.)|\$(\d)", re.ASCII | re.DOTALL)
_NOT_SIMPLE: Final = re.compile(r"[/@]")


class KerberosNameError(ValueError):
    """A name that is not Kerberos's, or that no rule matches; or a rule that cannot be read."""


class KerberosName(NamedTuple):
    """`primary/instance@REALM`; the instance is empty in names of persons."""

    primary: str
    instance: str
    realm: str

    @classmethod
    def parse(cls, text: str) -> KerberosName:
        """Raises KerberosNameError."""
        match = _NAME.match(text)
        if match is None or not match[1]:
            raise KerberosNameError(f"{text!r} is not a Kerberos name: NAME@REALM or SERVICE/HOST@REALM expected")
        return cls(match[1], match[2] or "", match[3])


class Rule(NamedTuple):
    """One rule of `sasl.kerberos.principal.to.local.rules`."""

    components: int
    """Names with this number of parts before the realm are considered; 0 is the rule DEFAULT."""
    form: str = ""
    """What is matched: `$0` is the realm, `$1` and `$2` are the parts."""
    match: re.Pattern[str] | None = None
    """Must match all of it."""
    replaced: re.Pattern[str] | None = None
    replacement: str = ""
    """In the syntax of Python's `re.sub`."""
    repeats: bool = False
    case: str = ""
    """`L` or `U` for lower and upper case."""

    def apply(self, name: KerberosName, default_realm: str) -> str | None:
        """The user's name, or None if the rule does not match. Raises KerberosNameError."""
        parts = [name.realm, name.primary, *([name.instance] if name.instance else [])]
        if not self.components:
            result = name.primary if name.realm == default_realm else None
        elif len(parts) - 1 != self.components:
            return None
        else:
            result = _PARAMETER.sub(lambda found: _part(parts, int(found[1])), self.form)
            if self.match is not None and self.match.fullmatch(result) is None:
                return None
            if self.replaced is not None:
                result = self.replaced.sub(self.replacement, result, count=0 if self.repeats else 1)
        if result is None:
            return None
        if not result or _NOT_SIMPLE.search(result):
            raise KerberosNameError(
                f"the rule for {'/'.join(parts[1:])}@{name.realm} gives {result!r}, which is no user name"
            )
        return {"L": result.lower(), "U": result.upper()}.get(self.case, result)


def parse_rules(texts: Sequence[str]) -> tuple[Rule, ...]:
    """The rules in their order; none is as DEFAULT alone. Raises KerberosNameError."""
    return tuple(_rule(text.strip()) for text in texts if text.strip()) or (Rule(0),)


def user_name(name: KerberosName, rules: Sequence[Rule], default_realm: str) -> str:
    """The name of the user, by the first rule that matches. Raises KerberosNameError."""
    for rule in rules:
        found = rule.apply(name, default_realm)
        if found is not None:
            return found
    raise KerberosNameError(
        f"no rule of sasl.kerberos.principal.to.local.rules matches {name.primary!r} of the realm {name.realm!r}"
    )


def _part(parts: Sequence[str], index: int) -> str:
    if index >= len(parts):
        raise KerberosNameError(f"${index} in a rule: the name has {len(parts) - 1} parts")
    return parts[index]


def _rule(text: str) -> Rule:
    found = _RULE.match(text)
    if found is None:
        raise KerberosNameError(f"{text!r}: DEFAULT or RULE:[NUMBER:FORM](PATTERN)s/PATTERN/REPLACEMENT/g/L expected")
    default, components, form, match, replaced, replacement, repeats, case = found.groups()
    if default:
        return Rule(0)
    if components not in ("1", "2"):
        raise KerberosNameError(f"{text!r}: names have one or two parts")
    try:
        return Rule(
            int(components),
            form,
            re.compile(match) if match is not None else None,
            re.compile(replaced) if replaced is not None else None,
            _python_replacement(replacement or ""),
            repeats is not None,
            case or "",
        )
    except re.error as error:
        raise KerberosNameError(f"{text!r}: {error}") from error


def _python_replacement(text: str) -> str:
    """Java writes groups as `$1` and escapes any character by a backslash."""

    def convert(found: re.Match[str]) -> str:
        if found[2] is not None:
            return rf"\g<{found[2]}>"
        return found[1].replace("\\", "\\\\")

    return _GROUP.sub(convert, text)
