"""Lines for operators: what they name, and that they stay few."""

import logging

import pytest

from odradek.controller.change_report import change_report, some_of
from odradek.metadata.image import NO_LEADER, Broker, ClientEntity, ClusterImage, Endpoint, PartitionState, Topic
from odradek.metadata.nodes import id_text

ID = bytes(range(16))
STATE = PartitionState(1, 4, (1, 2, 3), (1, 2, 3))


def topic(name: str, *states: PartitionState, configs: dict[str, str] | None = None, topic_id: bytes = ID) -> Topic:
    return Topic(name, topic_id, states, configs or {})


def image(*topics: Topic) -> ClusterImage:
    return ClusterImage().with_topics(topics)


def lines(old: ClusterImage, new: ClusterImage) -> list[str]:
    return [text for _, text in change_report(old, new)]


def one_line(before: PartitionState, after: PartitionState) -> str:
    (line,) = lines(image(topic("orders", before)), image(topic("orders", after)))
    return line


def test_created_topic_is_reported_with_id_and_settings() -> None:
    created = image(topic("orders", STATE, STATE, configs={"retention.ms": "5"}))
    assert lines(image(), created) == [
        f"topic orders (id {id_text(ID)}) created: 2 partitions, replication factor 3, retention.ms=5"
    ]


def test_deleted_topic_is_reported() -> None:
    old = image(topic("orders", STATE))
    (line,) = lines(old, old.without_topics(["orders"]))
    assert line == f"topic orders (id {id_text(ID)}) deleted: 1 partition, replication factor 3"


def test_recreated_topic_is_deleted_and_created() -> None:
    other = bytes(16)
    found = lines(image(topic("orders", STATE)), image(topic("orders", STATE, topic_id=other)))
    assert [line.split(":")[0] for line in found] == [
        f"topic orders (id {id_text(other)}) created",
        f"topic orders (id {id_text(ID)}) deleted",
    ]


def test_many_topics_are_one_line() -> None:
    created = image(*(topic(f"t{i:02}", *[STATE] * 100) for i in range(100)))
    assert lines(image(), created) == ["100 topics with 10000 partitions created: t00, t01, t02, t03, t04 and 95 more"]


def test_added_partitions_are_one_line() -> None:
    found = lines(image(topic("orders", STATE)), image(topic("orders", *[STATE] * 10_000)))
    assert found == ["topic orders: 9999 partitions added, now 10000"]


def test_new_leaders_are_one_line_for_each_pair_of_brokers() -> None:
    before = image(topic("b", *[STATE] * 7), topic("bills", STATE))
    moved = STATE._replace(leader=2, leader_epoch=5)
    after = image(topic("b", *[moved] * 7), topic("bills", STATE._replace(leader=3, leader_epoch=5)))
    assert sorted(lines(before, after)) == [
        "broker 2 replaces broker 1 as leader of 7 partitions: b-0, b-1, b-2, b-3, b-4 and 2 more",
        "broker 3 replaces broker 1 as leader of 1 partition: bills-0",
    ]


def test_partition_without_leader_is_a_warning() -> None:
    after = STATE._replace(leader=NO_LEADER, leader_epoch=5)
    ((level, text),) = change_report(image(topic("orders", STATE)), image(topic("orders", after)))
    assert level == logging.WARNING
    assert text == "broker 1 no longer leads, and no other can lead, 1 partition: orders-0"
    assert one_line(after, STATE) == "no broker led; broker 1 now leads 1 partition: orders-0"


def test_isr_changes_name_the_broker() -> None:
    small = STATE._replace(isr=(1, 2), partition_epoch=1)
    assert one_line(STATE, small) == "broker 3 left the ISR of 1 partition: orders-0"
    assert one_line(small, STATE._replace(partition_epoch=2)) == "broker 3 joined the ISR of 1 partition: orders-0"


def test_reassignment_is_reported_from_start_to_end() -> None:
    after = PartitionState(1, 4, (1, 2), (1, 2))
    moving = PartitionState(1, 4, (1, 3, 2), (1, 2), 1, adding_replicas=(3,), removing_replicas=(2,))
    done = PartitionState(1, 4, (1, 3), (1, 3), 2)
    cancelled = after._replace(partition_epoch=2)
    assert one_line(after, moving) == "reassignment from [1, 2] to [1, 3] started for 1 partition: orders-0"
    assert one_line(moving, cancelled) == "reassignment cancelled, replicas [1, 2], of 1 partition: orders-0"
    found = lines(image(topic("orders", moving)), image(topic("orders", done)))
    assert "reassignment completed, replicas [1, 3], of 1 partition: orders-0" in found


