"""Runs one case in a process of its own: `python -m bench.cases CASE SERVER BOOTSTRAP PID SCALE` prints its figures.

The names of parts may follow, for a case that has some.
"""

import importlib
import json
import sys

from bench.servers import Running

if __name__ == "__main__":
    case, server, bootstrap, pid, scale, *parts = sys.argv[1:]
    run = importlib.import_module(f"bench.cases.{case}").run
    print(json.dumps(run(Running(server, bootstrap, int(pid)), float(scale), *([parts] if parts else []))))
