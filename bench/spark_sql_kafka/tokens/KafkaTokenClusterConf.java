package org.apache.spark.kafka010;

/** A cluster whose tokens a session holds: there is none. */
public final class KafkaTokenClusterConf {
  private KafkaTokenClusterConf() {}
}
