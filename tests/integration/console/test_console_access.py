"""Changes of access: ACLs, SCRAM users and quotas, with confirmations, and no password outside of its request."""

import json
import logging
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.client.admin import AclBinding, AclOperation, ClientQuotaEntity, ResourceType, ScramMechanism
from odradek.console.app import CHANGES
from odradek.console.pages import access_changes
from tests.integration.console.consoles import AT, ask_as, console, post, token
from tests.integration.sasl_brokers import login

PASSWORD = "correct-horse-staple"


@pytest.fixture
def audit(tmp_path: Path) -> Path:
    """The file of audit lines."""
    return tmp_path / "audit"


@pytest.fixture
def manager(secured: str, audit: Path) -> Iterator[TestClient]:
    """A console that acts as the cluster's super user."""
    options = {name: value for name, value in login(secured).items() if name != "bootstrap_servers"}
    with console(secured, options=options, allow_changes=True, audit_log=str(audit)) as opened:
        yield opened


def acls_of(secured: str, principal: str) -> list[AclBinding]:
    """The ACLs of a principal."""
    found = ask_as(login(secured), lambda admin: admin.acls.describe())
    return [each for each in found if each.principal == principal]


def users_of(secured: str) -> dict[str, Any]:
    """Credentials by user."""
    return ask_as(login(secured), lambda admin: admin.users.describe())


def acl_form(principal: str, **others: str) -> dict[str, str]:
    """Fields of an ACL for reading the topic `orders`."""
    fields = {"operation": "READ", "permission": "ALLOW", "resource_type": "TOPIC", "resource_name": "orders"}
    return {"principal": principal, "confirm": principal, **fields, **others}


def lines(audit: Path) -> list[dict[str, Any]]:
    """Audit lines without time and address."""
    found = [json.loads(each) for each in audit.read_text().splitlines()]
    return [{key: each[key] for key in each if key not in ("time", "address", "cluster", "user")} for each in found]


def test_acl_is_created_and_deleted(manager: TestClient, secured: str, audit: Path) -> None:
    assert post(manager, AT + "/acls/create", **acl_form("User:made")).status_code == 200
    expected = AclBinding(ResourceType.TOPIC, "orders", "User:made", AclOperation.READ)
    assert acls_of(secured, "User:made") == [expected]
    assert "User:made" in manager.get(AT + "/access?q=MADE").text
    assert post(manager, AT + "/acls/delete", **acl_form("User:made")).status_code == 200
    assert acls_of(secured, "User:made") == []
    assert [(each["action"], each["target"], each["operation"]) for each in lines(audit)] == [
        ("create ACL", "User:made", "READ"),
        ("delete ACL", "User:made", "READ"),
    ]


@pytest.mark.parametrize("action", ["create", "delete"])
def test_change_of_acl_needs_its_typed_principal(manager: TestClient, secured: str, action: str) -> None:
    principal = f"User:kept-{action}"
    if action == "delete":
        post(manager, AT + "/acls/create", **acl_form(principal))
    before = acls_of(secured, principal)
    assert post(manager, f"{AT}/acls/{action}", **acl_form(principal, confirm="User:other")).status_code == 400
    assert acls_of(secured, principal) == before


def test_only_the_named_acl_is_deleted(manager: TestClient, secured: str) -> None:
    post(manager, AT + "/acls/create", **acl_form("User:two"))
    post(manager, AT + "/acls/create", **acl_form("User:two", pattern_type="PREFIXED"))
    post(manager, AT + "/acls/delete", **acl_form("User:two"))
    assert [each.pattern_type.name for each in acls_of(secured, "User:two")] == ["PREFIXED"]
    assert post(manager, AT + "/acls/delete", **acl_form("User:two")).status_code == 400


@pytest.mark.parametrize(
    ("name", "value"),
    [("principal", "alice"), ("operation", "ANY"), ("permission", "MAYBE"), ("resource_type", ""),
     ("resource_name", " "), ("pattern_type", "MATCH")],
)  # fmt: skip
def test_wrong_field_of_acl_is_reported(manager: TestClient, name: str, value: str) -> None:
    response = post(manager, AT + "/acls/create", **{**acl_form("User:x"), "confirm": "User:x", name: value})
    assert response.status_code == 400
    assert name in response.text or "confirm" in response.text


def test_user_is_created_with_both_mechanisms(manager: TestClient, secured: str, audit: Path) -> None:
    form = {"user": "carol", "password": PASSWORD, "mechanism": ["SCRAM_SHA_256", "SCRAM_SHA_512"]}
    assert post(manager, AT + "/users/set", **form, iterations="4096").status_code == 200
    found = users_of(secured)["carol"]
    assert {(each.mechanism, each.iterations) for each in found} == {
        (ScramMechanism.SCRAM_SHA_256, 4096), (ScramMechanism.SCRAM_SHA_512, 4096),
    }  # fmt: skip
    assert lines(audit)[-1] == {
        "action": "create user", "target": "carol", "iterations": 4096,
        "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"],
    }  # fmt: skip
    options = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-512"}
    with console(secured, options=options, login=True) as gate:
        assert "Overview" in post_login(gate, "carol", PASSWORD).text


