"""The controller's channels to all other brokers, one per registration."""

from __future__ import annotations

import asyncio

from odradek.broker.cluster.controller_channel import (
    DEFAULT_TIMEOUTS,
    ChannelEvents,
    Connect,
    ControllerChannel,
    ControlTimeouts,
    Differences,
)
from odradek.metadata.image import ClusterImage


class ControllerChannels:
    """Sends each image to all registered brokers except the controller's own."""

    __slots__ = ("_channels", "_connect", "_differences", "_node_id", "_timeouts")

    def __init__(self, node_id: int, connect: Connect, timeouts: ControlTimeouts = DEFAULT_TIMEOUTS) -> None:
        self._node_id = node_id
        self._connect = connect
        self._channels: dict[int, ControllerChannel] = {}
        self._differences = Differences()
        self._timeouts = timeouts

    def __len__(self) -> int:
        return len(self._channels)

    def offer(self, image: ClusterImage, events: ChannelEvents) -> None:
        """Send the image; new channels report to `events`. Channels of ended registrations are closed."""
        for broker_id, channel in list(self._channels.items()):
            broker = image.brokers.get(broker_id)
            if broker is None or broker.epoch != channel.broker.epoch:
                channel.close()
                del self._channels[broker_id]
        for broker_id, broker in image.brokers.items():
            if broker_id == self._node_id:
                continue
            if broker_id not in self._channels:
                self._channels[broker_id] = ControllerChannel(
                    broker, self._connect, events, self._differences, self._timeouts
                )
            self._channels[broker_id].offer(image)

    def send_all_again(self, broker_id: int) -> None:
        """Send the complete image to a broker again, if it is registered: its response reports all its replicas."""
        if broker_id in self._channels:
            self._channels[broker_id].send_all_again()

    async def wait_until_acknowledged(self, version: int, at_most_seconds: float) -> None:
        """Wait until all brokers have acknowledged the image of this version, or until the time is over."""
        if self._channels:
            waiting = [channel.when_acknowledged(version) for channel in self._channels.values()]
            await asyncio.wait(waiting, timeout=at_most_seconds)

    def close(self) -> None:
        """Close all channels."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()
