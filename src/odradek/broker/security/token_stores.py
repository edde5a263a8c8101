"""Where the delegation tokens of a cluster are kept: in nodes of a metadata store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from odradek.metadata.token_nodes import TOKENS, decode_token, encode_token, token_path
from odradek.ports.store import BadVersion, Create, Delete, MetadataStore, NoNode, Put, StoreError
from odradek.security.delegation_tokens import DelegationToken
from odradek.wire.errors import ErrorCode, KafkaError


class StoredToken(NamedTuple):
    """A token, and the version that a change of it must find."""

    token: DelegationToken
    version: int


class TokenStore(Protocol):
    """The tokens of the cluster, by their ids. Each method raises KafkaError."""

    async def find(self, token_id: str) -> DelegationToken | None:
        """The token with this id, expired or not."""
        ...

    async def read(self) -> Sequence[StoredToken]:
        """All tokens, expired or not."""
        ...

    async def create(self, token: DelegationToken) -> None:
        """Add a token."""
        ...

    async def replace(self, former: StoredToken, token: DelegationToken) -> None:
        """Put this token in the place of the former. DELEGATION_TOKEN_NOT_FOUND where that was changed meanwhile."""
        ...

    async def delete(self, token_id: str) -> None:
        """Remove a token, if there is one with this id."""
        ...


class NodeTokens:
    """Implements `TokenStore` on a metadata store, which is read at each use: every broker knows the newest."""

    __slots__ = ("_store",)

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def find(self, token_id: str) -> DelegationToken | None:
        """See `TokenStore`."""
        path = token_path(token_id)
        try:
            node = await self._store.get(path)
        except StoreError as error:
            raise _unavailable(error) from error
        return None if node is None else decode_token(path, node.data)

    async def read(self) -> Sequence[StoredToken]:
        """See `TokenStore`."""
        try:
            nodes = await self._store.subtree(TOKENS)
        except StoreError as error:
            raise _unavailable(error) from error
        return [
            StoredToken(decode_token(path, node.data), node.version) for path, node in nodes.items() if path != TOKENS
        ]

    async def create(self, token: DelegationToken) -> None:
        """See `TokenStore`."""
        try:
            await self._store.apply([Create(token_path(token.token_id), encode_token(token))])
        except StoreError as error:
            raise _unavailable(error) from error

    async def replace(self, former: StoredToken, token: DelegationToken) -> None:
        """See `TokenStore`."""
        try:
            await self._store.apply([Put(token_path(token.token_id), encode_token(token), former.version)])
        except (NoNode, BadVersion) as error:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "The token was changed meanwhile.") from error
        except StoreError as error:
            raise _unavailable(error) from error

    async def delete(self, token_id: str) -> None:
        """See `TokenStore`."""
        try:
            await self._store.apply([Delete(token_path(token_id))])
        except NoNode:
            return
        except StoreError as error:
            raise _unavailable(error) from error


def _unavailable(error: StoreError) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"metadata store: {error}")
