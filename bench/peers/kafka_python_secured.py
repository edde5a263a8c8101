"""A pytest plugin for kafka-python's suite: its brokers are the listeners of one that runs already.

`ODRADEK_SECURED` is JSON: the port of each protocol in `ports`, the authority's file in `authority`, and in `default`
the protocol and the mechanism of tests that ask for none. Runs in the environment of that suite.
"""

import json
import os
import pathlib
import shutil

import pytest
from kafka import KafkaAdminClient
from test.integration.fixtures import KafkaFixture  # type: ignore[import-not-found]

SECURED = json.loads(os.environ["ODRADEK_SECURED"])


class RunningBroker(KafkaFixture):  # type: ignore[misc]
    """A listener of the running broker."""

    def open(self):  # type: ignore[no-untyped-def]
        """It runs already."""

    def close(self):  # type: ignore[no-untyped-def]
        """It continues to run."""

    stop = start = close

    def get_topic_names(self):  # type: ignore[no-untyped-def]
        """The suite runs Apache's tool here."""
        with KafkaAdminClient(**self._enrich_client_params({})) as admin:
            return admin.list_topics()


@pytest.fixture(scope="session", autouse=True)
def running_broker(tmp_path_factory):  # type: ignore[no-untyped-def]
    """Replace the function that starts Kafka."""
    ssl_dir = pathlib.Path(tmp_path_factory.mktemp("authority"))
    shutil.copy(SECURED["authority"], ssl_dir / "ca-cert")

    def instance(broker_id, transport="", sasl_mechanism=None, **_):  # type: ignore[no-untyped-def]
        protocol, mechanism = (transport, sasl_mechanism) if transport else SECURED["default"]
        port = SECURED["ports"][protocol]
        found = RunningBroker("localhost", port, broker_id, transport=protocol, sasl_mechanism=mechanism, external=True)
        found.ssl_dir = str(ssl_dir)
        found.partitions = 4
        return found

    KafkaFixture.instance = staticmethod(instance)
