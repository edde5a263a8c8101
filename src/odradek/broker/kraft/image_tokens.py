"""The delegation tokens of a KRaft cluster: records of the metadata log, which the active controller writes.

A broker reads them of its newest image, and its clients' requests for changes go to the controller.
Source: Kafka's `DelegationTokenControlManager`, `DelegationTokenPublisher`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from odradek.api.services.controller_service import NotTheController
from odradek.broker.security.token_stores import StoredToken
from odradek.controller.outcome import Decision
from odradek.metadata.image import ClusterImage
from odradek.security.delegation_tokens import DelegationToken
from odradek.wire.errors import ErrorCode, KafkaError

Change = Callable[[Callable[[ClusterImage], Decision[None]]], Awaitable[Any]]
"""Lets a decision on the newest image take effect. Raises KafkaError, NotTheController among others."""


async def changed_elsewhere(_decide: Callable[[ClusterImage], Decision[None]]) -> None:
    """What a broker changes: nothing. Raises NotTheController."""
    raise NotTheController(ErrorCode.NOT_CONTROLLER)


class ImageTokens:
    """Implements `TokenStore`; `change` is that of a controller."""

    __slots__ = ("_change", "_image")

    def __init__(self, image: Callable[[], ClusterImage], change: Change = changed_elsewhere) -> None:
        self._image = image
        self._change = change

    async def find(self, token_id: str) -> DelegationToken | None:
        """See `TokenStore`."""
        return self._image().tokens.get(token_id)

    async def read(self) -> Sequence[StoredToken]:
        """See `TokenStore`."""
        return [StoredToken(each, 0) for each in self._image().tokens.values()]

    async def create(self, token: DelegationToken) -> None:
        """See `TokenStore`."""
        await self._change(lambda image: _changed(image, {**image.tokens, token.token_id: token}))

    async def replace(self, former: StoredToken, token: DelegationToken) -> None:
        """See `TokenStore`."""

        def decide(image: ClusterImage) -> Decision[None]:
            if image.tokens.get(token.token_id) != former.token:
                raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "The token was changed meanwhile.")
            return _changed(image, {**image.tokens, token.token_id: token})

        await self._change(decide)

    async def delete(self, token_id: str) -> None:
        """See `TokenStore`."""
        await self._change(
            lambda image: _changed(image, {i: each for i, each in image.tokens.items() if i != token_id})
        )


def _changed(image: ClusterImage, tokens: dict[str, DelegationToken]) -> Decision[None]:
    return Decision((), image if tokens == image.tokens else image.with_tokens(tokens), ())
