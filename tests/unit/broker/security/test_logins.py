"""Logins of one connection to a SASL listener: from the choice of a mechanism to the end of its session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from odradek.api.requests.broker_proof import MECHANISM as BROKERS
from odradek.api.requests.session import ANONYMOUS, Authentication, Principal, Proven, Session
from odradek.broker.network.connection import Disconnect
from odradek.broker.network.repeated_lines import LINES_PER_SECOND
from odradek.broker.security.exchanges import PlainLogin, ScramLogin
from odradek.broker.security.gate import SaslGate, Step
from odradek.broker.security.logins import Credentials, Logins
from odradek.broker.security.oauth import BearerLogin
from odradek.broker.security.sasl_listeners import SaslListener
from odradek.metadata.image import ClientEntity, ClusterImage
from odradek.security.errors import SaslError
from odradek.security.oauthbearer import INVALID_TOKEN
from odradek.security.plain import PlainUsers
from odradek.security.scram import Mechanism, ScramCredential
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode

T = TypeVar("T")
RIGHT, WRONG = b"\0alice\0secret", b"\0alice\0guess"
OF_BOB = b"\0bob\0other"
TOO_MANY = "too many logins of this address have failed"
WALL_MS = 1_700_000_000_000


class Broker:
    """Logins of a broker with one SASL listener and clocks of the test."""

    def __init__(self, *, max_reauth_ms: int = 0, max_failures: int = 3, bearer: Any = None) -> None:
        self.seconds = 100.0
        self.audited: list[tuple[Any, ...]] = []
        settings = {
            "odradek.login.max.failures": max_failures,
            "odradek.login.failure.window.ms": 60_000,
            "connection.failed.authentication.delay.ms": 0,
        }
        config: Any = SimpleNamespace(number=settings.__getitem__)
        clock: Any = SimpleNamespace(monotonic=lambda: self.seconds, now_ms=lambda: WALL_MS)
        users = PlainUsers({"alice": "secret", "bob": "other"})
        mechanisms = "PLAIN", "SCRAM-SHA-256", *(["OAUTHBEARER"] if bearer is not None else [])
        reauth = dict.fromkeys(mechanisms, max_reauth_ms)
        listener = SaslListener("SASL", mechanisms, users, reauth, 100, bearer, None)
        audit: Any = SimpleNamespace(
            logged_in=lambda _session, *how: self.audited.append(("in", *how)),
            login_failed=lambda *how: self.audited.append(("failed", *how)),
        )
        self.image = ClusterImage()
        credentials = Credentials(self, lambda: self.image)
        self.logins = Logins(1, config, {"SASL": listener}, credentials, clock, audit)

    def nonce(self) -> bytes:
        return b"n" * 18

    async def read(self) -> bytes:
        return b"secret of brokers"

    def connect(self, listener: str = "SASL", host: str = "10.0.0.1") -> Session:
        session = Session(listener, host)
        self.logins.admit(session)
        return session

    def log_in(self, session: Session, message: bytes = RIGHT, mechanism: str = "PLAIN") -> Any:
        choice = self.logins.choose(session, mechanism, 1)
        assert (choice.code, choice.ends) == (ErrorCode.NONE, "")
        return run(self.logins.step(session, message))


def run(work: Awaitable[T]) -> T:
    async def wait() -> T:
        return await work

    return asyncio.run(wait())


def gate_of(session: Session) -> SaslGate:
    assert isinstance(session.gate, SaslGate)
    return session.gate


def test_listener_without_sasl_asks_for_no_login() -> None:
    broker = Broker()
    session = broker.connect("PLAINTEXT")
    assert (session.gate, session.authentication) == (None, Authentication.NOT_REQUIRED)
    assert broker.logins.choose(session, "PLAIN", 1).code is ErrorCode.ILLEGAL_SASL_STATE
    assert run(broker.logins.step(session, RIGHT)).code is ErrorCode.ILLEGAL_SASL_STATE
    assert broker.audited == []


def test_login_makes_the_session_the_users() -> None:
    broker = Broker()
    session = broker.connect()
    assert session.authentication is Authentication.REQUIRED
    answer = broker.log_in(session)
    assert (answer.code, answer.lifetime_ms, answer.ends) == (ErrorCode.NONE, 0, "")
    assert (session.authentication, session.login) == (Authentication.COMPLETE, None)
    assert (session.principal, session.broker_id) == (Principal("User", "alice"), None)
    assert session.gate is None, "a session without a limit needs no gate"
    assert broker.audited == [("in", "PLAIN", "User:alice")]


def test_message_before_a_mechanism_is_chosen_is_illegal() -> None:
    broker = Broker()
    session = broker.connect()
    assert run(broker.logins.step(session, RIGHT)).code is ErrorCode.ILLEGAL_SASL_STATE
    broker.log_in(session)
    assert run(broker.logins.step(session, RIGHT)).code is ErrorCode.ILLEGAL_SASL_STATE


def test_listener_with_several_mechanisms_begins_the_chosen_exchange() -> None:
    bearer: Any = SimpleNamespace()
    broker = Broker(bearer=bearer)
    for mechanism, login in (("PLAIN", PlainLogin), ("OAUTHBEARER", BearerLogin), ("SCRAM-SHA-256", ScramLogin)):
        session = broker.connect()
        assert broker.logins.choose(session, mechanism, 1).code is ErrorCode.NONE
        assert type(session.login) is login


def test_unknown_mechanism_is_answered_with_those_of_the_listener() -> None:
    broker = Broker()
    choice = broker.logins.choose(broker.connect(), "GSSAPI", 1)
    assert (choice.code, tuple(choice.mechanisms)) == (
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ("PLAIN", "SCRAM-SHA-256"),
    )
    assert choice.ends


@pytest.mark.parametrize("message", [WRONG, b"\0carol\0secret", b"no plain", b"\0alice\0" + b"x" * 100])
def test_failed_login_names_no_reason_and_ends(message: bytes) -> None:
    broker = Broker()
    session = broker.connect()
    answer = broker.log_in(session, message)
    assert answer.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism PLAIN"
    )
    assert (answer.ends, session.login) == ("authentication failed", None)
    assert session.authentication is not Authentication.COMPLETE
    assert broker.audited[0][:4] == ("failed", "10.0.0.1", "SASL", "PLAIN")


def test_message_of_the_largest_size_is_read() -> None:
    broker = Broker()
    session = broker.connect()
    message = b"\0alice\0" + b"x" * 93
    assert len(message) == 100
    broker.log_in(session, message)
    assert broker.audited[0][-1] == "the name or the password is wrong"
    broker.log_in(broker.connect(), message + b"x")
    assert broker.audited[1][-1] == "the message exceeds sasl.server.max.receive.size"


def test_limit_of_an_address_holds_for_logins_that_began_before() -> None:
    broker = Broker(max_failures=3)
    sessions = [broker.connect() for _ in range(5)]
    for session in sessions:
        assert broker.logins.choose(session, "PLAIN", 1).ends == ""
    answers = [run(broker.logins.step(session, WRONG)) for session in sessions[:4]]
    assert [answer.ends for answer in answers] == [*["authentication failed"] * 3, TOO_MANY]
    assert (len(broker.audited), answers[3].message) == (3, answers[0].message)
    right = run(broker.logins.step(sessions[4], RIGHT))
    assert (right.code, right.ends) == (ErrorCode.SASL_AUTHENTICATION_FAILED, TOO_MANY)
    assert sessions[4].principal == ANONYMOUS


def test_rejected_token_counts_once_whether_it_is_acknowledged_or_not() -> None:
    async def check(_message: object) -> Proven:
        raise SaslError("the token has expired")

    broker = Broker(bearer=SimpleNamespace(check=check), max_failures=3)
    message = b"n,,\x01auth=Bearer abc\x01\x01"
    for _ in range(2):
        session = broker.connect()
        assert broker.log_in(session, message, "OAUTHBEARER").data == INVALID_TOKEN
    assert broker.audited == [("failed", "10.0.0.1", "SASL", "OAUTHBEARER", None, "the token has expired")] * 2
    assert run(broker.logins.step(session, b"\x01")).ends == "authentication failed"
    assert len(broker.audited) == 2
    broker.log_in(broker.connect(), message, "OAUTHBEARER")
    assert broker.logins.choose(broker.connect(), "PLAIN", 1).ends == TOO_MANY


@pytest.mark.parametrize(("limit", "is_blocked"), [(3, True), (4, False), (0, False)])
def test_address_with_too_many_failures_is_turned_away(limit: int, is_blocked: bool) -> None:
    broker = Broker(max_failures=limit)
    for _ in range(3):
        broker.log_in(broker.connect(), WRONG)
    choice = broker.logins.choose(broker.connect(), "PLAIN", 1)
    assert choice.ends == (TOO_MANY if is_blocked else "")
    assert broker.logins.choose(broker.connect(host="10.0.0.2"), "PLAIN", 1).ends == ""
    broker.seconds += 61
    assert broker.logins.choose(broker.connect(), "PLAIN", 1).ends == ""


# --- sessions that end ---


class Exchange:
    """One that ends with its first message."""

    mechanism = "PLAIN"
    claimed = "alice"

    def __init__(self, proven: Proven | None) -> None:
        self.proven = proven

    async def step(self, _message: bytes) -> bytes:
        return b"answer"


@pytest.mark.parametrize(
    ("max_reauth_ms", "expires_ms", "lifetime_ms"),
    [
        (0, None, 0),
        (5000, None, 5000),
        (0, WALL_MS + 700, 700),
        (5000, WALL_MS + 700, 700),
        (500, WALL_MS + 700, 500),
        (0, WALL_MS, 1),
        (0, WALL_MS - 9, 1),
    ],
)
def test_session_lasts_as_long_as_listener_and_credential_allow(
    max_reauth_ms: int, expires_ms: float | None, lifetime_ms: int
) -> None:
    broker = Broker(max_reauth_ms=max_reauth_ms)
    session = broker.connect()
    broker.logins.choose(session, "PLAIN", 1)
    session.login = Exchange(Proven(Principal("User", "alice"), expires_ms))
    answer = run(broker.logins.step(session, b""))
    assert (answer.lifetime_ms, answer.data) == (lifetime_ms, b"answer")
    assert (session.gate is not None) is bool(lifetime_ms)


def test_incomplete_exchange_continues() -> None:
    broker = Broker()
    session = broker.connect()
    broker.logins.choose(session, "PLAIN", 1)
    session.login = Exchange(None)
    answer = run(broker.logins.step(session, b""))
    assert (answer.data, answer.code, session.authentication) == (b"answer", 0, Authentication.IN_PROGRESS)


def test_broker_that_proves_itself_has_no_limit_and_no_audit_record() -> None:
    broker = Broker(max_reauth_ms=5000)
    session = broker.connect()
    assert broker.logins.choose(session, BROKERS, 1).code is ErrorCode.NONE
    session.login = Exchange(Proven(Principal("User", "broker-2"), broker_id=2))
    assert run(broker.logins.step(session, b"")).lifetime_ms == 0
    assert (session.broker_id, session.gate, broker.audited) == (2, None, [])


@pytest.mark.parametrize(("version", "code"), [(0, ErrorCode.ILLEGAL_SASL_STATE), (1, ErrorCode.NONE)])
def test_proof_of_a_broker_needs_its_messages_in_requests(version: int, code: ErrorCode) -> None:
    broker = Broker()
    for listener in ("SASL", "PLAINTEXT"):
        session = broker.connect(listener)
        assert broker.logins.choose(session, BROKERS, version).code is code
        assert (session.login is not None) is (code is ErrorCode.NONE)


def test_broker_sends_its_proof_to_a_listener_with_sasl() -> None:
    """On a cluster whose only listener has SASL, brokers could not connect to each other otherwise."""
    broker = Broker()
    session = broker.connect()
    gate = gate_of(session)
    assert gate(frame(ApiKey.SASL_HANDSHAKE), CONNECTION) is None
    assert broker.logins.choose(session, BROKERS, 1).code is ErrorCode.NONE
    assert gate.step is Step.TOKENS
    assert gate(frame(ApiKey.SASL_AUTHENTICATE), CONNECTION) is None


def test_peer_that_is_logged_in_cannot_become_a_broker() -> None:
    broker = Broker()
    session = broker.connect()
    broker.log_in(session)
    assert broker.logins.choose(session, BROKERS, 1).code is ErrorCode.ILLEGAL_SASL_STATE


def test_failed_proof_of_a_broker_leaves_a_plain_listener_open() -> None:
    broker = Broker()
    session = broker.connect("PLAINTEXT")
    broker.logins.choose(session, BROKERS, 1)

    class Failing(Exchange):
        async def step(self, _message: bytes) -> bytes:
            raise SaslError("wrong")

    session.login = Failing(None)
    answer = run(broker.logins.step(session, b""))
    assert (answer.code, answer.message, answer.ends) == (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        "Authentication failed.",
        "",
    )
    assert session.authentication is Authentication.NOT_REQUIRED
    assert len(broker.audited) == 1


def test_failed_proofs_of_brokers_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    session = broker.connect("PLAINTEXT")
    for _ in range(3 * LINES_PER_SECOND):
        broker.logins.choose(session, BROKERS, 1)
        run(broker.logins.step(session, b"no claim"))
    line = "rejected the proof of a broker from 10.0.0.1: the claim is not one of this version"
    assert caplog.messages == [line] * LINES_PER_SECOND


# --- the gate of an open session ---


def frame(key: int, version: int = 1) -> memoryview:
    return memoryview(key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True) + bytes(6))


CONNECTION: Any = SimpleNamespace()


def test_session_ends_unless_the_client_authenticates_again() -> None:
    broker = Broker(max_reauth_ms=5000)
    session = broker.connect()
    broker.log_in(session)
    gate = gate_of(session)
    broker.seconds += 4.99
    assert gate(frame(ApiKey.METADATA), CONNECTION) is None
    broker.seconds += 0.01
    with pytest.raises(Disconnect, match="the session expired"):
        gate(frame(ApiKey.METADATA), CONNECTION)
    assert gate(frame(ApiKey.SASL_HANDSHAKE), CONNECTION) is None, "it may still authenticate"
    assert broker.log_in(session).lifetime_ms == 5000
    broker.seconds += 4.99
    assert gate(frame(ApiKey.METADATA), CONNECTION) is None


def admits_handshake(gate: SaslGate) -> bool:
    return gate.admits_handshake


def test_client_may_not_authenticate_again_at_once() -> None:
    broker = Broker(max_reauth_ms=5000)
    session = broker.connect()
    broker.log_in(session)
    gate = gate_of(session)
    assert gate(frame(ApiKey.SASL_HANDSHAKE), CONNECTION) is None
    assert admits_handshake(gate)
    broker.log_in(session)
    broker.seconds += 0.99
    assert gate(frame(ApiKey.SASL_HANDSHAKE), CONNECTION) is None
    assert not admits_handshake(gate), "the handshake is served, and rejected as out of place"
    assert broker.logins.choose(session, "PLAIN", 1).code is ErrorCode.ILLEGAL_SASL_STATE
    broker.seconds += 0.01
    gate(frame(ApiKey.SASL_HANDSHAKE), CONNECTION)
    assert admits_handshake(gate)


@pytest.mark.parametrize(
    ("mechanism", "message", "reason"),
    [
        ("PLAIN", OF_BOB, "cannot change the principal from 'User:alice' to 'User:bob'"),
        ("SCRAM-SHA-256", RIGHT, "cannot change the mechanism from PLAIN to SCRAM-SHA-256"),
    ],
)
def test_second_login_cannot_change_the_user_or_the_mechanism(mechanism: str, message: bytes, reason: str) -> None:
    broker = Broker(max_reauth_ms=5000)
    session = broker.connect()
    broker.log_in(session)
    gate_of(session)(frame(ApiKey.SASL_HANDSHAKE), CONNECTION)
    answer = broker.log_in(session, message, mechanism)
    assert (answer.code, answer.ends) == (ErrorCode.SASL_AUTHENTICATION_FAILED, "re-authentication failed")
    assert reason in broker.audited[-1][-1]
    assert session.principal.name == "alice"


@pytest.mark.parametrize(
    ("keys", "last_is_served"),
    [
        ([(ApiKey.API_VERSIONS, 3), (ApiKey.SASL_HANDSHAKE, 1)], True),
        ([(ApiKey.API_VERSIONS, 99), (ApiKey.API_VERSIONS, 3)], True),
        ([(ApiKey.API_VERSIONS, 0), (ApiKey.API_VERSIONS, 0)], False),
        ([(ApiKey.API_VERSIONS, -1), (ApiKey.API_VERSIONS, 0)], True),
        ([(ApiKey.SASL_HANDSHAKE, 1)], True),
        ([(ApiKey.SASL_AUTHENTICATE, 1)], False),
        ([(ApiKey.METADATA, 1)], False),
        ([(ApiKey.API_VERSIONS, 3), (ApiKey.METADATA, 1)], False),
    ],
)
def test_login_begins_with_versions_or_a_handshake(keys: list[tuple[int, int]], last_is_served: bool) -> None:
    gate = gate_of(Broker().connect())
    for key, version in keys[:-1]:
        assert gate(frame(key, version), CONNECTION) is None
    if last_is_served:
        assert gate(frame(*keys[-1]), CONNECTION) is None
    else:
        with pytest.raises(Disconnect):
            gate(frame(*keys[-1]), CONNECTION)


# --- messages without a request around them ---


def raw(message: bytes) -> tuple[list[Any], list[str], Session]:
    """What an old client's message is answered with, and why its connection was closed."""
    answered: list[Any] = []
    closed: list[str] = []

    async def scenario() -> Session:
        broker = Broker()
        session = broker.connect()
        assert broker.logins.choose(session, "PLAIN", 0).code is ErrorCode.NONE
        connection: Any = SimpleNamespace(close=closed.append)
        gate = gate_of(session)
        assert gate.step is Step.RAW_TOKENS
        pending = gate(memoryview(message), connection)
        assert pending is not None
        for _ in range(100):
            await asyncio.sleep(0)
        answered.extend(pending.parts or ())
        return session

    return answered, closed, asyncio.run(scenario())


