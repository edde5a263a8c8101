"""The table of gaps."""

from __future__ import annotations

from tests.faults.gaps import Spread, spreads, table
from tests.faults.judge import Gap


def gap(seconds: float, event: int, kind: str = "kill", client: str = "steady", partition: int = 0) -> Gap:
    return Gap(seconds, kind, client, ("steady", partition), 0.0, event)


def test_longest_partition_of_each_fault_counts() -> None:
    gaps = [gap(1.0, 0), gap(3.0, 0, partition=1), gap(5.0, 1), gap(7.0, 2), gap(0.5, 2, partition=1)]
    assert spreads(gaps) == {("kill", "steady"): Spread(3, 5.0, 7.0)}


def test_table_shows_deployments_side_by_side() -> None:
    ours = [gap(1.0, 0), gap(2.0, 1, "cut"), gap(4.0, 2, "cut")]
    theirs = [gap(9.0, 0)]
    head, *rows = (line.split() for line in table([("Odradek", ours), ("Apache", theirs)], ["steady"]))
    assert head[-4:] == ["Odradek:", "steady", "Apache:", "steady"]
    assert rows == [["cut", "2+0", "3.0", "/", "4.0", "-"], ["kill", "1+1", "1.0", "/", "1.0", "9.0", "/", "9.0"]]
