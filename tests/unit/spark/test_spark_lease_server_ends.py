"""The lease server of a driver ends with the driver, also while no process has waited for that."""

import subprocess
import sys

DRIVER = """
import os
from odradek.spark.leases import LeaseServer

server = LeaseServer("127.0.0.1", os.getpid())
server._output.readline()  # it listens
print("open", flush=True)
os._exit(0)
"""


def test_nothing_holds_a_dead_drivers_pipes() -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert driver.stdout is not None
    assert driver.stderr is not None
    assert driver.stdout.readline() == b"open\n"
    # The end of the file comes when the server, which has inherited it, is gone; the driver is a zombie until then.
    assert driver.stderr.read() == b""
    assert driver.wait(10) == 0
    driver.stdout.close()
    driver.stderr.close()
