import http from 'node:http';
import net, { type AddressInfo, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { Envd } from '../../src/api/envd/envd.ts';
import { MemorySandbox } from '../fakes/memory-sandbox.ts';
import { Random } from '../parts/random.ts';
import { escapesOf, type Fuzzer } from './fuzzer.ts';

/** Time after which a request without an answer counts as hanging. Every request ends by itself before. */
const HANG_MS = 20_000;
const CLIENTS = 4;
const TOKEN = 'token';
/** Time limit of streams, so that each ends although its process does not. */
const STREAM_MS = 30;
const METRICS = { cpuCount: 1, cpuUsedPct: 0, memTotal: 1, memUsed: 1, memCache: 1, diskUsed: 1, diskTotal: 1 };

const STREAMS = ['process.Process/Start', 'process.Process/Connect', 'filesystem.Filesystem/WatchDir'];
const UNARY = [
  ...['List', 'SendInput', 'CloseStdin', 'SendSignal', 'Update'].map(name => `process.Process/${name}`),
  ...['Stat', 'ListDir', 'MakeDir', 'Move', 'Remove', 'CreateWatcher', 'GetWatcherEvents', 'RemoveWatcher'].map(
    name => `filesystem.Filesystem/${name}`,
  ),
];
const TEXTS = ['', '~', '~x', '/', '/home/user', 'a', '../..', '\u0000', 'é\ud800', '__proto__', 'x'.repeat(5000)];
const VALUES: readonly unknown[] = [...TEXTS, null, true, 0, -1, 1.5, 1e300, 100, '100', [], {}, [1], { a: 1 }];
const FIELDS = [
  ...['process', 'cmd', 'args', 'envs', 'cwd', 'pid', 'tag', 'pty', 'size', 'cols', 'rows', 'stdin', 'input', 'signal'],
  ...['path', 'depth', 'source', 'destination', 'recursive', 'includeEntry', 'watcherId', 'start', 'data', 'keepalive'],
];
const HEADERS = [
  'Connect-Timeout-Ms: 9999999999',
  'Connect-Timeout-Ms: -1',
  'Keepalive-Ping-Interval: 1',
  'Keepalive-Ping-Interval: 99999999999',
  'Content-Encoding: gzip',
  'Content-Encoding: br',
  'Authorization: Basic cm9vdDo=',
  'Authorization: Basic !',
  'Range: bytes=1-',
  'Range: bytes=9-1,a',
  'If-Range: x',
  'If-Modified-Since: x',
  'Accept-Encoding: identity;q=0',
  'X-Metadata-A: b',
  `X-Metadata-${'k'.repeat(300)}: v`,
  'X-Metadata-__proto__: \u00e9',
];

/** Sends hostile requests of an E2B client to port 49983 of a sandbox in memory. */
export const fuzzEnvd: Fuzzer = async ({ seed, maxIterations, maxSeconds }) => {
  const faults: string[] = [];
  const counts = { requests: 0, answers: 0, broken: 0 };
  const endMs = performance.now() + maxSeconds * 1000;
  let iterations = 0;
  const escapes = await escapesOf(async () => {
    const envd = new Envd();
    const inside = new MemorySandbox();
    inside.onStart = process => {
      process.print('stdout', 'x');
      setTimeout(() => process.end({ code: null, signal: 'SIGKILL', timedOut: true }), STREAM_MS);
    };
    const server = http.createServer((raw, response) => {
      const sandbox = {
        id: 'a',
        token: TOKEN,
        environment: {},
        metrics: async () => METRICS,
        defaults: { user: '', workingDir: '' },
      };
      void envd.serve(raw, response, { url: raw.url ?? '', sandbox, access: inside.access });
    });
    server.on('clientError', (_error, socket) => socket.destroy());
    await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
    const { port } = server.address() as AddressInfo;
    const client = async () => {
      while (iterations < maxIterations && performance.now() < endMs && faults.length < 20) {
        const own = seed + iterations++;
        counts.requests += 1;
        const answer = await ask(port, requestOf(new Random(own)));
        if (answer === null) faults.push(`seed ${own}: hangs`);
        else if (answer.length === 0) counts.broken += 1;
        else if (/^HTTP\/1\.1 ([245]\d\d) /.test(answer)) counts.answers += 1;
        else faults.push(`seed ${own}: answered ${JSON.stringify(answer.slice(0, 80))}`);
        if (answer?.includes('internal error')) faults.push(`seed ${own}: an internal error`);
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
    const listeners = () => inside.processes.reduce((sum, process) => sum + process.listeners, 0);
    for (const until = performance.now() + HANG_MS; listeners() > 0 && performance.now() < until; ) await delay(10);
    if (listeners() > 0) faults.push(`${listeners()} listeners are left`);
    envd.close();
    const open = inside.watches.filter(({ isOpen }) => isOpen).length;
    if (open > 0) faults.push(`${open} watches are left`);
    server.closeAllConnections();
    await new Promise(resolve => server.close(resolve));
  });
  faults.push(...escapes.map(each => `escaped: ${each}`));
  return { iterations, faults, counts };
};

/** Returns all bytes that arrive until the service closes; null when it does not close in time. */
async function ask(port: number, bytes: Buffer): Promise<string | null> {
  const socket: Socket = net.connect(port, '127.0.0.1');
  let answer = '';
  socket.on('data', data => {
    answer += data.toString('latin1');
  });
  socket.on('error', () => undefined);
  socket.end(bytes);
  const closed = new Promise<string>(resolve => socket.once('close', () => resolve(answer)));
  const late = delay(HANG_MS, null, { ref: false });
  const result = await Promise.race([closed, late]);
  socket.destroy();
  return result;
}

function requestOf(random: Random): Buffer {
  const kind = random.below(10);
  if (kind < 3) return head(random, 'POST', random.pick(STREAMS), 'application/connect+json', streamBody(random, 1));
  if (kind < 4) {
    const body = streamBody(random, 1 + random.below(4));
    return head(random, 'POST', 'process.Process/StreamInput', 'application/connect+json', body);
  }
  if (kind < 7) {
    const body = mutated(random, Buffer.from(JSON.stringify(messageOf(random, 0))));
    return head(random, 'POST', random.pick(UNARY), 'application/json', body);
  }
  const path = `files?path=${random.pick(['a', '%2e%2e', '%ff', '', '~', '/home', 'b%00'])}&username=${random.pick(['', 'root', 'x'])}`;
  if (kind < 8) return head(random, random.pick(['GET', 'HEAD']), path, 'text/plain', Buffer.alloc(0));
  const isForm = random.chance(0.6);
  return head(
    random,
    'POST',
    random.chance(0.5) ? path : 'files',
    isForm ? `multipart/form-data; boundary=${random.pick(['B', 'B', 'B', '', '"', 'C'])}` : 'application/octet-stream',
    isForm ? mutated(random, formOf(random)) : random.bytes(random.below(2000)),
  );
}

/** Returns the bytes of a request: a head with a few hostile headers, and a body with or without a length. */
function head(random: Random, method: string, path: string, type: string, body: Buffer): Buffer {
  const lines = [`${method} /${path} HTTP/1.1`, 'Host: a', `Content-Type: ${type}`, 'Connection: close'];
  lines.push(`X-Access-Token: ${random.chance(0.97) ? TOKEN : 'x'}`);
  if (type === 'application/connect+json') lines.push(`Connect-Timeout-Ms: ${STREAM_MS}`);
  else if (random.chance(0.3)) lines.push(random.pick(HEADERS));
  if (random.chance(0.2)) lines.push(random.pick(HEADERS.slice(2)));
  const isChunked = random.chance(0.3);
  lines.push(isChunked ? 'Transfer-Encoding: chunked' : `Content-Length: ${body.length}`);
  const sent = isChunked
    ? Buffer.concat([
        Buffer.from(body.length > 0 ? `${body.length.toString(16)}\r\n` : ''),
        body,
        Buffer.from(body.length > 0 ? '\r\n0\r\n\r\n' : '0\r\n\r\n'),
      ])
    : body;
  const cut = random.chance(0.05) ? random.below(sent.length + 1) : sent.length;
  return Buffer.concat([Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'latin1'), sent.subarray(0, cut)]);
}

function streamBody(random: Random, messages: number): Buffer {
  const envelopes: Buffer[] = [];
  for (let count = messages; count > 0; count--) {
    const body = Buffer.from(JSON.stringify(messageOf(random, 0)));
    const start = Buffer.alloc(5);
    start.writeUInt8(random.chance(0.9) ? 0 : random.below(256), 0);
    start.writeUInt32BE(random.chance(0.95) ? body.length : random.pick([0, 1, 0xffff_ffff, body.length + 1]), 1);
    envelopes.push(start, body);
  }
  return mutated(random, Buffer.concat(envelopes));
}

/** Returns a message that is often correct, with fields of wrong types. */
function messageOf(random: Random, depth: number): object {
  if (depth === 0 && random.chance(0.6)) {
    return {
      process: random.chance(0.5) ? { cmd: 'a', args: ['b'] } : { pid: 100 + random.below(3) },
      path: '~',
      source: 'a',
      destination: 'b',
      signal: random.pick(['SIGNAL_SIGKILL', 'SIGNAL_SIGTERM', 9, 'x']),
      [random.pick(FIELDS)]: random.chance(0.5) ? random.pick(VALUES) : messageOf(random, 1),
    };
  }
  const message: Record<string, unknown> = {};
  for (let count = random.below(4); count >= 0; count--) {
    const isDeep = depth < 3 && random.chance(0.4);
    message[random.pick(FIELDS)] = isDeep ? messageOf(random, depth + 1) : random.pick(VALUES);
  }
  return message;
}

function formOf(random: Random): Buffer {
  const parts: Buffer[] = [];
  for (let count = random.below(4); count > 0; count--) {
    const name = random.pick(['file', 'file', 'file', 'other', '']);
    const fileName = random.pick(['a', 'd/b', '%22', '\\"', '', '"; x="', 'é', '..', `n${random.below(1000)}`]);
    parts.push(
      Buffer.from(`--B\r\nContent-Disposition: form-data; name="${name}"; filename="${fileName}"\r\n\r\n`),
      random.bytes(random.below(3000)),
      Buffer.from('\r\n'),
    );
  }
  return Buffer.concat([...parts, Buffer.from('--B--\r\n')]);
}

/** Changes, drops or repeats some bytes, in a tenth of all cases. */
function mutated(random: Random, bytes: Buffer): Buffer {
  if (bytes.length === 0 || random.chance(0.9)) return bytes;
  const at = random.below(bytes.length);
  switch (random.below(3)) {
    case 0:
      return Buffer.concat([bytes.subarray(0, at), random.bytes(1), bytes.subarray(at + 1)]);
    case 1:
      return bytes.subarray(0, at);
    default:
      return Buffer.concat([bytes, bytes.subarray(at)]);
  }
}