def post_login(gate: TestClient, user: str, password: str) -> Any:
    """Log in."""
    return gate.post("/login", data={"csrf": token(gate, "/login"), "user": user, "password": password})


def test_password_changes_after_confirmation(manager: TestClient, secured: str, audit: Path) -> None:
    form = {"user": "dave", "mechanism": "SCRAM_SHA_256"}
    post(manager, AT + "/users/set", password=PASSWORD, **form)
    assert post(manager, AT + "/users/set", password="other", **form).status_code == 400
    assert post(manager, AT + "/users/set", password="other", confirm="dave", **form).status_code == 200
    assert [each["action"] for each in lines(audit)] == ["create user", "change password"]


def test_user_is_deleted_after_confirmation(manager: TestClient, secured: str) -> None:
    post(manager, AT + "/users/set", user="erin", password=PASSWORD, mechanism="SCRAM_SHA_512")
    assert post(manager, AT + "/users/delete", user="erin", confirm="").status_code == 400
    assert "erin" in users_of(secured)
    assert post(manager, AT + "/users/delete", user="erin", confirm="erin").status_code == 200
    assert "erin" not in users_of(secured)


@pytest.mark.parametrize(
    ("name", "value"),
    [("user", ""), ("password", ""), ("mechanism", "PLAIN"), ("iterations", "100"), ("iterations", "99999")],
)
def test_wrong_field_of_user_is_reported(manager: TestClient, name: str, value: str) -> None:
    form = {"user": "frank", "password": PASSWORD, "mechanism": "SCRAM_SHA_512", name: value}
    response = post(manager, AT + "/users/set", **form)
    assert response.status_code == 400
    assert PASSWORD not in response.text


def test_password_is_in_no_page_line_or_address(
    manager: TestClient, audit: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    form = {"user": "grace", "password": PASSWORD, "mechanism": "SCRAM_SHA_512"}
    made = post(manager, AT + "/users/set", **form)
    again = post(manager, AT + "/users/set", **form)

    def fail(_changes: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(access_changes, "raise_first", fail)
    with pytest.raises(RuntimeError, match="planted") as failure:
        post(manager, AT + "/users/set", **{**form, "user": "heidi"})
    logged = "".join(traceback.format_exception(failure.value))
    texts = [made.text, again.text, logged, str(made.url), str(again.url), audit.read_text(), caplog.text]
    assert [each for each in texts if PASSWORD in each] == []


def test_quota_is_set_and_deleted(manager: TestClient, secured: str, audit: Path) -> None:
    form = {"entity:user": "ivan", "default:client-id": "yes"}
    text = "client-id (default), user ivan"
    entity = ClientQuotaEntity.of({"user": "ivan", "client-id": None})
    set_form = {**form, "limit": "producer_byte_rate", "value": "1048576"}
    assert post(manager, AT + "/quotas/set", confirm="user ivan", **set_form).status_code == 400
    assert post(manager, AT + "/quotas/set", confirm=text, **set_form).status_code == 200
    assert ask_as(login(secured), lambda admin: admin.quotas.describe())[entity] == {"producer_byte_rate": 1048576.0}
    assert text in manager.get(AT + "/access").text
    assert post(manager, AT + "/quotas/delete", confirm="", **form).status_code == 400
    assert post(manager, AT + "/quotas/delete", confirm=text, **form).status_code == 200
    assert entity not in ask_as(login(secured), lambda admin: admin.quotas.describe())
    assert [(each["action"], each["target"]) for each in lines(audit)] == [("set quota", text), ("delete quota", text)]


@pytest.mark.parametrize(
    "fields",
    [{}, {"entity:user": "x", "default:user": "yes"}, {"entity:user": "x", "value": "-1"},
     {"entity:user": "x", "value": "nan"}, {"entity:user": "x", "limit": "speed"}],
)  # fmt: skip
def test_wrong_field_of_quota_is_reported(manager: TestClient, fields: dict[str, str]) -> None:
    form = {"limit": "producer_byte_rate", "value": "1", "confirm": "user x", **fields}
    assert post(manager, AT + "/quotas/set", **form).status_code == 400


def test_reader_sees_no_forms_of_access(secured: str) -> None:
    options = {name: value for name, value in login(secured).items() if name != "bootstrap_servers"}
    with console(secured, options=options) as client:
        text = client.get(AT + "/access").text
    assert "alice" in text
    actions = [path.split("{cluster}")[1] for path, _ in CHANGES]
    assert [each for each in actions if each in text] == []
