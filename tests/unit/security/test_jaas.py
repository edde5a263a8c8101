"""JAAS lines as Kafka's files have them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.security.jaas import JaasError, parse_jaas, plain_users, section_of

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_line_of_a_stock_file_is_read() -> None:
    module = parse_jaas(
        f'{PLAIN} required \n username="admin" password="admin-secret" \n user_admin="x" user_alice="a;=\\"b";'
    )
    assert module.mechanisms == ("PLAIN",)
    assert plain_users(module.options) == {"admin": "x", "alice": 'a;="b'}
    assert module.options["username"] == "admin"


def test_values_need_no_quotation_marks() -> None:
    module = parse_jaas("org.apache.kafka.common.security.scram.ScramLoginModule required username=u password='p q' ;")
    assert module.mechanisms == ("SCRAM-SHA-256", "SCRAM-SHA-512")
    assert module.options == {"username": "u", "password": "p q"}


def test_module_shows_no_password() -> None:
    assert "secret" not in repr(parse_jaas(f'{PLAIN} required user_alice="secret";'))


@pytest.mark.parametrize(
    "text",
    [
        "",
        PLAIN,
        f"{PLAIN} required",
        f"{PLAIN} wanted;",
        f'{PLAIN} required username="open;',
        f'{PLAIN} required username "a";',
        f'{PLAIN} required a="b"; {PLAIN} required a="b";',
        'com.sun.security.auth.module.JndiLoginModule required user.provider.url="ldap://attacker";',
    ],
)
def test_anything_else_is_an_error(text: str) -> None:
    with pytest.raises(JaasError) as raised:
        parse_jaas(text)
    assert "attacker" not in str(raised.value)


@given(st.text(max_size=80))
def test_any_text_is_a_module_or_an_error(text: str) -> None:
    for each in (text, f"{PLAIN} required {text};"):
        try:
            parse_jaas(each)
        except JaasError:
            continue


DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
FILE = f"""
// users of the brokers; KafkaServer {{ is ours }}
KafkaServer {{ {PLAIN} required username="a//b"; other.Module optional; }};
/* Client {{ }} */
Client {{
   {DIGEST} required
   username="broker" password="/* x */ }}";
}};
"""


def test_section_of_a_login_file_is_read() -> None:
    module = section_of(FILE, "Client")
    assert module is not None
    assert module.mechanisms == ("DIGEST-MD5",)
    assert module.options == {"username": "broker", "password": "/* x */ }"}
    assert section_of(FILE, "KafkaClient") is None


@pytest.mark.parametrize(
    "text",
    [
        "Client {",
        "Client { }",
        f"Client {{ {DIGEST} required; }}",
        "Client };",
        f"Client {{ {DIGEST} required; }}; Client {{ {DIGEST} required; }};",
        f"Client {{ {DIGEST} required; {DIGEST} required; }};",
        "}",
        "a",
    ],
)
def test_login_file_with_another_form_is_an_error(text: str) -> None:
    with pytest.raises(JaasError):
        section_of(text, "Client")


@given(st.text(alphabet="Client{};=\"'/* \n", max_size=60))
def test_any_login_file_is_read_or_an_error(text: str) -> None:
    try:
        section_of(text, "Client")
    except JaasError:
        return
