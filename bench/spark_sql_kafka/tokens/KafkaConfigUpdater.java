package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;
import scala.collection.Iterator;
import scala.Tuple2;

/** The parameters of a Kafka client, with more of them. */
public final class KafkaConfigUpdater {
  private final Map<String, Object> found = new HashMap<>();

  public KafkaConfigUpdater(
      String module, scala.collection.immutable.Map<String, Object> params) {
    Iterator<Tuple2<String, Object>> pairs = params.iterator();
    while (pairs.hasNext()) {
      Tuple2<String, Object> pair = pairs.next();
      found.put(pair._1(), pair._2());
    }
  }

  public KafkaConfigUpdater set(String name, Object value) {
    found.put(name, value);
    return this;
  }

  public KafkaConfigUpdater setIfUnset(String name, Object value) {
    found.putIfAbsent(name, value);
    return this;
  }

  public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
    return this;
  }

  public KafkaConfigUpdater setAuthenticationConfigIfNeeded(
      Option<KafkaTokenClusterConf> cluster) {
    return this;
  }

  public Map<String, Object> build() {
    return found;
  }
}
