"""A broker for test cases of the standard library's unittest.

class Orders(KafkaTestCase):
    def test_one(self) -> None:
        self.kafka.produce("orders", "1")
"""

from __future__ import annotations

import unittest
from collections.abc import Mapping
from typing import ClassVar

from odradek.testing.blocking import BlockingBroker


class KafkaTestCase(unittest.TestCase):
    """All tests of the class share the broker `kafka`; `kafka_settings` are its settings by Kafka's names."""

    kafka: ClassVar[BlockingBroker]
    """The broker, running."""
    kafka_settings: ClassVar[Mapping[str, object]] = {}
    """What it is started with."""

    @classmethod
    def setUpClass(cls) -> None:
        """Start the broker."""
        super().setUpClass()
        broker = cls.enterClassContext(BlockingBroker(cls.kafka_settings))
        cls.kafka = broker
