"""User names of Kerberos names, with the examples of Kafka's `KerberosNameTest` and of its documentation."""

from __future__ import annotations

import pytest

from odradek.security.kerberos_names import KerberosName, KerberosNameError, parse_rules, user_name

REALM = "REALM.COM"
RULES = [
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
    "DEFAULT",
]


def short(name: str, rules: list[str], realm: str = REALM) -> str:
    return user_name(KerberosName.parse(name), parse_rules(rules), realm)


@pytest.mark.parametrize(
    ("name", "rules", "expected"),
    [
        ("App.service-name/example.com@REALM.COM", RULES, "service-name"),
        ("App.service-name@REALM.COM", RULES, "service-name"),
        ("user/host@REALM.COM", RULES, "user"),
        ("user@REALM.COM", [], "user"),
        ("User@REALM.COM", ["RULE:[1:$1]/L"], "user"),
        ("User/host@REALM.COM", ["RULE:[2:$1]/U"], "USER"),
        ("User@REALM.COM", ["RULE:[1:$1]s/e/x/g/U"], "USXR"),
        ("a.b.c@REALM.COM", ["RULE:[1:$1]s/\\./-/"], "a-b.c"),
        ("a.b.c@REALM.COM", ["RULE:[1:$1]s/\\./-/g"], "a-b-c"),
        ("alice@OTHER.COM", ["RULE:[1:$1@$0](.*@OTHER.COM)s/@.*//", "DEFAULT"], "alice"),
    ],
)
def test_first_matching_rule_makes_the_user_name(name: str, rules: list[str], expected: str) -> None:
    assert short(name, rules) == expected


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("user@OTHER.COM", ["DEFAULT"]),
        ("user@REALM.COM", ["RULE:[2:$1]"]),
        ("user@REALM.COM", ["RULE:[1:$1](nobody)"]),
        ("user@REALM.COM", ["RULE:[1:$1@$0]"]),
        ("user@REALM.COM", ["RULE:[1:$1]s/user//"]),
        ("user@REALM.COM", ["RULE:[1:$2]"]),
    ],
)
def test_name_without_a_user_name_is_rejected(name: str, rules: list[str]) -> None:
    with pytest.raises(KerberosNameError):
        short(name, rules)


@pytest.mark.parametrize("name", ["user", "", "@REALM.COM", "a/b/c@REALM.COM", "a@b@REALM.COM", "a@REALM/COM"])
def test_text_that_is_no_kerberos_name_is_rejected(name: str) -> None:
    with pytest.raises(KerberosNameError):
        KerberosName.parse(name)


@pytest.mark.parametrize("rule", ["default", "RULE", "RULE:[1:$1", "RULE:[3:$1]", "RULE:[1:$1](()", "RULE:[1:$1]s/a/b"])
def test_rule_that_cannot_be_read_is_rejected(rule: str) -> None:
    with pytest.raises(KerberosNameError):
        parse_rules([rule])
