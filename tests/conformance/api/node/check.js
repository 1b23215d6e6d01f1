// The node's API through @grpc/grpc-js: `node check.js HOST:PORT PROTOS COMMON_PROTOS` writes a line for each check.
'use strict';

const assert = require('node:assert');
const path = require('node:path');
const { setTimeout: pause } = require('node:timers/promises');
const { promisify } = require('node:util');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const protobuf = require('protobufjs');

const TIMEOUT_MS = 10_000;
const [address, protos, commonProtos] = process.argv.slice(2);
const options = { keepCase: true, longs: Number, defaults: true, includeDirs: [protos] };
const api = grpc.loadPackageDefinition(loader.loadSync('dledger/v1/log.proto', options)).dledger.v1;
const client = new api.LogService(address, grpc.credentials.createInsecure());
const timed = (ms = TIMEOUT_MS) => ({ deadline: Date.now() + ms });

function call(method, request, metadata = new grpc.Metadata()) {
  return promisify(client[method].bind(client))(request, metadata, timed());
}

function append(...records) {
  return call('Append', { records: records.map((each) => Buffer.from(each)) });
}

/** The error that a stream ends with. */
async function endOf(stream) {
  try {
    for await (const answer of stream) assert.fail(`it was answered: ${JSON.stringify(answer).slice(0, 80)}`);
  } catch (failure) {
    return failure;
  }
  return assert.fail('it ended well');
}

async function followedFromEnd(callOptions) {
  const { base_index: last } = await append('end');
  return client.Read({ start_index: last + 1, follow: true }, callOptions);
}

function lastBody(answer) {
  return answer.batches.at(-1).body.toString();
}

function errorInfo(failure) {
  const root = new protobuf.Root();
  root.resolvePath = (_origin, target) => path.join(commonProtos, target);
  for (const name of ['status', 'error_details']) root.loadSync(`google/rpc/${name}.proto`);
  const [raw] = failure.metadata.get('grpc-status-details-bin');
  const [detail] = root.lookupType('google.rpc.Status').decode(raw).details;
  return root.lookupType('google.rpc.ErrorInfo').decode(detail.value);
}

const checks = {
  async append() {
    assert.equal((await append('a', 'b', 'c')).count, 3);
  },

  async get() {
    const { base_index: index } = await append('node');
    assert.equal((await call('Get', { index })).entry.value.toString(), 'node');
  },

  async read_follow() {
    const { base_index: index } = await append('one');
    const stream = client.Read({ start_index: index, follow: true }, timed());
    const answers = stream[Symbol.asyncIterator]();
    assert.ok(lastBody((await answers.next()).value).endsWith('one'));
    await append('two');
    assert.ok(lastBody((await answers.next()).value).endsWith('two'));
    stream.on('error', () => {}); // it is told of the cancellation
    stream.cancel();
  },

  async large() {
    const record = Buffer.alloc(1 << 20);
    const { base_index: index } = await append(record);
    assert.ok((await call('Get', { index })).entry.value.equals(record));
  },

  async metadata() {
    const metadata = new grpc.Metadata();
    metadata.set('x-text', 'some text');
    metadata.set('x-raw-bin', Buffer.from([0, 1, 255]));
    assert.notEqual((await call('GetMetadata', {}, metadata)).leader_id, '');
  },

  async deadline() {
    assert.equal((await endOf(await followedFromEnd(timed(300)))).code, grpc.status.DEADLINE_EXCEEDED);
  },

  async cancel() {
    const stream = await followedFromEnd(timed());
    const end = endOf(stream);
    await pause(300);
    stream.cancel();
    assert.equal((await end).code, grpc.status.CANCELLED);
  },

  async refusal() {
    const failure = await call('Get', { index: 1e9 }).then(() => assert.fail('it was answered'), (reason) => reason);
    assert.equal(failure.code, grpc.status.OUT_OF_RANGE);
    const info = errorInfo(failure);
    assert.equal(info.domain, 'dledger');
    assert.equal(info.reason, 'INDEX_OUT_OF_RANGE');
    assert.ok('commit_index' in info.metadata);
  },
};

async function main() {
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok ${name}`);
    } catch (failure) {
      console.log(`failed ${name}: ${String(failure).split('\n').join(' ')}`);
    }
  }
  client.close();
}

main();
