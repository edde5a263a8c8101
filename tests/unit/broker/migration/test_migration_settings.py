"""Which settings of an imported cluster are kept."""

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.migration.settings import settings_kept
from odradek.metadata.image import DEFAULT_BROKER, ClusterImage


def test_settings_that_are_rejected_are_left_out_without_their_values() -> None:
    image = ClusterImage().with_broker_configs("1", {"ssl.keystore.password": "hunter2", "log.retention.ms": "5"})
    image = image.with_broker_configs(DEFAULT_BROKER, {"config.providers": "vault", "num.io.threads": "9"})
    notes: list[str] = []
    kept = settings_kept(image, 1, BrokerConfig({}).value, notes)
    assert kept.broker_configs == {"1": {"log.retention.ms": "5"}, DEFAULT_BROKER: {"num.io.threads": "9"}}
    assert [note.partition(" is left out: ")[0] for note in notes] == [
        "broker 1: ssl.keystore.password",
        "all brokers: config.providers",
    ]
    assert "hunter2" not in "".join(notes)


def test_passwords_that_apache_encrypted_are_left_out() -> None:
    """In ZooKeeper Apache Kafka keeps dynamic passwords encrypted; taken as they are, they would open no key store."""
    encrypted = "cipher:AES/CBC/PKCS5Padding,encryptedPassword:VPNcEGRnXZs=,passwordLength:7,salt:x="
    location = "listener.name.tls.ssl.keystore.location"
    image = ClusterImage().with_broker_configs(
        "1",
        {
            "listener.name.tls.ssl.keystore.password": encrypted,
            "listener.name.tls.ssl.key.password": "plain",
            location: "/k.jks",
        },
    )
    notes: list[str] = []
    kept = settings_kept(image, 1, BrokerConfig({}).value, notes)
    assert kept.broker_configs == {"1": {"listener.name.tls.ssl.key.password": "plain", location: "/k.jks"}}
    (note,) = notes
    assert note.startswith("broker 1: listener.name.tls.ssl.keystore.password is left out: ")
    assert "VPNcEGRnXZs" not in note
