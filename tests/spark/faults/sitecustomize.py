"""On the PYTHONPATH of the tests' Spark: lets a test break the transaction protocol at a named point, once.

A test writes `POINT ACTION ARGUMENTS` into the file that ODRADEK_TEST_FAULTS names. The first process that comes by the
point takes the file away and acts. Actions:

    raise             an error at that place
    exit              this Python process dies
    kill              so do the driver and its Java, where the driver was started in a session of its own
    executor          so does the Java process that this one belongs to
    broker PGID       the broker dies; this process continues
    proxy PORT HOW    the proxy before the broker breaks connections, see tests/spark/proxy.py; this process continues
    shuffle FOLDER    the files of Spark's shuffles are lost; this process continues
"""

import os
import signal
import socket
import sys

_FILE = os.environ.get("ODRADEK_TEST_FAULTS", "")

# Spark puts its Python modules in front as zip files, which every process would compile again, half a second each; the
# same modules are installed.
sys.path[:] = [each for each in sys.path if not os.path.basename(each).startswith(("pyspark.zip", "py4j-"))]


def _reached(point):
    try:
        with open(_FILE) as file:
            wanted, action, *arguments = file.read().split()
        if wanted != point:
            return
        # Only one process can take it.
        os.rename(_FILE, f"{_FILE}.done")
    except (FileNotFoundError, ValueError):
        return
    if action == "raise":
        raise RuntimeError(f"planted at {point}")
    if action == "kill":
        # Python workers may have a process group of their own; the session is that of the driver.
        os.killpg(os.getsid(0), signal.SIGKILL)
    if action == "broker":
        os.killpg(int(arguments[0]), signal.SIGKILL)
    if action == "proxy":
        with socket.create_connection(("127.0.0.1", int(arguments[0]))) as connection:
            connection.sendall(arguments[1].encode() + b"\n")
            connection.recv(1)
    if action == "shuffle":
        _lose_shuffles(arguments[0])
    if action == "executor":
        os.kill(_java_above(), signal.SIGKILL)
    if action in ("exit", "kill", "executor"):
        os._exit(9)


def _lose_shuffles(folder):
    for path, _, names in os.walk(folder):
        for name in names:
            if name.startswith("shuffle_"):
                os.unlink(os.path.join(path, name))


def _java_above():
    pid = os.getppid()
    while True:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            if b"java" in os.path.basename(file.read().split(b"\0")[0]):
                return pid
        with open(f"/proc/{pid}/stat") as file:
            pid = int(file.read().rpartition(")")[2].split()[1])


def _around(owner, name, before=None, after=None):
    original = getattr(owner, name)

    def call(*args, **kwargs):
        if before:
            _reached(before)
        result = original(*args, **kwargs)
        if after:
            _reached(after)
        return result

    setattr(owner, name, call)


def _around_async(owner, name, before, after):
    original = getattr(owner, name)

    async def call(*args, **kwargs):
        _reached(before)
        result = await original(*args, **kwargs)
        _reached(after)
        return result

    setattr(owner, name, call)


# The server of the leases starts its own program by itself, without Spark.
if _FILE and "odradek.spark.lease_server" not in sys.orig_argv:
    from odradek.client.producer.transactions import TransactionalProducer
    from odradek.spark import markers, protocol, sink, source, transactions

    _around_async(TransactionalProducer, "_init_producer_id", "before-init", "after-init")
    _around_async(markers, "fetch_committed", "before-fetch", "after-fetch")
    _around(transactions, "begin", "before-begin", "after-begin")
    _around_async(protocol.Sending, "_send_granted", "before-produce", "after-produce")
    _around(transactions, "commit", "before-commit", "after-commit")
    _around_async(TransactionalProducer, "_commit_offsets", "before-offsets", "after-offsets")
    _around_async(TransactionalProducer, "_end_txn", "before-end", "after-end")
    # Spark plans an end, writes it to its log of offsets, asks for partitions; runs the batch, writes it to its log of
    # commits, and notifies the source.
    _around(source.StreamReader, "latestOffset", after="before-offset-log")
    _around(source.StreamReader, "partitions", before="after-offset-log")
    _around(sink.ExactlyOnceStreamWriter, "commit", after="before-commit-log")
    _around(source.StreamReader, "commit", before="after-commit-log")
