package dev.dledger.bench;

import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends records to one partition with three replicas, acks=all: {@code KafkaLoad BOOTSTRAP TOPIC LINGER_MS
 * BATCH_BYTES [CONFIG=VALUE …]}, the settings being the topic's, which whoever comes first makes.
 */
public final class KafkaLoad {
    private KafkaLoad() {
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        var settings = new java.util.HashMap<>(Map.of("min.insync.replicas", "2"));
        for (int i = 4; i < arguments.length; i++) {
            var setting = arguments[i].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            var wanted = new NewTopic(topic, Optional.of(1), Optional.of((short) 3)).configs(settings);
            admin.createTopics(Set.of(wanted)).all().get();
        } catch (ExecutionException failure) {
            if (!(failure.getCause() instanceof TopicExistsException)) {
                throw failure;
            }
        }
        Map<String, Object> producing = Map.of(
            "bootstrap.servers", arguments[0],
            "acks", "all",
            "enable.idempotence", true,
            "linger.ms", Integer.parseInt(arguments[2]),
            "batch.size", Integer.parseInt(arguments[3]),
            "buffer.memory", 128L * 1024 * 1024,
            "max.in.flight.requests.per.connection", 5);
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(producing, bytes, bytes)) {
            Load.serveSingles((record, done) -> producer.send(
                new ProducerRecord<byte[], byte[]>(topic, 0, null, record), (answer, failure) -> done.tell(failure)));
        }
    }
}