def test_raw_message_is_answered_with_a_raw_one() -> None:
    answered, closed, session = raw(RIGHT)
    assert ([bytes(part) for part in answered], closed) == ([b"\0\0\0\0"], [])
    assert session.authentication is Authentication.COMPLETE


def test_raw_message_of_a_failed_login_is_not_answered() -> None:
    answered, closed, session = raw(WRONG)
    assert (answered, closed) == ([], ["authentication failed"])
    assert session.authentication is not Authentication.COMPLETE


def set_scram_users(broker: Broker, iterations: int, *names: str) -> None:
    """Give these users credentials with that many iterations; no other users have any."""
    credential = ScramCredential(b"salt" * 6, b"k" * 32, b"k" * 32, iterations)
    configs = {ClientEntity(name): {Mechanism.SCRAM_SHA_256.config_name: credential.text()} for name in names}
    broker.image = ClusterImage().with_client_configs(configs)


def scram_challenge(broker: Broker, user: str) -> dict[str, str]:
    answer = broker.log_in(broker.connect(), b"n,,n=%s,r=nonce" % user.encode(), "SCRAM-SHA-256")
    assert answer.code is ErrorCode.NONE
    return dict(field.split("=", 1) for field in answer.data.decode().split(","))


def test_unknown_user_resembles_the_present_users() -> None:
    """A client cannot find out by the number of iterations, or by the salt, which names are those of users."""
    broker = Broker()
    assert scram_challenge(broker, "stranger")["i"] == "4096", "there are no users to resemble"
    for iterations in (8192, 10_000, 8192):
        set_scram_users(broker, iterations, "alice", "bob")
        known, unknown = scram_challenge(broker, "alice"), scram_challenge(broker, "stranger")
        assert (known["i"], unknown["i"]) == (str(iterations), str(iterations))
        assert len(known["s"]) == len(unknown["s"])
        assert unknown == scram_challenge(broker, "stranger"), "it has the same salt each time"
    assert scram_challenge(broker, "stranger")["s"] != scram_challenge(broker, "another")["s"]
