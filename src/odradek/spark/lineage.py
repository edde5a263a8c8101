"""Events for OpenLineage about a pipeline and its queries, by the package openlineage-python (extra `lineage`).

The pipeline is a run of the job NAME, and the parent of its queries, which are runs of jobs NAME.QUERY. OpenLineage's
own settings say where events go: OPENLINEAGE_URL, OPENLINEAGE_CONFIG, `openlineage.yml`.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from odradek.ports.installation import install_hint
from odradek.spark.datasets import Dataset
from odradek.version import __version__

logger = logging.getLogger(__name__)

RUNNING_S: Final = 60.0
"""A query that runs says so that often, and when it reads or writes something new."""
CLOSE_S: Final = 10.0
"""How long the end of a pipeline waits for events that are not sent yet."""
NAMESPACE_VARIABLE: Final = "OPENLINEAGE_NAMESPACE"
"""The namespace of jobs."""
_MOST_EVENTS: Final = 1_000
_PRODUCER: Final = f"urn:odradek:{__version__}"


class LineageError(RuntimeError):
    """The package is missing, or its settings say nothing or something wrong."""


def open_client() -> Any:
    """OpenLineage's client by its own settings. Raises LineageError."""
    try:
        from openlineage.client import OpenLineageClient
    except ModuleNotFoundError as error:
        raise LineageError(f"openlineage-python is missing: {install_hint('lineage')}") from error
    try:
        client = OpenLineageClient()
        is_configured = bool((client.config.transport or {}).get("type"))
    except (ValueError, RuntimeError, LookupError, TypeError, OSError) as error:
        raise LineageError(f"OpenLineage's settings: {error}") from error
    if client.transport.kind == "console" and not is_configured:
        raise LineageError(
            "no address for OpenLineage: set OPENLINEAGE_URL, or describe a transport in openlineage.yml"
        )
    return client


class Emitter:
    """Emits events in their order, on a thread of its own: a receiver that is slow or away delays no query."""

    def __init__(self, client: Any) -> None:
        """`client` is closed with this object."""
        self._client = client
        self._events: queue.Queue[Any] = queue.Queue(_MOST_EVENTS)
        self._loses = False
        self._thread = threading.Thread(target=self._run, name="lineage", daemon=True)
        self._thread.start()

    def emit(self, event: Any) -> None:
        """Emit an event soon; it is lost if too many wait."""
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self._lost("too many events wait")

    def close(self, timeout_s: float = CLOSE_S) -> None:
        """Wait until all events are emitted, or the time is over."""
        deadline = time.monotonic() + timeout_s
        try:
            self._events.put(None, timeout=timeout_s)
        except queue.Full:
            logger.warning("events for OpenLineage are lost: %d wait at the end", self._events.qsize())
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            logger.warning("events for OpenLineage may be lost: the receiver has not answered for %g s", timeout_s)

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._client.emit(event)
            except Exception as error:  # noqa: BLE001 - each transport has errors of its own, and none may end this
                self._lost(str(error) or type(error).__name__)
            else:
                if self._loses:
                    logger.info("events for OpenLineage are received again")
                self._loses = False
        self._client.close(CLOSE_S)

    def _lost(self, reason: str) -> None:
        """Log the first one in a row."""
        if not self._loses:
            logger.warning("events for OpenLineage are lost: %s", reason)
        self._loses = True


class _Query(NamedTuple):
    """A query that runs."""

    name: str
    inputs: tuple[Dataset, ...] = ()
    outputs: tuple[Dataset, ...] = ()
    reported_at_s: float = 0.0
    """When the last event was emitted, by the clock."""


class Lineage:
    """The events of one pipeline. See `QueryWatcher` for those of its queries; they come from one thread."""

    def __init__(
        self,
        emit: Callable[[Any], None],
        application: str,
        shorten: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`emit` takes a RunEvent; `shorten` makes a line of Spark's reason for a failure; `clock` returns seconds."""
        self._emit = emit
        self._application = application
        self._shorten = shorten
        self._clock = clock
        self._namespace = os.environ.get(NAMESPACE_VARIABLE) or "odradek"
        self._run_id = str(uuid.uuid4())
        self._queries: dict[str, _Query] = {}
        self._has_ended = False

    def begin(self) -> None:
        """The pipeline starts."""
        self._event("START", self._run_id, self._application)

    def end(self, failure: str | None) -> None:
        """The pipeline ends, with the reason if it fails. The first call counts."""
        if self._has_ended:
            return
        self._has_ended = True
        self._event("COMPLETE" if failure is None else "FAIL", self._run_id, self._application, failure=failure)

    def on_start(self, run_id: str, name: str) -> None:
        """See `QueryWatcher`."""
        self._queries[run_id] = _Query(name)
        self._report("START", run_id)

    def on_batch(self, run_id: str, inputs: Sequence[Dataset], outputs: Sequence[Dataset]) -> None:
        """See `QueryWatcher`."""
        query = self._queries[run_id]
        # what one batch reads is not all that a query reads
        known = query._replace(
            inputs=tuple(dict.fromkeys((*query.inputs, *inputs))),
            outputs=tuple(dict.fromkeys((*query.outputs, *outputs))),
        )
        self._queries[run_id] = known
        if known != query or self._clock() - query.reported_at_s >= RUNNING_S:
            self._report("RUNNING", run_id)

    def on_end(self, run_id: str, failure: str | None) -> None:
        """See `QueryWatcher`."""
        self._report(
            "COMPLETE" if failure is None else "FAIL", run_id, None if failure is None else self._shorten(failure)
        )
        del self._queries[run_id]

    def _report(self, kind: str, run_id: str, failure: str | None = None) -> None:
        query = self._queries[run_id] = self._queries[run_id]._replace(reported_at_s=self._clock())
        self._event(kind, run_id, f"{self._application}.{query.name}", query=query, failure=failure)

    def _event(
        self, kind: str, run_id: str, name: str, *, query: _Query | None = None, failure: str | None = None
    ) -> None:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import (
            error_message_run,
            job_type_job,
            parent_run,
            processing_engine_run,
        )
        from pyspark import __version__ as spark_version

        facets: dict[str, Any] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=spark_version, name="Spark", openlineageAdapterVersion=__version__, producer=_PRODUCER
            )
        }
        if query is not None:
            parent = parent_run.Job(self._namespace, self._application)
            facets["parent"] = parent_run.ParentRunFacet(parent_run.Run(self._run_id), parent, producer=_PRODUCER)
        if failure is not None:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(failure, "PYTHON", producer=_PRODUCER)
        job_type = job_type_job.JobTypeJobFacet(
            processingType="BATCH" if query is None else "STREAMING",
            integration="SPARK",
            jobType="APPLICATION" if query is None else "QUERY",
            producer=_PRODUCER,
        )
        self._emit(
            RunEvent(
                eventType=RunState[kind],
                eventTime=datetime.now(UTC).isoformat(),
                run=Run(run_id, facets),
                job=Job(self._namespace, name, {"jobType": job_type}),
                inputs=[] if query is None else [InputDataset(*each) for each in query.inputs],
                outputs=[] if query is None else [OutputDataset(*each) for each in query.outputs],
                producer=_PRODUCER,
            )
        )
