"""The web console: look into topics, records and groups of clusters in a browser. `docs/CONSOLE.md` explains its use.

It knows a cluster by the client and its reports alone, so it serves for clusters of Apache Kafka, too.
"""
