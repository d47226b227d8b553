"""The plugins that come with the broker, by name. They need no entry point, which takes tens of
milliseconds to read; everything else about them is as with anybody's plugin."""

ASSIGNORS = ("assignor-simple", "assignor-uniform", "assignor-range")  # asked after all others
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
    "delay": "barnabas.plugins.delay:Delay",
    "spark-loader": "barnabas.plugins.spark_loader:SparkLoader",
}
