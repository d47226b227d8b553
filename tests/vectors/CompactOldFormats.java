// Makes compacted-old.jsonl.gz: logs with message formats 0 and 1, and what MemoryRecords.filterTo of
// Apache Kafka 4.3.1 leaves of them by the rule of its cleaner, at NOW, with tombstones of the old
// formats and without. No horizon of a batch passes.
//   javac -cp "$LIBS/*" -d $OUT CompactOldFormats.java
//   java -cp "$OUT:$LIBS/*" CompactOldFormats | gzip -9n > compacted-old.jsonl.gz

import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.BufferSupplier;

public class CompactOldFormats {
    static final long START = 1_400_000_000_000L;
    static final long NOW = 1_700_000_000_000L;
    static final long RETENTION_MS = 1000;
    static long offset;
    static Random random;

    public static void main(String[] arguments) {
        CompressionType[] codecs = {
            CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4};
        for (byte magic = 0; magic < 2; magic++)
            for (CompressionType codec : codecs)
                for (boolean append : new boolean[] {false, true})
                    if (magic == 1 || !append)
                        chain(magic, codec, append);
    }

    // Three passes, each over what the last one left and what came after that.
    static void chain(byte magic, CompressionType codec, boolean append) {
        offset = 0;
        random = new Random(magic * 100 + codec.id * 10 + (append ? 1 : 0));
        ByteBuffer log = ByteBuffer.allocate(0);
        for (int pass = 0; pass < 3; pass++) {
            ByteBuffer grown = ByteBuffer.allocate(1 << 18);
            grown.put(log);
            for (int i = 0; i < 12; i++)
                grown.put(set(magic, random.nextInt(3) == 0 ? CompressionType.NONE : codec, append, pass));
            grown.flip();
            ByteBuffer with = compacted(grown, true);
            ByteBuffer without = compacted(grown, false);
            String name = "v" + magic + " " + codec.name + (append ? " append time" : "") + " pass " + pass;
            System.out.println("{\"name\": \"" + name + "\", \"magic\": " + magic + ", \"log\": \"" + hex(grown)
                + "\", \"with_tombstones\": \"" + hex(with) + "\", \"without\": \"" + hex(without) + "\"}");
            log = with.duplicate();
        }
    }

    static ByteBuffer set(byte magic, CompressionType codec, boolean append, int pass) {
        TimestampType type = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE
            : append ? TimestampType.LOG_APPEND_TIME : TimestampType.CREATE_TIME;
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 12), magic, Compression.of(codec).build(), type, offset,
            append ? START + offset * 10 : RecordBatch.NO_TIMESTAMP);
        int count = 1 + random.nextInt(5);
        for (int i = 0; i < count; i++, offset++) {
            byte[] key = random.nextInt(12) == 0 ? null : ("key-" + random.nextInt(14)).getBytes();
            byte[] value = random.nextInt(6) == 0 ? null
                : ("value-" + pass + "-" + offset + "-" + "x".repeat(random.nextInt(40))).getBytes();
            long time = magic == 0 ? RecordBatch.NO_TIMESTAMP : START + offset * 10 - random.nextInt(50);
            builder.appendWithOffset(offset, time, key, value);
        }
        return builder.build().buffer().duplicate();
    }

    static ByteBuffer compacted(ByteBuffer log, boolean tombstones) {
        MemoryRecords records = MemoryRecords.readableRecords(log.duplicate());
        Map<String, Long> latest = new HashMap<>();
        for (Record record : records.records())
            if (record.hasKey())
                latest.put(text(record.key()), record.offset());
        MemoryRecords.RecordFilter filter = new MemoryRecords.RecordFilter(NOW, RETENTION_MS) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.DELETE_EMPTY, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return record.hasKey() && latest.get(text(record.key())) <= record.offset()
                    && (record.hasValue() || tombstones || batch.magic() > 1);
            }
        };
        ByteBuffer out = ByteBuffer.allocate(1 << 18);
        MemoryRecords.FilterResult result = records.filterTo(filter, out, BufferSupplier.NO_CACHING);
        ByteBuffer made = result.outputBuffer();
        made.flip();
        return made;
    }

    static String text(ByteBuffer key) {
        byte[] bytes = new byte[key.remaining()];
        key.duplicate().get(bytes);
        return new String(bytes);
    }

    static String hex(ByteBuffer bytes) {
        StringBuilder told = new StringBuilder();
        ByteBuffer copy = bytes.duplicate();
        while (copy.hasRemaining())
            told.append(String.format("%02x", copy.get()));
        return told.toString();
    }
}
