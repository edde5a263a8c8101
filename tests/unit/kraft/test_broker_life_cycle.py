"""The life of a broker in a KRaft cluster, as transcripts of requests and answers."""

from __future__ import annotations

import pytest

from odradek.kraft.broker_life_cycle import BrokerLifeCycle, BrokerState, Identity, Timing
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationRequestFeature,
    BrokerRegistrationRequestListener,
    BrokerRegistrationResponse,
)

LISTENER = BrokerRegistrationRequestListener("PLAINTEXT", "127.0.0.1", 9092, 0)
FEATURE = BrokerRegistrationRequestFeature("metadata.version", 7, 30)
DIRECTORIES = (b"a" * 16, b"b" * 16)
IDENTITY = Identity(7, "cluster", b"i" * 16, [LISTENER], [FEATURE], "rack", DIRECTORIES, 41)


def life_cycle() -> BrokerLifeCycle:
    return BrokerLifeCycle(IDENTITY, Timing(), 0.0)


def registered() -> BrokerLifeCycle:
    found = life_cycle()
    assert isinstance(found.poll(0.0, -1), BrokerRegistrationRequest)
    found.registered(BrokerRegistrationResponse(broker_epoch=42), 0.0)
    return found


def beat(
    found: BrokerLifeCycle, now_ms: float, *, caught_up: bool = True, fenced: bool = False, may_stop: bool = False
) -> BrokerHeartbeatRequest:
    """The heartbeat that is due, which is answered at once."""
    request = found.poll(now_ms, 10)
    assert isinstance(request, BrokerHeartbeatRequest)
    response = BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=fenced, should_shut_down=may_stop)
    found.heartbeat_answered(response, now_ms)
    return request


def running() -> BrokerLifeCycle:
    """A broker that was unfenced at 10 ms."""
    found = registered()
    found.ask_for_unfencing(0.0)
    beat(found, 0.0)
    beat(found, 10.0)
    assert found.state is BrokerState.RUNNING
    return found


def test_registration_names_the_process() -> None:
    request = life_cycle().poll(0.0, -1)
    assert request == BrokerRegistrationRequest(
        7, "cluster", b"i" * 16, [LISTENER], [FEATURE], "rack", False, list(DIRECTORIES), 41
    )


def test_broker_catches_up_then_asks_to_be_unfenced_then_runs() -> None:
    found = registered()
    assert beat(found, 0.0, caught_up=False, fenced=True) == BrokerHeartbeatRequest(7, 42, 10, True, False)
    assert (found.state, found.next_poll_ms) == (BrokerState.STARTING, 10.0)
    beat(found, 10.0, fenced=True)
    assert (found.state, found.next_poll_ms) == (BrokerState.RECOVERY, 20.0)
    assert beat(found, 20.0, fenced=True).want_fence
    assert (found.state, found.next_poll_ms) == (BrokerState.RECOVERY, 2020.0)
    found.ask_for_unfencing(30.0)
    assert not beat(found, 30.0).want_fence
    assert (found.state, found.next_poll_ms) == (BrokerState.RUNNING, 2030.0)


def test_running_broker_that_is_fenced_again_keeps_asking() -> None:
    found = running()
    assert not beat(found, 2010.0, fenced=True).want_fence
    assert found.state is BrokerState.RUNNING


def test_request_is_not_sent_while_another_is_on_its_way() -> None:
    found = registered()
    assert found.poll(0.0, 1) is not None
    assert found.poll(9_000.0, 1) is None
    assert found.next_poll_ms is None


def test_registration_that_fails_is_repeated_after_growing_pauses() -> None:
    found = life_cycle()
    pauses, now = [], 0.0
    for _ in range(9):
        assert isinstance(found.poll(now, -1), BrokerRegistrationRequest)
        found.registered(BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION), now)
        assert found.next_poll_ms is not None
        pauses.append(found.next_poll_ms - now)
        now = found.next_poll_ms
    assert pauses == [100, 200, 400, 800, 1000, 1000, 1000, 1000, 1000]
    assert found.problem == "the controller answers DUPLICATE_BROKER_REGISTRATION"


def test_broker_that_no_controller_registers_shuts_down() -> None:
    found = life_cycle()
    found.poll(0.0, -1)
    found.failed("connection refused", 0.0)
    assert found.poll(60_000.0, -1) is None
    assert found.state is BrokerState.SHUTTING_DOWN
    assert found.problem == "no controller has registered the broker in time: connection refused"


