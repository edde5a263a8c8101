"""Apache Iceberg's own server of its REST catalog (its test fixture), from Maven Central, fetched once: some 70 MB."""

import os
import pathlib
import shutil

from bench.peers.debezium import PEERS, built

CLASS = "org.apache.iceberg.rest.RESTCatalogServer"


def command() -> list[str]:
    """The command that runs the server. Raises LookupError where there is no mvn to fetch it with, or no Java."""
    java = shutil.which("java")
    if java is None:
        raise LookupError("no java on PATH")
    goal = ["dependency:copy-dependencies", "-DoutputDirectory=jars"]
    jars = built(PEERS / "iceberg-rest-1.10.0", "iceberg_pom.xml", goal) / "jars"
    return [java, "-Xmx256M", "-cp", f"{jars}/*", CLASS]


def settings(port: int, folder: pathlib.Path) -> dict[str, str]:
    """The environment of a server whose catalog and warehouse are in the folder."""
    return {
        **os.environ,
        "CATALOG_REST_PORT": str(port),
        "CATALOG_URI": f"jdbc:sqlite:{folder}/catalog.db",
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
    }