def test_cancelled_removal_is_not_a_completion() -> None:
    shrinking = PartitionState(1, 4, (1, 2, 3), (1, 2, 3), removing_replicas=(3,))
    kept = PartitionState(1, 4, (1, 2, 3), (1, 2, 3), 1)
    shrunk = PartitionState(1, 4, (1, 2), (1, 2), 1)
    assert one_line(shrinking, kept).startswith("reassignment cancelled")
    assert one_line(shrinking, shrunk).startswith("reassignment completed, replicas [1, 2]")


def test_brokers_are_reported_with_epoch_and_address() -> None:
    broker = Broker(2, 7, "room-a", {"PLAINTEXT": Endpoint("h", 9092, "PLAINTEXT")})
    one = ClusterImage().with_brokers({2: broker})
    assert lines(ClusterImage(), one) == ["broker 2 registered: epoch 7, PLAINTEXT://h:9092, rack room-a"]
    assert lines(one, one.with_broker(broker._replace(fenced=True))) == ["broker 2 is fenced: it is silent"]
    leaving = one.with_broker(broker._replace(in_controlled_shutdown=True))
    assert lines(one, leaving) == ["broker 2 is in controlled shutdown"]
    again = one.with_brokers({2: broker._replace(epoch=9, unclean=True)})
    assert lines(one, again)[0].startswith("broker 2 registered again: epoch 9, ")
    assert lines(one, one.with_brokers({})) == ["broker 2 is gone: its registration of epoch 7 ended"]


def test_configuration_changes_name_old_and_new_values() -> None:
    before = image(topic("orders", STATE, configs={"retention.ms": "5", "segment.ms": "9"}))
    after = before.with_topic_configs("orders", {"retention.ms": "6"})
    assert lines(before, after) == [
        "configuration of topic orders changed: retention.ms = 6 (was 5), segment.ms deleted (was 9)"
    ]


def test_setting_without_effect_is_a_warning() -> None:
    after = ClusterImage().with_broker_configs("1", {"num.io.threads": "16"})
    first, (level, text) = change_report(ClusterImage(), after)
    assert first.text == "configuration of broker 1 changed: num.io.threads = 16"
    assert level == logging.WARNING
    assert text.startswith("num.io.threads of broker 1 has no effect (sizes of thread pools; ")
    group = ClusterImage().with_group_configs("g", {"share.session.timeout.ms": "50000"})
    assert "share.session.timeout.ms of group g has no effect" in lines(ClusterImage(), group)[1]
    (_, created) = lines(image(), image(topic("orders", STATE, configs={"preallocate": "true"})))
    assert created.startswith("preallocate of topic orders has no effect")


def test_secrets_are_hidden() -> None:
    plug_in = ClusterImage().with_broker_configs("1", {"some.plug-in.token": "hunter2"})
    assert lines(ClusterImage(), plug_in)[0].endswith("changed: some.plug-in.token = [hidden]")
    scram = ClusterImage().with_client_configs({ClientEntity("alice"): {"SCRAM-SHA-256": "hunter2"}})
    (line,) = lines(ClusterImage(), scram)
    assert "alice" in line
    assert "hunter2" not in line


def test_settings_of_client_metrics_are_shown() -> None:
    after = ClusterImage().with_client_metrics("all", {"interval.ms": "1000"})
    assert lines(ClusterImage(), after) == [
        "configuration of client metrics subscription all changed: interval.ms = 1000"
    ]


def test_unchanged_cluster_gives_no_lines() -> None:
    same = image(topic("orders", STATE))
    assert lines(same, same) == []
    assert lines(same, same.with_topics([topic("orders", STATE)])) == []


@pytest.mark.parametrize(
    ("sizes", "text"), [((3, 3), "3"), ((1, 3), "1-3"), ((1, 2, 3), "1-3"), ((1, 2, 2, 4), "1-4"), ((2,), "2")]
)
def test_created_topic_has_its_least_and_largest_replication(sizes: tuple[int, ...], text: str) -> None:
    states = [STATE._replace(replicas=tuple(range(size)), isr=(0,)) for size in sizes]
    (line,) = lines(image(), image(topic("orders", *states)))
    assert line.endswith(f"replication factor {text}")


