package org.apache.spark.kafka010;

import scala.Tuple2;
import scala.collection.immutable.Seq;

/** A Scala object as the connector sees it: what of the parameters may stand in a log. */
public final class KafkaRedactionUtil$ {
  public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

  private KafkaRedactionUtil$() {}

  public Seq<Tuple2<String, String>> redactParams(Seq<Tuple2<String, Object>> params) {
    java.util.List<Tuple2<String, String>> found = new java.util.ArrayList<>();
    scala.collection.Iterator<Tuple2<String, Object>> pairs = params.iterator();
    while (pairs.hasNext()) {
      Tuple2<String, Object> pair = pairs.next();
      String name = pair._1().toLowerCase(java.util.Locale.ROOT);
      boolean secret = name.contains("password") || name.contains("jaas");
      found.add(new Tuple2<>(pair._1(), secret ? "***" : String.valueOf(pair._2())));
    }
    return scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq();
  }
}
