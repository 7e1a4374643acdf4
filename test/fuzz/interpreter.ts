import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { Random } from '../parts/random.ts';
import type { Fuzzer } from './fuzzer.ts';

const PACKAGES = resolve(import.meta.dirname, '../../runtimes/python');
/** Time after which a request without an answer counts as hanging. */
const HANG_MS = 30_000;
const CLIENTS = 4;

/** Cells that end by themselves and change nothing outside, however they are cut. */
const CELLS = [
  ...['1', '"é"', '1/0', 'def f(:', '%who', '%%no', '%', '{', '"""', "x = '", 'a = %who', '\\', '\u0000', '\ud800'],
  ...['await 1', 'display(1)', 'return', 'yield', '((((', '%%time\n1', '\t\t1\n  2', 'f"{1', '?', 'x?', '1;'],
];
const VALUES: readonly unknown[] = [
  '',
  'x',
  null,
  true,
  0,
  -1,
  1.5,
  [],
  {},
  { 'a=b': 'c' },
  { a: 1 },
  { A: '\ud800' },
  { A: 'é' },
  '\u0000',
  '\ud800',
  'x'.repeat(9000),
];
const FIELDS = ['code', 'context_id', 'language', 'env_vars', 'cwd', '__proto__'];
const PATHS = [
  '/execute',
  '/execute',
  '/execute',
  '/contexts',
  '/health',
  '/contexts/x',
  '/contexts/x/restart',
  '/%00',
  '*',
];
const LENGTHS = [
  'Content-Length: -1',
  'Content-Length: x',
  'Content-Length: 99999999999',
  'Transfer-Encoding: chunked',
];

/** Sends hostile requests to the server of a code interpreter, which must answer and stay. */
export const fuzzInterpreter: Fuzzer = async ({ seed, maxIterations, maxSeconds }) => {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-fuzz-'));
  const faults: string[] = [];
  const counts = { answers: 0, broken: 0 };
  const args = ['-B', '-m', 'rookery_interpreter', '--host', '127.0.0.1', '--port', '0', '--directory', directory];
  const env = { ...process.env, PYTHONPATH: PACKAGES, HOME: directory };
  const child = spawn('python3', args, { env, cwd: directory, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  child.stderr.on('data', data => {
    said = (said + data).slice(-4000);
  });
  const endMs = performance.now() + maxSeconds * 1000;
  let iterations = 0;
  try {
    const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
    const port = Number(line);
    const client = async () => {
      while (iterations < maxIterations && performance.now() < endMs && faults.length < 20) {
        const own = seed + iterations++;
        const answer = await ask(port, requestOf(new Random(own)));
        if (answer === null) faults.push(`seed ${own}: hangs`);
        else if (answer === '') counts.broken += 1;
        else if (/^(HTTP\/1\.[01] ([245]\d\d) |<!DOCTYPE|\s*<)/.test(answer)) counts.answers += 1;
        else faults.push(`seed ${own}: answered ${JSON.stringify(answer.slice(0, 80))}`);
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
    const health = await ask(port, Buffer.from('GET /health HTTP/1.1\r\nConnection: close\r\n\r\n'));
    if (!health?.endsWith('"OK"')) faults.push(`the server is not healthy: ${JSON.stringify(health)}`);
  } catch (error) {
    faults.push(`seed ${seed + iterations}: ${String(error)}`);
  } finally {
    await end(child);
    rmSync(directory, { recursive: true, force: true });
  }
  if (said !== '') faults.push(`the server wrote ${said}`);
  return { iterations, faults, counts };
};

/** Returns all bytes that arrive until the server closes; null when it does not close in time. */
async function ask(port: number, bytes: Buffer): Promise<string | null> {
  const socket = net.connect(port, '127.0.0.1');
  let answer = '';
  socket.on('data', data => {
    answer += data.toString('latin1');
  });
  socket.on('error', () => undefined);
  socket.write(bytes);
  const closed = new Promise<string>(fulfil => socket.once('close', () => fulfil(answer)));
  const result = await Promise.race([closed, delay(HANG_MS, null, { ref: false })]);
  socket.destroy();
  return result;
}

/** Returns a whole request with a body of hostile fields. Bytes that never come are left to other tests. */
function requestOf(random: Random): Buffer {
  const method = random.pick(['POST', 'POST', 'POST', 'GET', 'DELETE', 'PUT', 'X']);
  const fields: Record<string, unknown> = { code: random.pick(CELLS) };
  for (let count = random.below(3); count > 0; count--) fields[random.pick(FIELDS)] = random.pick(VALUES);
  if (random.chance(0.5)) delete fields.context_id;
  const text = JSON.stringify(fields);
  const body = Buffer.from(random.chance(0.1) ? text.slice(0, random.below(text.length)) : text);
  const head = [`${method} ${random.pick(PATHS)} HTTP/1.1`, 'Host: a', 'Connection: close'];
  const length = random.chance(0.1) ? random.pick(LENGTHS) : `Content-Length: ${body.length}`;
  const sent = length.startsWith('T') ? Buffer.from(random.pick(['0\r\n\r\n', 'x\r\n', '1\r\n{\r\n0\r\n\r\n'])) : body;
  return Buffer.concat([Buffer.from(`${[...head, length].join('\r\n')}\r\n\r\n`), sent]);
}

async function end(child: ChildProcess): Promise<void> {
  const closed = once(child, 'close');
  child.kill();
  await closed;
}