def test_failed_heartbeat_is_repeated_and_success_resets_the_pause() -> None:
    found = running()
    for now, pause in ((2010.0, 100.0), (2110.0, 200.0)):
        found.poll(now, 1)
        found.heartbeat_answered(BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER), now)
        assert found.next_poll_ms == now + pause
    beat(found, 2310.0)
    assert (found.problem, found.next_poll_ms) == ("", 4310.0)
    found.poll(4310.0, 1)
    found.failed("timed out", 4310.0)
    assert found.next_poll_ms == 4410.0


def test_controlled_shutdown_waits_for_the_controller() -> None:
    found = running()
    found.begin_controlled_shutdown(100.0)
    assert beat(found, 100.0).want_shut_down
    assert (found.state, found.next_poll_ms) == (BrokerState.PENDING_CONTROLLED_SHUTDOWN, 150.0)
    beat(found, 150.0)
    assert found.next_poll_ms == 2150.0
    found.begin_controlled_shutdown(160.0)
    beat(found, 2150.0, may_stop=True)
    assert (found.state, found.poll(9_000.0, 1)) == (BrokerState.SHUTTING_DOWN, None)


@pytest.mark.parametrize("make", [life_cycle, registered])
def test_broker_that_does_not_run_yet_shuts_down_at_once(make) -> None:  # type: ignore[no-untyped-def]
    found = make()
    found.begin_controlled_shutdown(0.0)
    assert (found.state, found.poll(0.0, 1)) == (BrokerState.SHUTTING_DOWN, None)


def test_failed_log_directory_is_reported_at_once_and_from_then_on() -> None:
    found = running()
    found.report_offline_log_dir(DIRECTORIES[1], 500.0)
    found.report_offline_log_dir(DIRECTORIES[1], 500.0)
    assert beat(found, 500.0).offline_log_dirs == [DIRECTORIES[1]]
    assert beat(found, 2500.0).offline_log_dirs == [DIRECTORIES[1]]


def test_news_during_a_heartbeat_is_sent_right_after_its_answer() -> None:
    found = running()
    found.poll(2010.0, 1)
    found.begin_controlled_shutdown(2015.0)
    found.heartbeat_answered(BrokerHeartbeatResponse(), 2020.0)
    assert found.next_poll_ms == 2020.0
    assert beat(found, 2020.0).want_shut_down
    assert found.next_poll_ms == 2070.0


def test_registration_leaves_out_a_directory_that_failed_before() -> None:
    found = life_cycle()
    found.report_offline_log_dir(DIRECTORIES[0], 0.0)
    request = found.poll(0.0, -1)
    assert isinstance(request, BrokerRegistrationRequest)
    assert request.log_dirs == [DIRECTORIES[1]]


def test_broker_registers_again_when_asked() -> None:
    found = running()
    found.register_again(20.0)
    assert found.poll(20.0, 10) == BrokerRegistrationRequest(
        7, "cluster", b"i" * 16, [LISTENER], [FEATURE], "rack", False, list(DIRECTORIES), 41
    )
    found.registered(BrokerRegistrationResponse(broker_epoch=42), 30.0)
    assert (found.state, found.broker_epoch) == (BrokerState.RUNNING, 42)
    assert isinstance(found.poll(30.0, 10), BrokerHeartbeatRequest)


def test_heartbeats_continue_while_a_changed_registration_is_rejected() -> None:
    """Else the broker would lose its session by a registration that it has already."""
    found = running()
    found.register_again(20.0)
    assert isinstance(found.poll(20.0, 10), BrokerRegistrationRequest)
    found.registered(BrokerRegistrationResponse(error_code=int(ErrorCode.NOT_CONTROLLER)), 30.0)
    assert found.broker_epoch == 42
    beat(found, 130.0)
    assert isinstance(found.poll(2130.0, 10), BrokerRegistrationRequest)


def test_registration_under_way_is_not_asked_for_twice() -> None:
    found = running()
    found.register_again(20.0)
    assert isinstance(found.poll(20.0, 10), BrokerRegistrationRequest)
    found.register_again(25.0)
    found.registered(BrokerRegistrationResponse(broker_epoch=42), 30.0)
    assert isinstance(found.poll(30.0, 10), BrokerHeartbeatRequest)
