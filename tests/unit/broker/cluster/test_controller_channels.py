"""The controller's channels: one for each registration of another broker."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.broker.cluster import controller_channels
from odradek.broker.cluster.controller_channels import ControllerChannels
from odradek.metadata.image import Broker, ClusterImage


class Channel:
    made: list[Channel]

    def __init__(self, broker: Broker, *_: object) -> None:
        self.broker = broker
        self.offered: list[ClusterImage] = []
        self.is_closed = False
        self.made.append(self)

    def offer(self, image: ClusterImage) -> None:
        self.offered.append(image)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Channel]:
    Channel.made = []
    monkeypatch.setattr(controller_channels, "ControllerChannel", Channel)
    return Channel.made


def image(**epochs: int) -> ClusterImage:
    return ClusterImage().with_brokers({int(i[1:]): Broker(int(i[1:]), epoch, None, {}) for i, epoch in epochs.items()})


def open_channels() -> ControllerChannels:
    connect: Any = None
    return ControllerChannels(1, connect)


def test_other_brokers_get_every_image(made: list[Channel]) -> None:
    channels, events = open_channels(), Any
    images = [image(b1=5, b2=6, b3=7), image(b1=5, b2=6, b3=7)]
    for each in images:
        channels.offer(each, events)  # type: ignore[arg-type]
    assert [channel.broker.id for channel in made] == [2, 3]
    assert [channel.offered for channel in made] == [images, images]
    assert not any(channel.is_closed for channel in made)


def test_channel_of_an_ended_registration_is_closed(made: list[Channel]) -> None:
    channels, events = open_channels(), Any
    channels.offer(image(b1=5, b2=6, b3=7), events)  # type: ignore[arg-type]
    channels.offer(image(b1=5, b2=9), events)  # type: ignore[arg-type]
    assert [(channel.broker.id, channel.broker.epoch, channel.is_closed) for channel in made] == [
        (2, 6, True),
        (3, 7, True),
        (2, 9, False),
    ]
    assert len(channels) == 1


def test_closed_channels_are_forgotten(made: list[Channel]) -> None:
    channels, events = open_channels(), Any
    channels.offer(image(b1=5, b2=6), events)  # type: ignore[arg-type]
    channels.close()
    assert [channel.is_closed for channel in made] == [True]
    assert len(channels) == 0
