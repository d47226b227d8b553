"""The plugins that come with the broker, by name. They need no entry point, because reading entry
points takes tens of milliseconds; in everything else they are like other plugins."""

ASSIGNORS = (
    "assignor-simple",
    "assignor-uniform",
    "assignor-range",
)  # called after all other plugins
BUILTIN: dict[str, str] = {
    "time": "barnabas.plugins.retention_time:RetentionTime",
    "size": "barnabas.plugins.retention_size:RetentionSize",
    "consumed": "barnabas.plugins.retention_consumed:RetentionConsumed",
    "last-records": "barnabas.plugins.retention_records:RetentionRecords",
    "assignor-range": "barnabas.plugins.assignor_range:AssignorRange",
    "assignor-simple": "barnabas.plugins.assignor_simple:AssignorSimple",
    "assignor-uniform": "barnabas.plugins.assignor_uniform:AssignorUniform",
    "none": "barnabas.plugins.retention_none:RetentionNone",
    "json-schema": "barnabas.plugins.json_schema:JsonSchema",
    "dead-letter": "barnabas.plugins.dead_letter:DeadLetter",
    "audit": "barnabas.plugins.audit:Audit",
    "blocked-principals": "barnabas.plugins.blocked_principals:BlockedPrincipals",
    "delay": "barnabas.plugins.delay:Delay",
    "spark-loader": "barnabas.plugins.spark_loader:SparkLoader",
    "hash": "barnabas.plugins.partitioner_hash:HashPartitioner",
    "murmur2": "barnabas.plugins.partitioner_murmur2:Murmur2Partitioner",
    "crc32": "barnabas.plugins.partitioner_crc32:Crc32Partitioner",
    "round-robin": "barnabas.plugins.partitioner_round_robin:RoundRobinPartitioner",
    "sticky": "barnabas.plugins.partitioner_sticky:StickyPartitioner",
    "bytes": "barnabas.plugins.encoder_bytes:BytesEncoder",
    "string": "barnabas.plugins.encoder_string:StringEncoder",
    "json": "barnabas.plugins.encoder_json:JsonEncoder",
    "avro": "barnabas.plugins.encoder_avro:AvroEncoder",
    "protobuf": "barnabas.plugins.encoder_protobuf:ProtobufEncoder",
    "default-event-handler": "barnabas.plugins.event_handler:DefaultEventHandler",
}

SERIALIZATION = "org.apache.kafka.common.serialization"
PARTITIONERS = "org.apache.kafka.clients.producer"
# The built-in plugin for each class or name that settings of Kafka and librdkafka use.
ALIASES: dict[str, str] = {
    "kafka.producer.DefaultPartitioner": "hash",
    "kafka.producer.ByteArrayPartitioner": "hash",
    f"{PARTITIONERS}.internals.DefaultPartitioner": "murmur2",
    f"{PARTITIONERS}.RoundRobinPartitioner": "round-robin",
    f"{PARTITIONERS}.UniformStickyPartitioner": "sticky",
    "consistent_random": "crc32",
    "murmur2_random": "murmur2",
    "kafka.serializer.DefaultEncoder": "bytes",
    "kafka.serializer.DefaultDecoder": "bytes",
    "kafka.serializer.StringEncoder": "string",
    "kafka.serializer.StringDecoder": "string",
    f"{SERIALIZATION}.ByteArraySerializer": "bytes",
    f"{SERIALIZATION}.ByteArrayDeserializer": "bytes",
    f"{SERIALIZATION}.StringSerializer": "string",
    f"{SERIALIZATION}.StringDeserializer": "string",
    "kafka.producer.async.DefaultEventHandler": "default-event-handler",
}
