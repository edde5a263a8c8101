"""Every setting is classified, and the classification is true of the code."""

import re
from collections import Counter
from pathlib import Path

import pytest

import odradek
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.config_errors import ConfigError
from odradek.metadata.configs.catalog import BROKER, GROUP, TOPIC, TOPIC_SYNONYMS
from odradek.metadata.configs.definitions import ConfigType
from odradek.metadata.configs.effect_rules import (
    Effect,
    effect_of,
    group_without_effect,
    grouped,
    refusal,
    topic_effect,
    topic_without_effect,
    without_effect,
)
from odradek.metadata.configs.effects import (
    GROUP_HARMLESS,
    HARMLESS,
    IMPLEMENTED,
    REFUSED,
    TOPIC_HARMLESS,
    TOPIC_REFUSED,
)
from odradek.metadata.configs.settings_page import MARKER, render

PACKAGE = Path(odradek.__file__).parent
TABLES = {
    "broker_configs.py", "documentation.py", "effect_rules.py", "effects.py", "group_configs.py", "options.py",
    "own_configs.py", "settings_page.py", "topic_configs.py",
}  # fmt: skip
COMPUTED = re.compile(
    r"(offsets\.topic|transaction\.state\.log)\.segment\.bytes"  # controller.internal_topics, by prefix
    r"|odradek\.audit\.topic\.(segment\.bytes|num\.partitions|replication\.factor)"  # the same
    r"|group\.consumer\.(min|max)\.(session\.timeout|heartbeat\.interval|assignment\.interval)\.ms"  # metadata.configs
)
BESIDE_OTHERS = {
    "controller.quorum.bootstrap.servers": "elsewhere:9093",
    "controller.quorum.voters": "1@here:9093,2@there:9093",
    "metadata.log.dir": "/elsewhere",
    "sasl.oauthbearer.assertion.algorithm": "ES256",
}
EVERY_REFUSED = sorted(name for each in REFUSED for name in each.names)


def source_texts() -> dict[str, str]:
    return {
        str(path.relative_to(PACKAGE)): path.read_text()
        for path in PACKAGE.rglob("*.py")
        if path.name not in TABLES and path.parent.name != "messages"
    }


def another_value(name: str) -> str:
    """One that the definition accepts and that is not the default."""
    definition = BROKER[name]
    if name in BESIDE_OTHERS:
        return BESIDE_OTHERS[name]
    if definition.type is ConfigType.BOOLEAN:
        return "false" if definition.default == "true" or "everyone" in name else "true"
    if definition.type in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG):
        return str(int(definition.default) - 1) if definition.default not in (None, "0") else "7"
    return "0.7" if definition.type is ConfigType.DOUBLE else "something"


def test_every_broker_setting_has_one_effect() -> None:
    names = [*IMPLEMENTED, *(n for each in (*HARMLESS, *REFUSED) for n in each.names)]
    assert not [name for name, count in Counter(names).items() if count > 1]
    assert set(names) == BROKER.keys()


def test_settings_of_topics_and_groups_are_classified() -> None:
    topics = [n for each in (*TOPIC_HARMLESS, *TOPIC_REFUSED) for n in each.names]
    groups = [n for each in GROUP_HARMLESS for n in each.names]
    assert TOPIC.keys() > set(topics)
    assert GROUP.keys() > set(groups)
    assert topic_effect("remote.storage.enable") is Effect.REFUSED
    assert topic_effect("retention.ms") is Effect.IMPLEMENTED
    assert topic_without_effect("preallocate") is not None
    assert group_without_effect("share.session.timeout.ms") is not None


def test_implemented_settings_are_read_by_the_code() -> None:
    text = "".join(source_texts().values())
    synonyms = {s.name for topic, each in TOPIC_SYNONYMS.items() if topic_without_effect(topic) is None for s in each}
    unread = [n for n in IMPLEMENTED - synonyms if f'"{n}"' not in text and not COMPUTED.fullmatch(n)]
    assert not unread


def test_settings_of_topics_that_are_implemented_are_read_by_the_code() -> None:
    text = "".join(text for name, text in source_texts().items() if name != "metadata/configs/catalog.py")
    implemented = [name for name in TOPIC if topic_effect(name) is Effect.IMPLEMENTED]
    assert not [n for n in implemented if f'"{n}"' not in text and n.replace(".", "_") not in text]


def test_settings_that_are_read_are_not_called_harmless() -> None:
    parts = ("api/", "broker/", "controller/", "groups/", "log/", "metadata/", "replication/", "transactions/")
    reads = re.compile(r"""(?:\.(?:number|optional_number|real|text|flag|words)|number)\(\s*"([a-z.]+)"\s*\)""")
    texts = [text for name, text in source_texts().items() if name.startswith(parts)]
    read = {name for text in texts for name in reads.findall(text) if name in BROKER}
    assert len(read) > 60
    assert not [name for name in read if effect_of(name) is Effect.HARMLESS]


@pytest.mark.parametrize("name", EVERY_REFUSED)
def test_rejected_setting_is_an_error(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{re.escape(name)}.* is refused: "):
        BrokerConfig({name: another_value(name)})


@pytest.mark.parametrize("name", EVERY_REFUSED)
def test_default_of_rejected_setting_is_accepted(name: str) -> None:
    default = BROKER[name].default
    if default is not None:
        BrokerConfig({name: default})


def test_allowing_everyone_is_what_happens_without_an_authorizer() -> None:
    BrokerConfig({"allow.everyone.if.no.acl.found": "true"})
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name is not set"):
        BrokerConfig({"allow.everyone.if.no.acl.found": "false"})


@pytest.mark.parametrize(
    ("name", "effect"),
    [
        ("cruise.control.metrics.topic", Effect.PLUGIN),
        ("confluent.license.topic", Effect.PLUGIN),
        ("rsm.config.bucket", Effect.PLUGIN),
        ("listener.name.outside.custom.thing", Effect.PLUGIN),
        ("listener.name.outside.num.network.threads", Effect.HARMLESS),
        ("listener.name.outside.max.connections", Effect.REFUSED),
        ("listener.name.outside.ssl.keystore.location", Effect.IMPLEMENTED),
        ("listener.name.outside.ssl.keystore.password", Effect.IMPLEMENTED),
        ("listener.name.outside.ssl.engine.factory.class", Effect.REFUSED),
        ("listener.name.outside.scram-sha-256.sasl.jaas.config", Effect.IMPLEMENTED),
        ("ssl.something.custom", Effect.REFUSED),
        ("config.providers.vault.class", Effect.REFUSED),
        ("nonsense", None),
        ("lisener.name", None),
        ("log.retention.hour", None),
        ("zookeper.connect", None),
    ],
)
def test_names_outside_of_the_tables(name: str, effect: Effect | None) -> None:
    assert effect_of(name) is effect


def test_passwords_are_not_shown_in_refusals() -> None:
    for name in ("password.encoder.secret", "config.providers.vault.token"):
        text = refusal(name, "hunter2")
        assert text is not None
        assert "hunter2" not in text


def test_harmless_settings_are_grouped_by_purpose() -> None:
    found = grouped(["num.io.threads", "num.network.threads", "num.partitions", "a.plug-in.setting"])
    assert sorted(found.values()) == [["a.plug-in.setting"], ["num.io.threads", "num.network.threads"]]
    assert without_effect("num.partitions") is None
    assert without_effect("ssl.protocol") is None


def test_page_of_settings_is_up_to_date() -> None:
    page = (PACKAGE.parents[1] / "docs" / "SETTINGS.md").read_text()
    assert MARKER in page
    assert page[page.index(MARKER) :] == render()
