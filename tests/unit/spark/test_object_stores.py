"""Which failures of a Delta table are outages, and which are rejections that waiting does not mend."""

from __future__ import annotations

import pytest

from odradek.spark.stores.object_stores import is_away


@pytest.mark.parametrize(
    "error",
    [
        OSError("Generic S3 error"),
        ConnectionRefusedError(111, "Connection refused"),
        Exception("Kernel error -> HTTP error: error sending request, client error (Connect)"),
        Exception("Server returned non-2xx status code: 503 Service Unavailable: slow down"),
        Exception("client error: 500 Internal Server Error"),
        Exception("HTTP error: operation timed out"),
        Exception("tcp connect error: Connection reset by peer"),
    ],
    ids=str,
)
def test_store_that_cannot_answer_is_away(error: Exception) -> None:
    assert is_away(error)


@pytest.mark.parametrize(
    "error",
    [
        Exception("Cast error: Cannot cast string 'x' to value of Int64 type"),
        Exception("Schema error: column price_500 has another type"),
        Exception("Schema error: columns connection, timeout and dns are missing"),
        Exception("403 Forbidden, after 10 retries, max_retries: 10, retry_timeout: 180s"),
        Exception("Invariant violated: 503 rows"),
    ],
    ids=str,
)
def test_rejection_is_no_outage_whatever_it_names(error: Exception) -> None:
    assert not is_away(error)
