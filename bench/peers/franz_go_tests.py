#!/usr/bin/env python3
"""franz-go's own tests of logins, and one of its group tests, against a broker with TLS and SCRAM.

    franz_go_tests.py --scram HOST:PORT --tls HOST:PORT --ca FILE --user NAME --password WORD [-- GO_TEST_ARGS...]

`TestSCRAMAuth…` speak to the listener of --scram (SASL without TLS: its tests configure nothing else) and
`TestGroupETL` to the one of --tls. Needs go; its module cache keeps the source. Ends with
`N passed, M failed, K skipped`.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MODULE = HERE.parent.parent / "tests" / "interop" / "go"
"""The Go module that names the version."""
TESTS = "TestSCRAMAuth|TestGroupETL"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--scram", "--tls", "--ca", "--user", "--password"):
        parser.add_argument(name, required=True)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("go_test_args", nargs="*")
    args = parser.parse_args()
    env = {
        **os.environ,
        "KGO_SEEDS": args.tls,
        "KGO_TEST_TLS": f"ca:{args.ca}",
        "KGO_TEST_SCRAM_SEEDS": args.scram,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(args.records),
        "KGO_TEST_MAX_TOPIC_PARTS": "3",
    }
    counts = dict.fromkeys(("PASS", "FAIL", "SKIP"), 0)
    for algorithm, tests in ((256, TESTS), (512, "TestSCRAMAuth$")):
        env["KGO_TEST_SCRAM"] = f"{args.user}:{args.password}:{algorithm}"
        package = "github.com/twmb/franz-go/pkg/kgo"
        command = [
            "go",
            "test",
            "-count=1",
            "-v",
            "-timeout",
            "600s",
            "-run",
            f"^({tests})",
            *args.go_test_args,
            package,
        ]
        with subprocess.Popen(
            command, cwd=MODULE, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as child:
            assert child.stdout is not None
            for line in child.stdout:
                print(line, end="", flush=True)
                if found := re.match(r"--- (PASS|FAIL|SKIP)", line):
                    counts[found[1]] += 1
        if child.returncode and not counts["FAIL"]:
            counts["FAIL"] += 1
    print(f"{counts['PASS']} passed, {counts['FAIL']} failed, {counts['SKIP']} skipped")
    return 1 if counts["FAIL"] or not counts["PASS"] else 0


if __name__ == "__main__":
    sys.exit(main())
