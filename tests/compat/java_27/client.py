"""Apache Kafka's Java client 2.7.2, the oldest that is promised to work."""

from compat.java.driver import JavaClient, JavaMember


class Java27(JavaClient):
    name = "java_27"
    version = "2.7.2"


class Java27Member(JavaMember):
    client = Java27
