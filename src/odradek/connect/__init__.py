"""Connectors: programs that copy records between topics and other systems, without Spark and without a JVM.

Names of settings, states, the REST interface and the topics that hold offsets and configurations are those of Apache
Kafka Connect.
"""
