"""The judge finds what it is there for, and the proxy does what it says."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from odradek.sim.checkers.history import (
    ABORTED,
    COMMITTED,
    OK,
    READ_COMMITTED,
    FinalLog,
    History,
    Looked,
    Reader,
    Seen,
    Send,
    Transaction,
)
from tests.faults import judge
from tests.faults.judge import Event
from tests.faults.links import Links

KEY = ("steady", 0)


def history_of(*numbers: int, acked: int = 4) -> History:
    """Records 0, 1, … of one producer are acknowledged; the log has those named, in their order."""
    history = History()
    for number in range(acked):
        send = Send(b"p:%d:" % number, "p", KEY, number, number * 1.0, state=OK, offset=number, acked_at=number + 0.5)
        send.outcome_at = send.acked_at
        history.send(send)
    seen = [Seen(KEY, offset, b"p:%d:" % number) for offset, number in enumerate(numbers)]
    history.final[KEY] = FinalLog(0, len(seen), seen, list(seen), len(seen))
    return history


def test_a_sound_history_passes() -> None:
    history = history_of(0, 1, 2, 3)
    assert judge.figures(history)[:5] == (4, 0, 0, 0, 0)
    assert judge.violations(history) == judge.lost(history) == []


@pytest.mark.parametrize("epoch", [2, 3])
@pytest.mark.parametrize("is_cluster", [False, True])
def test_end_of_a_log_that_goes_back_is_a_violation(epoch: int, is_cluster: bool) -> None:
    """Also where a deposed leader answers: its lease has ended before its successor begins."""
    history = history_of(0, 1, 2, 3)
    history.looks += [Looked(10, 11, "latest", KEY, 4, 3), Looked(12, 13, "latest", KEY, 2, epoch)]
    assert any("goes back" in violation for violation in judge.violations(history, is_cluster=is_cluster))


@pytest.mark.parametrize(("epoch", "is_violation"), [(2, False), (3, True)])
def test_deposed_leader_of_apache_may_answer_with_an_earlier_end(epoch: int, is_violation: bool) -> None:
    history = history_of(0, 1, 2, 3)
    history.looks += [Looked(10, 11, "latest", KEY, 4, 3), Looked(12, 13, "latest", KEY, 2, epoch)]
    found = judge.violations(history, is_cluster=True, has_apache=True)
    assert any("goes back" in violation for violation in found) is is_violation


@pytest.mark.parametrize(
    ("numbers", "figures", "invariant"),
    [
        ((0, 1, 3), (4, 1, 0, 0, 0), "lost acknowledged write"),
        ((0, 1, 2, 2, 3), (4, 0, 1, 0, 0), "duplicate"),
        ((0, 2, 1, 3), (4, 0, 0, 0, 1), "non-monotonic send"),
    ],
)
def test_what_is_wrong_is_counted_and_named(numbers: tuple[int, ...], figures: tuple[int, ...], invariant: str) -> None:
    history = history_of(*numbers)
    assert judge.figures(history)[:5] == figures
    assert any(invariant in violation for violation in judge.violations(history))


def test_aborted_records_are_seen_at_the_end_and_on_the_way() -> None:
    history = history_of(0, 1, 2, 3)
    send = history.sends[b"p:2:"]
    send.transaction = Transaction("p", 0, 0.0, ABORTED, ended_at=9.0, sends=[send])
    history.transactions.append(send.transaction)
    history.readers.append(Reader("r", READ_COMMITTED, [(5.0, Seen(KEY, 2, b"p:2:"))]))
    assert judge.figures(history).aborted_visible == 2
    send.transaction.state = COMMITTED
    assert judge.figures(history).aborted_visible == 0


class NoLeaderInMemory(Consumer):
    """librdkafka after a Metadata answer without a leader: it answers from memory until it asks for metadata."""

    asked = 0

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float = 0) -> tuple[int, int]:  # type: ignore[override]
        if not self.asked:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return 3, 5

    def list_topics(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        self.asked += 1
        return super().list_topics(timeout=0.01)


def test_offsets_are_asked_for_again_with_fresh_metadata() -> None:
    consumer = NoLeaderInMemory({"bootstrap.servers": "127.0.0.1:1", "group.id": "judge", "log_level": 0})
    try:
        assert judge._watermarks(consumer, KEY) == (3, 5)
    finally:
        consumer.close()


def test_a_write_gap_belongs_to_the_fault_that_most_of_it_lies_in() -> None:
    history = History()
    for number, at in enumerate((0.0, 1.0, 2.0, 7.0, 8.0)):
        history.send(Send(b"p:%d:" % number, "p", KEY, number, at, state=OK, offset=number, acked_at=at))
    gaps = judge.write_gaps(history, [Event("first", 0.5, 2.5), Event("second", 2.5, 7.5)], ["p"])
    assert [(gap.kind, gap.seconds) for gap in gaps] == [("first", 1.0), ("second", 5.0)]


@pytest.fixture
def echo() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=back, args=(connection,), daemon=True).start()

        def back(connection: socket.socket) -> None:
            with connection:
                try:
                    while data := connection.recv(4096):
                        connection.sendall(data)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def test_links_are_cut_stalled_and_refused(echo: int) -> None:
    links = Links({"a": echo}).start()

    def connect() -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", links.ports["a"]), 10)
        connection.sendall(b"1")
        assert connection.recv(1) == b"1"
        return connection

    def is_reset(connection: socket.socket) -> bool:
        with connection:
            try:
                return connection.recv(1) == b""
            except ConnectionResetError:
                return True

    try:
        connection = connect()
        links.obey("a", "cut")
        assert is_reset(connection)
        for action in ("stall", "deaf", "mute"):
            with connect() as connection:
                links.obey("a", action)
                connection.sendall(b"2")
                connection.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
                connection.settimeout(10)
                with socket.create_connection(("127.0.0.1", links.ports["a"]), 10) as newer:
                    newer.sendall(b"3")
                    newer.settimeout(0.1)
                    with pytest.raises(TimeoutError):
                        newer.recv(1)
                    newer.settimeout(10)
                    links.obey("a", "flow")
                    assert connection.recv(1) == b"2", "it comes late"
                    assert newer.recv(1) == b"3", "that of a connection made meanwhile, too"
        connection = connect()
        links.obey("a", "lose")
        connection.sendall(b"3")
        assert is_reset(connection)
        connection = connect()
        links.obey("a", "refuse")
        assert is_reset(connection)
        with pytest.raises(ConnectionRefusedError):
            connect()
        links.obey("a", "flow")
        connect().close()
    finally:
        links.stop()


def test_link_refuses_connections_while_nothing_listens_at_its_target() -> None:
    with socket.create_server(("127.0.0.1", 0)) as target:
        port = target.getsockname()[1]
        links = Links({"a": port}).start()

    def answer() -> str:
        """What a new connection meets."""
        try:
            with socket.create_connection(("127.0.0.1", links.ports["a"]), 10) as connection:
                return "ends" if connection.recv(1) == b"" else "answers"
        except ConnectionRefusedError:
            return "refused"
        except ConnectionResetError:
            return "ends"

    def wait_for(wanted: str) -> None:
        end = time.monotonic() + 30
        while answer() != wanted:
            assert time.monotonic() < end, wanted
            time.sleep(0.01)

    try:
        wait_for("refused")
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            # Another process must not get the port meanwhile: clients would talk to that.
            other.bind(("127.0.0.1", links.ports["a"]))
        with socket.create_server(("127.0.0.1", port)) as target:

            def serve() -> None:
                while True:
                    try:
                        with target.accept()[0] as connection:
                            connection.sendall(b"1")
                    except OSError:
                        return

            threading.Thread(target=serve, daemon=True).start()
            wait_for("answers")
            target.shutdown(socket.SHUT_RDWR)
        wait_for("refused")
    finally:
        links.stop()
