"""The calculation of an exactly-once stream's cost on clusters that were not measured."""

import pytest

from bench.spark_scaling import NODES, PARTITIONS, Cluster, Constants, clusters, cost, table_of

CONSTANTS = Constants(batch=0.2, task=0.01, row=2e-6, broker_row=1e-6, lease=50e-6)
CLUSTER = Cluster(nodes=2, cores=4, partitions=16, rows=1_000_000, spread=True)


def test_executors_work_in_waves_of_as_many_tasks_as_cores() -> None:
    found = cost(CONSTANTS, CLUSTER)
    assert found.executors_s == pytest.approx(2 * (0.01 + 0.125))
    assert cost(CONSTANTS, CLUSTER._replace(partitions=17)).executors_s == pytest.approx(3 * (0.01 + 2 / 17))


def test_lease_server_works_for_each_task_and_partition() -> None:
    assert cost(CONSTANTS, CLUSTER).leases == 256
    assert cost(CONSTANTS, CLUSTER).lease_server_s == pytest.approx(256 * 50e-6)
    assert cost(CONSTANTS, CLUSTER._replace(spread=False)).leases == 16


def test_batch_takes_the_longer_of_executors_and_lease_server() -> None:
    found = cost(CONSTANTS, CLUSTER)
    assert found.batch_s == pytest.approx(0.2 + 0.27)
    assert found.rows_per_s == pytest.approx(1_000_000 / 0.47)
    assert found.broker_cores == pytest.approx(1 / 0.47)
    many = cost(CONSTANTS, CLUSTER._replace(nodes=10, partitions=256))
    assert many.batch_s == pytest.approx(0.2 + 256 * 256 * 50e-6)


@pytest.mark.parametrize(
    ("cluster", "limit"),
    [
        (CLUSTER, "executors"),
        (CLUSTER._replace(partitions=256), "lease server"),
        (CLUSTER._replace(rows=10), "a batch's own work"),
    ],
    ids=["rows", "leases", "few rows"],
)
def test_limit_names_the_longest_part(cluster: Cluster, limit: str) -> None:
    assert cost(CONSTANTS, cluster).limit == limit


def test_table_has_every_cluster_with_and_without_repartition() -> None:
    shapes = clusters(4, 1_000_000)
    assert len(set(shapes)) == len(NODES) * len(PARTITIONS) * 2
    assert max(each.nodes for each in shapes) == 10
    head, rule, *rows = table_of(CONSTANTS, shapes)
    assert len(rows) == len(shapes)
    assert {each.count("|") for each in (head, rule, *rows)} == {12}
    assert rows[0] == "| 1 | 4 | 16 | all | 256 | 0.54 | 0.01 | 0.74 | 1.35 | 1.4 | executors |"
