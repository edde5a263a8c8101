"""The methods of Java's Admin interface, each with its counterpart in the guide."""

import re
from operator import attrgetter
from pathlib import Path

from odradek.client import Admin

JAVA = """
    abortTransaction addRaftVoter alterClientQuotas alterConsumerGroupOffsets alterPartitionReassignments
    alterReplicaLogDirs alterShareGroupOffsets alterStreamsGroupOffsets alterUserScramCredentials clientInstanceId
    close createAcls createDelegationToken createPartitions createTopics deleteAcls deleteConsumerGroupOffsets
    deleteConsumerGroups deleteRecords deleteShareGroupOffsets deleteShareGroups deleteStreamsGroupOffsets
    deleteStreamsGroups deleteTopics describeAcls describeClassicGroups describeClientQuotas describeCluster
    describeConfigs describeConsumerGroups describeDelegationToken describeFeatures describeLogDirs
    describeMetadataQuorum describeProducers describeReplicaLogDirs describeShareGroups describeStreamsGroups
    describeTopics describeTransactions describeUserScramCredentials electLeaders expireDelegationToken
    fenceProducers forceTerminateTransaction incrementalAlterConfigs listClientMetricsResources listConfigResources
    listConsumerGroupOffsets listConsumerGroups listGroups listOffsets listPartitionReassignments
    listShareGroupOffsets listStreamsGroupOffsets listTopics listTransactions metrics registerMetricForSubscription
    removeMembersFromConsumerGroup removeRaftVoter renewDelegationToken unregisterBroker
    unregisterMetricFromSubscription updateFeatures
"""
"""The methods of org.apache.kafka.clients.admin.Admin in Apache Kafka 4.3, except for its constructor `create`."""


def table() -> dict[str, list[str]]:
    """Our methods by Java's, as the guide has them."""
    text = (Path(__file__).parents[3] / "docs" / "CLIENT.md").read_text()
    rows = text[text.index("| Java's `Admin` | here |") :].split("\n\n")[0].splitlines()[2:]
    found = re.findall(r"^\| `(\w+)` \| (.*) \|$", "\n".join(rows), re.MULTILINE)
    return {java: re.findall(r"`([a-z_.]+)`", ours) for java, ours in found}


def test_guide_has_every_method_of_javas_admin() -> None:
    assert sorted(table()) == sorted(JAVA.split())


def test_every_counterpart_exists() -> None:
    admin = Admin()
    missing = [name for names in table().values() for name in names if not callable(attrgetter(name)(admin))]
    assert missing == []
    assert all(table().values())
