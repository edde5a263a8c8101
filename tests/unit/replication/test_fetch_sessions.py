"""Fetch sessions: epochs, eviction, what an incremental answer has to name."""

from __future__ import annotations

import pytest

from odradek.ports.randomness import SeededRandom
from odradek.replication.fetch_sessions import MAX_EPOCH, FetchSessions
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.fetch import FetchPartition


def asked(index: int, offset: int = 0) -> tuple[tuple[str, int], FetchPartition]:
    return ("t", index), (index, -1, offset, -1, -1, 1 << 20)


def sessions(slots: int = 2) -> FetchSessions:
    return FetchSessions(slots, SeededRandom(1), min_eviction_ms=1000)


def code_of(raised: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return raised.value.code


def test_session_continues_with_the_next_epoch_and_wraps() -> None:
    cache = sessions()
    session = cache.begin([asked(0)], False, 0)
    assert session is not None
    assert session.epoch == 1
    assert cache.find(session.identifier, 1, False, 1).epoch == 2
    session.epoch = MAX_EPOCH
    assert cache.find(session.identifier, MAX_EPOCH, False, 2).epoch == 1


def test_wrong_session_epoch_or_kind_of_topics_is_rejected() -> None:
    cache = sessions()
    session = cache.begin([asked(0)], False, 0)
    assert session is not None
    with pytest.raises(KafkaError) as raised:
        cache.find(session.identifier + 1, 1, False, 1)
    assert code_of(raised) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    with pytest.raises(KafkaError) as raised:
        cache.find(session.identifier, 2, False, 1)
    assert code_of(raised) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    with pytest.raises(KafkaError) as raised:
        cache.find(session.identifier, 1, True, 1)
    assert code_of(raised) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    cache.end(session.identifier)
    with pytest.raises(KafkaError):
        cache.find(session.identifier, 1, False, 1)


def test_partitions_are_added_changed_and_forgotten() -> None:
    session = sessions().begin([asked(0), asked(1)], False, 0)
    assert session is not None
    session.update([asked(2), asked(0, 7)], [("t", 1)])
    assert [(place, entry[2]) for place, entry in session.wanted.items()] == [(("t", 0), 7), (("t", 2), 0)]
    session.serve_last(("t", 0))
    assert list(session.wanted) == [("t", 2), ("t", 0)]


def test_only_changes_are_returned() -> None:
    session = sessions().begin([asked(0)], False, 0)
    assert session is not None
    place = ("t", 0)
    assert session.must_include(place, 0, False, 5, 0)
    assert not session.must_include(place, 0, False, 5, 0)
    assert session.must_include(place, 100, False, 5, 0), "data is always included"
    assert session.must_include(place, 0, False, 6, 0), "so is a moved high watermark"
    assert session.must_include(place, 0, False, 6, 3), "and a moved log start"
    assert session.must_include(place, 0, True, -1, -1), "and a failure, as long as it lasts"
    assert session.must_include(place, 0, True, -1, -1)
    assert session.must_include(place, 0, False, 6, 3), "and its end"


def test_a_full_cache_gives_no_session_until_one_was_long_unused() -> None:
    cache = sessions(slots=2)
    first = cache.begin([asked(0)], False, 0)
    second = cache.begin([asked(0)], False, 10)
    assert first is not None
    assert second is not None
    assert cache.begin([asked(0)], False, 500) is None
    cache.find(first.identifier, 1, False, 600)
    assert cache.begin([asked(0)], False, 1200) is not None
    assert len(cache) == 2
    with pytest.raises(KafkaError):
        cache.find(second.identifier, 1, False, 1300)


def test_no_session_for_nothing_and_none_without_slots() -> None:
    assert sessions().begin([], False, 0) is None
    assert sessions(slots=0).begin([asked(0)], False, 0) is None


def test_failed_partition_is_news_again_when_it_is_well() -> None:
    session = sessions().begin([asked(0)], False, 0)
    assert session is not None
    place = ("t", 0)
    assert session.must_include(place, 0, False, 5, 0)
    assert not session.must_include(place, 0, False, 5, 0)
    assert session.must_include(place, 0, True, -1, -1)
    assert session.must_include(place, 0, False, 5, 0)
    assert session.must_include(place, 10, False, 5, 0)
    assert session.must_include(place, 0, False, 5, 1)
    assert session.must_include(place, 0, False, 6, 1)
    assert not session.must_include(place, 0, False, 6, 1)


def test_forgotten_partition_is_news_when_it_is_wanted_again() -> None:
    session = sessions().begin([asked(0), asked(1)], False, 0)
    assert session is not None
    session.must_include(("t", 0), 0, False, 5, 0)
    session.update([], [("t", 0)])
    session.update([asked(0)], [])
    assert session.must_include(("t", 0), 0, False, 5, 0)


@pytest.mark.parametrize(("idle_ms", "is_evicted"), [(999, False), (1000, True)])
def test_longest_unused_session_makes_room_after_its_time(idle_ms: int, is_evicted: bool) -> None:
    cache = sessions()
    first, second = (cache.begin([asked(0)], False, 5000) for _ in range(2))
    assert first is not None
    assert second is not None
    cache.find(first.identifier, 1, False, 5500)
    third = cache.begin([asked(0)], False, 5000 + idle_ms)
    assert (third is not None) is is_evicted
    assert len(cache) == 2
    assert cache.find(first.identifier, 2, False, 6000) is first, "it was used later"


def test_session_without_partitions_does_not_begin() -> None:
    cache = sessions()
    assert cache.begin([], False, 0) is None
    assert len(cache) == 0
    assert sessions(0).begin([asked(0)], False, 0) is None


def test_serving_a_partition_of_no_session_changes_nothing() -> None:
    session = sessions().begin([asked(0), asked(1)], False, 0)
    assert session is not None
    session.serve_last(("t", 9))
    assert list(session.wanted) == [("t", 0), ("t", 1)]
