"""Where the replicas of the quorum are reached: by the log's voters, by what other replicas answer, by the settings.

Source: KIP-853; Kafka's `VoterSet.listeners`, `LeaderEndpoints`, `KafkaRaftClient.discoverLeader`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odradek.kraft.metadata_observer import Server
from odradek.kraft.raft.quorum import BOOTSTRAP_NODE, Quorum


class ReplicaAddresses(Mapping[int, Server]):
    """Addresses on the first controller listener, by node id; from `BOOTSTRAP_NODE` downward the bootstrap servers."""

    __slots__ = ("_bootstrap", "_learned", "_listener_name", "_quorum", "_settings")

    def __init__(
        self, quorum: Quorum, listener_name: str, settings: Mapping[int, Server], bootstrap: Sequence[Server]
    ) -> None:
        """`settings` has the voters of `controller.quorum.voters` and this node."""
        self._quorum = quorum
        self._listener_name = listener_name
        self._settings = settings
        self._bootstrap = bootstrap
        self._learned: dict[int, Server] = {}

    def __getitem__(self, node_id: int) -> Server:
        place = BOOTSTRAP_NODE - node_id
        if 0 <= place < len(self._bootstrap):
            return self._bootstrap[place]
        voter = self._quorum.voters.find(node_id)
        endpoint = None if voter is None else voter.endpoint(self._listener_name)
        if endpoint is not None:
            return Server(endpoint.host, endpoint.port)
        found = self._settings.get(node_id)
        return self._learned[node_id] if found is None else found

    def __iter__(self) -> Iterator[int]:
        """The nodes, without the bootstrap servers."""
        voters = (each for each in self._quorum.voters.ids if self.get(each) is not None)
        return iter(sorted({*self._settings, *self._learned, *voters}))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def learn_of(self, message: Any) -> None:
        """Keep the addresses in a message of another replica: of the leader, which may be no voter of this log yet."""
        for each in getattr(message, "node_endpoints", ()):
            self._learned[each.node_id] = Server(each.host, each.port)

    def learn_leader(self, message: Any) -> None:
        """Keep the address of the leader that announces itself (BeginQuorumEpoch)."""
        endpoints = [each for each in message.leader_endpoints if each.name.upper() == self._listener_name]
        if endpoints and message.topics and message.topics[0].partitions:
            leader_id = message.topics[0].partitions[0].leader_id
            self._learned[leader_id] = Server(endpoints[0].host, endpoints[0].port)
