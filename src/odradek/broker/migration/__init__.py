"""Moving from Apache Kafka: read its folders, plan what becomes of each file, write an Odradek data folder."""