@pytest.mark.parametrize(("count", "are_listed"), [(10, True), (11, False)])
def test_up_to_ten_topics_have_a_line_each(count: int, are_listed: bool) -> None:
    created = image(*(topic(f"t{index:02}", STATE) for index in range(count)))
    assert len(lines(image(), created)) == (count if are_listed else 1)
    settings = image(*(topic(f"t{index:02}", STATE, configs={"retention.ms": "5"}) for index in range(count)))
    assert len(lines(created, settings)) == (count if are_listed else 1)


@pytest.mark.parametrize(("count", "text"), [(5, "a, b, c, d, e"), (6, "a, b, c, d, e and 1 more"), (1, "a")])
def test_five_subjects_are_named(count: int, text: str) -> None:
    assert some_of("abcdef"[:count]) == text


def test_deleted_topics_are_reported_beside_many_created_ones() -> None:
    old = image(topic("old", STATE, topic_id=b"o" * 16))
    new = image(*(topic(f"t{index:02}", STATE, topic_id=bytes([index]) * 16) for index in range(11)))
    created, deleted = lines(old, new)
    assert created.startswith("11 topics with 11 partitions created")
    assert deleted.startswith("topic old ")


def test_new_partition_does_not_hide_a_change_of_another() -> None:
    after = STATE._replace(leader=2, leader_epoch=5)
    found = lines(image(topic("orders", STATE, STATE)), image(topic("orders", STATE, after, STATE)))
    assert found == [
        "topic orders: 1 partition added, now 3",
        "broker 2 replaces broker 1 as leader of 1 partition: orders-1",
    ]


def test_unchanged_setting_does_not_hide_a_changed_one() -> None:
    before = image(topic("orders", STATE, configs={"a": "1", "retention.ms": "5", "segment.ms": "7"}))
    after = image(topic("orders", STATE, configs={"a": "1", "retention.ms": "6", "segment.ms": "7"}))
    assert lines(before, after) == ["configuration of topic orders changed: retention.ms = 6 (was 5)"]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({}, {"fenced": True}, "broker 1 is fenced: it is silent"),
        ({"fenced": True}, {}, "broker 1 is no longer fenced"),
        ({}, {"in_controlled_shutdown": True}, "broker 1 is in controlled shutdown"),
        (
            {"in_controlled_shutdown": True},
            {"in_controlled_shutdown": True, "fenced": True},
            "broker 1 is fenced: it shuts down",
        ),
        ({"fenced": True}, {"fenced": True}, ""),
        ({"in_controlled_shutdown": True}, {"in_controlled_shutdown": True}, ""),
    ],
)
def test_state_of_a_broker_is_reported_when_it_changes(
    before: dict[str, bool], after: dict[str, bool], text: str
) -> None:
    old, new = (
        ClusterImage().with_brokers({1: Broker(1, 5, None, {})._replace(**fields)})  # type: ignore[arg-type]
        for fields in (before, after)
    )
    assert lines(old, new) == ([text] if text else [])


def test_end_of_a_move_is_completed_or_cancelled() -> None:
    moving = STATE._replace(replicas=(1, 2, 3), removing_replicas=(3,))
    assert one_line(moving, STATE._replace(replicas=(1, 2), isr=(1, 2))) == (
        "reassignment completed, replicas [1, 2], of 1 partition: orders-0"
    )
    assert one_line(moving, STATE) == "reassignment cancelled, replicas [1, 2, 3], of 1 partition: orders-0"
    only = STATE._replace(replicas=(1, 2), isr=(1, 2), removing_replicas=(1, 2))
    assert "cancelled" in one_line(only, only._replace(removing_replicas=()))


def test_changed_features_are_named_in_order() -> None:
    old, new = image(), image()
    assert lines(old, new) == []
    new.features = {"kraft.version": 1, "group.version": 2}
    assert lines(old, new) == ["features changed to {'group.version': 2, 'kraft.version': 1}"]
    assert lines(new, new) == []
    assert lines(new, old) == []


def test_created_topics_hide_no_change_of_another() -> None:
    moved = STATE._replace(leader=2)
    found = lines(image(topic("m", STATE)), image(topic("a", STATE), topic("m", moved), topic("z", STATE)))
    assert [line for line in found if "leader" in line] == ["broker 2 replaces broker 1 as leader of 1 partition: m-0"]
