"""Hadoop's file system of S3, for checkpoints of Spark: fetched from Maven Central once, some 10 MB.

    python -m bench.peers.s3a    fetch it; print the value for spark.jars

The version is that of the Hadoop that PySpark brings; what PySpark has itself is left out. Instead of Amazon's bundle
of all services (600 MB) these are the parts that S3A needs.
"""

from bench.peers.debezium import PEERS, built

CACHE = PEERS / "s3a-3.5.0"


def jars() -> list[str]:
    """The jars. Raises LookupError where there is no mvn to fetch them with."""
    goal = ["dependency:copy-dependencies", "-DoutputDirectory=jars"]
    return sorted(map(str, (built(CACHE, "s3a_pom.xml", goal) / "jars").glob("*.jar")))


if __name__ == "__main__":
    print(",".join(jars()))
