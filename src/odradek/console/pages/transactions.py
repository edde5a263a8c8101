"""Transactions: all transactional ids with their states, hanging ones, and their abort."""

from __future__ import annotations

import time
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from odradek.client.admin import OpenTransaction
from odradek.client.reports.hanging import find_hanging
from odradek.console.forms import confirm, field, number, see
from odradek.console.paging import part_of
from odradek.console.rendering import console_of, link, page
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError

PAGE_ROWS: Final = 50
MAX_TIMEOUT_MS: Final = 15 * 60_000
"""Kafka's default of transaction.max.timeout.ms."""


async def show(request: Request) -> Response:
    """One page of transactional ids; `?hanging=yes` also looks for hanging transactions. Raises KafkaError."""
    view = console_of(request).view_of(request)
    text = request.query_params.get("q", "").strip().lower()
    listed = [each for each in await view.admin.transactions.list() if text in each.transactional_id.lower()]
    part = part_of(request, listed, PAGE_ROWS)
    described = await view.admin.transactions.describe([each.transactional_id for each in part.rows])
    now_ms = time.time_ns() // 1_000_000
    hanging = None
    if "hanging" in request.query_params:
        places = [TopicPartition(topic.name, each.partition) for topic in await view.topics()
                  for each in topic.partitions if each.leader >= 0]  # fmt: skip
        hanging = await find_hanging(view.admin, places, now_ms=now_ms, max_timeout_ms=MAX_TIMEOUT_MS, broker_id=None)
    return page(
        request,
        "transactions.html",
        title="Transactions",
        view=view,
        part=part,
        q=request.query_params.get("q", ""),
        described={name: each for name, each in described.items() if not isinstance(each, KafkaError)},
        hanging=hanging,
        now_ms=now_ms,
    )


async def abort(request: Request) -> Response:
    """Abort a hanging transaction in one partition. Raises FormError, KafkaError, ClientError."""
    view = console_of(request).view_of(request)
    topic = field(request, "topic")
    confirm(request, topic)
    place = TopicPartition(topic, number(field(request, "partition"), "partition"))
    transaction = OpenTransaction(
        place,
        number(field(request, "producer_id"), "producer_id"),
        number(field(request, "producer_epoch"), "producer_epoch", most=32_767),
        number(field(request, "coordinator_epoch"), "coordinator_epoch", least=-1),
    )
    await view.admin.transactions.abort(transaction)
    console_of(request).record_change(
        request,
        "abort transaction",
        str(place),
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
    )
    return see(link(f"/c/{view.name}/transactions", hanging="yes"))
