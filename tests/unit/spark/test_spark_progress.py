import json
import threading
from typing import Any

from pyspark.errors import IllegalArgumentException

from odradek.spark.progress import Follower, Progress, lag_of, last_offsets, progress_of
from odradek.spark.session import is_local, settings_for

SOURCE = {
    "startOffset": {"in": {"0": 10, "1": 5}},
    "endOffset": {"in": {"0": 20, "1": 5, "2": 3}},
    "latestOffset": {"in": {"0": 100, "1": 5, "2": 7}},
}
REPORT: dict[str, Any] = {
    "id": "9da0e808-c8b3-490c-a2ff-a915461a8c91",
    "name": None,
    "batchId": 3,
    "numInputRows": 13,
    "inputRowsPerSecond": 26.5,
    "durationMs": {"triggerExecution": 867},
    "sources": [SOURCE],
}


def test_lag_is_what_the_sources_have_beyond_the_batch() -> None:
    assert lag_of(REPORT) == 84
    assert lag_of({"sources": [{name: json.dumps(each) for name, each in SOURCE.items()}]}) == 84
    assert lag_of({"sources": [SOURCE, SOURCE]}) == 168
    # a source of another kind, one that says nothing, one that went back
    assert lag_of({"sources": [{"endOffset": 7, "latestOffset": 9}, {"endOffset": None, "latestOffset": None}]}) is None
    assert lag_of({"sources": [{"endOffset": {"in": {"0": 9}}, "latestOffset": {"in": {"0": 4}}}]}) == 0


def test_the_last_records_of_a_batch() -> None:
    assert last_offsets(SOURCE) == [("in", 0, 19), ("in", 2, 2)]
    assert last_offsets({"startOffset": None, "endOffset": {"in": {"0": 4}}}) == [("in", 0, 3)]


def test_a_report_becomes_a_line() -> None:
    assert progress_of(REPORT, 1_230).line() == (
        "9da0e808 batch 3: 13 rows, 26 rows/s in, lag 84, delay 1.2 s, took 0.9 s"
    )
    odd = {**REPORT, "name": "copy", "sources": [], "inputRowsPerSecond": "Infinity", "durationMs": {}}
    assert progress_of(odd, None) == Progress("copy", 3, 13, 0.0, None, None, 0)
    assert "lag ?, delay ?" in progress_of(odd, None).line()
    assert progress_of({**odd, "inputRowsPerSecond": float("nan")}, None).rows_per_second == 0.0


def test_settings_of_the_user_go_first() -> None:
    local = settings_for("local[2]", {"spark.ui.enabled": "true"}, "/state")
    assert local["spark.ui.enabled"] == "true"
    assert local["spark.driver.host"] == "127.0.0.1"
    assert local["spark.sql.streaming.checkpointLocation"] == "/state"
    far = settings_for("spark://host:7077", {})
    assert far["spark.sql.execution.arrow.maxBytesPerBatch"] == "8m"
    assert settings_for("yarn", {"spark.sql.execution.arrow.maxBytesPerBatch": "1m"}) == {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.maxBytesPerBatch": "1m",
    }
    assert not {"spark.driver.host", "spark.sql.streaming.checkpointLocation"} & far.keys()
    assert [is_local(each) for each in ("local", "local[*]", "local-cluster[2,1,512]", "yarn")] == [
        True,
        True,
        False,
        False,
    ]


def test_lag_by_topic_leaves_out_the_ids_beside_the_offsets() -> None:
    source = {
        "endOffset": {"in": {"0": 20}, "cluster.id:c": {}},
        "latestOffset": {"in": {"0": 100}, "new": {"0": 7}, "cluster.id:c": {}, "topic.id:in:x": {}},
    }
    assert progress_of({**REPORT, "sources": [source]}, None).topics == {"in": 80, "new": 7}


def test_follower_looks_again_after_a_look_that_failed() -> None:
    """A query that ends meanwhile makes PySpark raise one of its own exceptions, which are none of Py4J's."""
    follower = Follower(None, lambda _progress: None, lambda _query, _reason: None)
    looks: list[int] = []
    seen = threading.Event()

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise IllegalArgumentException("the query ends")
        seen.set()

    follower.look = look  # type: ignore[method-assign]
    follower.start()
    assert seen.wait(30)
    follower.close()
