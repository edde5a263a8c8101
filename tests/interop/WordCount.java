import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/** Counts the words of the topic `lines` into `counts`, every update exactly once. Arguments: bootstrap, prefix, state directory. */
public class WordCount {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[1] + "-app");
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("state.dir", args[2]);
        settings.put("commit.interval.ms", "100");
        settings.put("replication.factor", "1");
        settings.put("session.timeout.ms", "6000");
        settings.put("statestore.cache.max.bytes", "0");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[1] + "-lines", Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .to(args[1] + "-counts", Produced.with(Serdes.String(), Serdes.Long()));
        KafkaStreams streams = new KafkaStreams(builder.build(), new StreamsConfig(settings));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
        streams.start();
        Thread.currentThread().join();
    }
}
