// Appends records exactly once and reads them back, over plain gRPC: node main.mjs ENDPOINTS COUNT NAME
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const ATTEMPT_MS = 5_000;
const PATIENCE_MS = 30_000;
const { UNAVAILABLE, DEADLINE_EXCEEDED, ABORTED, RESOURCE_EXHAUSTED, INTERNAL } = grpc.status;
const PASSING = new Set([UNAVAILABLE, DEADLINE_EXCEEDED, ABORTED, RESOURCE_EXHAUSTED, INTERNAL]);

const definition = protoLoader.loadSync("dledger/v1/log.proto", {
  includeDirs: [process.env.DLEDGER_PROTO ?? "proto"],
  longs: String, // an index may be larger than a number holds exactly
});
const { LogService } = grpc.loadPackageDefinition(definition).dledger.v1;

// Whether the same request may succeed in a moment, at this node or another.
function passes(failure) {
  return PASSING.has(failure.code) || (failure.metadata?.get("dledger-leader-id").length ?? 0) > 0;
}

// Any node takes any call. After a failure the next node is asked.
class Cluster {
  constructor(endpoints) {
    this.nodes = endpoints.map((endpoint) => new LogService(endpoint, grpc.credentials.createInsecure()));
  }

  get node() {
    return this.nodes[0];
  }

  // Throws what will not pass, or has lasted for too long.
  async again(failure, deadline) {
    if (!passes(failure) || Date.now() > deadline) throw failure;
    this.nodes.push(this.nodes.shift());
    await sleep(100);
  }

  // The answer to a request that may be sent twice.
  async call(method, request) {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      try {
        const ask = promisify(this.node[method]).bind(this.node);
        return await ask(request, { deadline: Date.now() + ATTEMPT_MS });
      } catch (failure) {
        await this.again(failure, deadline);
      }
    }
  }

  // Every record from `index` on, and every new one. Goes on at another node where a stream broke.
  async *follow(index) {
    let deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      const stream = this.node.ReadRecords({ startIndex: String(index), follow: true });
      try {
        for await (const { entry } of stream) {
          yield entry;
          index = BigInt(entry.index) + 1n;
          deadline = Date.now() + PATIENCE_MS;
        }
      } catch (failure) {
        await this.again(failure, deadline);
      } finally {
        stream.cancel();
      }
    }
  }

  close() {
    this.nodes.forEach((node) => node.close());
  }
}

// A record that is sent twice under one sequence number is appended once.
class Producer {
  static async of(cluster) {
    const { producerId } = await cluster.call("InitProducer", {});
    return Object.assign(new Producer(), { cluster, producerId, sequence: 0n });
  }

  // The record's index, once it is on a majority's disks.
  async append(record) {
    const { producerId, sequence } = this;
    const request = { records: [Buffer.from(record)], producerId, baseSequence: String(sequence) };
    const { baseIndex } = await this.cluster.call("Append", request);
    this.sequence += 1n;
    return baseIndex;
  }
}

const [endpoints, count, name] = process.argv.slice(2);
const cluster = new Cluster(endpoints.split(","));
const producer = await Producer.of(cluster);
const indexes = [];
for (let number = 0; number < Number(count); number++) indexes.push(await producer.append(`${name} ${number}`));
for await (const { index, value } of cluster.follow(indexes[0])) {
  if (value.toString().startsWith(`${name} `)) console.log(index, value.toString());
  if (index === indexes.at(-1)) break;
}
cluster.close();
