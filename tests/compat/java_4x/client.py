"""Apache Kafka's Java clients of the 4.x line."""

from compat.java.driver import JavaClient, JavaMember


class Java43(JavaClient):
    name = "java_43"
    version = "4.3.1"


class Java44(JavaClient):
    name = "java_44"
    version = "4.4.0"


class Java44Member(JavaMember):
    client = Java44
