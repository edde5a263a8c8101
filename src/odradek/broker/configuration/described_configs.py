"""Settings of topics, brokers, groups and clients, as this broker sees them: the answers to DescribeConfigs."""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.controller.configs import ResourceType
from odradek.controller.topics import CreatedTopic
from odradek.metadata.configs.client_metrics import describe_client_metrics
from odradek.metadata.configs.described import (
    Described,
    describe_broker,
    describe_broker_default,
    describe_group,
    describe_topic,
)
from odradek.metadata.image import DEFAULT_BROKER
from odradek.wire.errors import ErrorCode, KafkaError


class DescribedConfigs:
    """Configurations with their sources and synonyms."""

    __slots__ = ("_config", "_node_id", "_view")

    def __init__(self, view: ClusterView, config: BrokerConfig) -> None:
        self._view = view
        self._config = config
        self._node_id = config.node_id

    def describe(
        self, resource_type: int, name: str, keys: Iterable[str] | None, *, documentation: bool
    ) -> list[Described]:
        """Raises KafkaError for a resource that does not exist or that another broker has to answer for."""
        image = self._view.image
        if resource_type == ResourceType.TOPIC:
            if name not in image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(image.topic_configs(name), self._config, keys, documentation=documentation)
        if resource_type == ResourceType.BROKER:
            return self._broker(name, keys, documentation=documentation)
        if resource_type == ResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            configs = image.group_configs.get(name, {})
            return describe_group(configs, self._config, keys, documentation=documentation)
        if resource_type == ResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            return describe_client_metrics(image.client_metrics.get(name, {}), keys, documentation=documentation)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")

    def _broker(self, name: str, keys: Iterable[str] | None, *, documentation: bool) -> list[Described]:
        if name == DEFAULT_BROKER:
            configs = self._view.image.broker_configs.get(name, {})
            return describe_broker_default(configs, keys, documentation=documentation)
        if not name.isascii() or not name.isdecimal():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
        if int(name) != self._node_id:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {self._node_id} or empty string, but received {name}",
            )
        return describe_broker(self._config, keys, documentation=documentation)

    def describe_new_topic(self, topic: CreatedTopic) -> list[Described]:
        """The configuration of a topic that may exist only in a validated request."""
        return describe_topic({} if topic.topic is None else topic.topic.configs, self._config)
