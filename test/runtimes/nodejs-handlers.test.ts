import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LIMITS } from '../../src/core/limits.ts';
import type { CallOutcome } from '../../src/runtime/call.ts';
import { Channel, ChannelClosed } from '../../src/runtime/channel.ts';
import type { Init, InitOk } from '../../src/runtime/protocol.ts';
import type { StartedRuntime } from '../suites/runtime.ts';
import { startProgram } from './program.ts';

const MAIN = resolve(import.meta.dirname, '../../runtimes/nodejs/lib/main.js');
const WAIT_MS = 20_000;

/** The Node.js of the tests, and those that the environment names. */
const NODES = [
  process.execPath,
  ...['20', '22', '24'].flatMap(version => {
    const home = process.env[`NODE_HOME_${version}`];
    return home === undefined ? [] : [join(home, 'bin', 'node')];
  }),
];

let directory: string;
let runtime: StartedRuntime;
let channel: Channel;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-nodejs-'));
});
afterEach(async () => {
  channel.close();
  await runtime.dispose();
  rmSync(directory, { recursive: true });
});

/** Starts a runtime on these files and loads the handler. */
async function load(
  files: Readonly<Record<string, string>>,
  handler: string,
  changes: Partial<Init> = {},
  node = process.execPath,
): Promise<{ ok: true; value: InitOk } | { ok: false; error: { code: number; message: string } }> {
  for (const [name, source] of Object.entries(files)) {
    mkdirSync(dirname(join(directory, name)), { recursive: true });
    writeFileSync(join(directory, name), source);
  }
  runtime = await startProgram([node, MAIN]);
  channel = await connected();
  const names = { tenant: 't', namespace: 'n', name: 'a', functionName: '', version: '', instanceId: 'i' };
  const limits = { initTimeoutMs: WAIT_MS, concurrency: 1, maxResultBytes: LIMITS.responseBodyBytes };
  const entries = { codePath: directory, handler, initializer: '', preStop: '' };
  const init = { ...names, ...limits, ...entries, memoryMb: 512, cpuMillis: 1000, ...changes };
  return (await channel.initialize(init, AbortSignal.timeout(WAIT_MS))) as never;
}

/** Connects to the runtime. Retries, because a program makes its socket a little after its start. */
async function connected(): Promise<Channel> {
  const signal = AbortSignal.timeout(WAIT_MS);
  for (;;) {
    try {
      return await Channel.open(runtime.endpoint, runtime.secret, signal);
    } catch (error) {
      if (signal.aborted) throw error;
    }
  }
}

function call(event: unknown = {}, more: object = {}): Promise<CallOutcome> {
  const header = { traceId: 'trace', traceparent: '', requestId: 'request' };
  return channel.call({ header, body: Buffer.from(JSON.stringify(event)), timeoutMs: WAIT_MS, ...more });
}

const value = (outcome: CallOutcome): unknown => (outcome.ok ? JSON.parse(outcome.data.toString()) : outcome);

test('writes that the code does not await and that follow the end of the call affect nothing else', async () => {
  const source = `exports.handle = (e, context) => {
    if (e.isPlain) return globalThis.late;
    const stream = context.getStream();
    setImmediate(() => {
      stream.write('late');
      globalThis.late = 'written';
    });
    return 1;
  }`;
  await load({ 'index.js': source }, 'index.handle');
  const header = { traceId: '', traceparent: '', requestId: '', stream: true, credit: 100 };
  expect(value(await call({}, { header, onChunk: () => undefined }))).toBe(1);
  await expect.poll(async () => value(await call({ isPlain: true }))).toBe('written');
  expect(value(await call({ isPlain: true }))).toBe('written');
});

test('an error text that is too long is cut and ends with an ellipsis', async () => {
  await load({ 'index.js': "exports.handle = e => { throw new Error('x'.repeat(e)) }" }, 'index.handle');
  const { callErrorChars } = LIMITS;
  const outcome = await call(callErrorChars);
  expect(outcome.ok || outcome.text).toMatch(/^Fail to run user call handler\. err: Error: x+\.\.\.$/);
  expect(outcome.ok || outcome.text).toHaveLength(callErrorChars + 3);
});

test.each([
  ['throws while it loads', "throw new Error('boom');", 'boom'],
  ['imports a missing module', "import './nothing.mjs'; export const handle = () => 1;", 'nothing.mjs'],
  ['has wrong syntax', 'export const = 1;', 'SyntaxError'],
])('the log of code that %s has the reason and no frames of Node.js', async (_, source, reason) => {
  expect(await load({ 'index.mjs': source }, 'index.handle')).toMatchObject({ ok: false, error: { code: 4001 } });
  const log = runtime.log();
  expect(log).toContain('cannot load the handler index.handle');
  expect(log).toContain(reason);
  expect(log).not.toContain('node:internal');
});

test('the log of a call that fails has the frames of the code and none of Node.js', async () => {
  const source = `exports.handle = () => [1].map(function ofTheUser() { require('fs').readFileSync('/nowhere/x') })`;
  await load({ 'index.js': source }, 'index.handle');
  expect(await call()).toMatchObject({ ok: false, code: 4002 });
  expect(runtime.log()).toContain('ofTheUser');
  expect(runtime.log()).not.toContain('node:internal');
});

describe('entry points of Node.js code', () => {
  const shapes: [title: string, files: Record<string, string>, handler: string][] = [
    ['CommonJS', { 'index.js': 'exports.handle = e => e.a' }, 'index.handle'],
    ['a module by its syntax', { 'index.js': 'export const handle = e => e.a' }, 'index.handle'],
    [
      'a module by package.json',
      { 'package.json': '{"type":"module"}', 'index.js': 'export const handle = async e => e.a' },
      'index.handle',
    ],
    ['.mjs with a default object', { 'index.mjs': 'export default { handle: e => e.a }' }, 'index.handle'],
    [
      'module.exports of a class instance',
      { 'index.cjs': 'module.exports = { handle(e) { return e.a } }' },
      'index.handle',
    ],
    ['a default function', { 'index.mjs': 'export default e => e.a' }, 'index.default'],
    ['a file in directories', { 'pkg/tasks.js': 'exports.run = e => e.a' }, 'pkg.tasks.run'],
    ['a path', { 'dist/tasks.js': 'exports.run = e => e.a' }, 'dist/tasks.run'],
    ['a dot in the name', { 'my.tasks.js': 'exports.run = e => e.a' }, 'my.tasks.run'],
    [
      'TypeScript as a module, which imports another',
      {
        'index.ts': "import { pick } from './pick.ts';\nexport const handle = (e: { a: number }): number => pick(e);",
        'pick.ts': 'export function pick(e: { a: number }): number { return e.a satisfies number }',
      },
      'index.handle',
    ],
    [
      'TypeScript as CommonJS, which requires another',
      {
        'index.cts': "const { pick } = require('./pick.cts');\nexports.handle = (e: { a: number }): number => pick(e);",
        'pick.cts': 'exports.pick = (e: { a: number }): number => e.a;',
      },
      'index.handle',
    ],
    ['TypeScript, .mts', { 'index.mts': 'export const handle = (e: any) => (e as { a: number }).a' }, 'index.handle'],
  ];
  for (const node of NODES) {
    test.each(shapes)(`a handler in the format %s loads and answers on ${node}`, async (_, files, handler) => {
      expect(await load(files, handler, {}, node)).toMatchObject({ ok: true });
      expect(value(await call({ a: 5 }))).toBe(5);
      // Node.js prints no warnings into the log of the code.
      expect(runtime.log()).toBe('');
    });
  }

  test('a load fails with 4001 and names a missing import, or the place where a module throws', async () => {
    const missing = await load({ 'index.mjs': "import 'nowhere';\nexport const handle = 1" }, 'index.handle');
    expect(missing).toMatchObject({ ok: false, error: { code: 4001, message: expect.stringContaining("'nowhere'") } });
    channel.close();
    await runtime.dispose();
    const throws = await load({ 'other.js': '\n\nthrow new TypeError("no luck");' }, 'other.handle');
    const message = expect.stringContaining(`${directory}/other.js:3: TypeError: no luck`);
    expect(throws).toMatchObject({ ok: false, error: { code: 4001, message } });
  });
});

describe('results of Node.js handlers', () => {
  test.each([
    ['undefined', 'undefined', null],
    ['a date', 'new Date(0)', '1970-01-01T00:00:00.000Z'],
    ['a list with holes of null', '[null, undefined]', [null, null]],
  ])('a handler can return %s, which becomes JSON', async (_, source, expected) => {
    await load({ 'index.js': `exports.handle = () => (${source})` }, 'index.handle');
    expect(value(await call())).toEqual(expected);
  });

  test.each(['10n', '() => 1', 'Symbol()', '[1, Infinity]', 'loop', '{ toJSON() { throw new Error("no") } }'])(
    'a call fails with 4007 when its value is %s',
    async source => {
      const code = `const loop = {}; loop.loop = loop; exports.handle = () => (${source})`;
      await load({ 'index.js': code }, 'index.handle');
      expect(await call()).toMatchObject({ ok: false, code: 4007 });
    },
  );

  test('a call fails with the text of the thrown value when the value is not an error', async () => {
    await load({ 'index.js': 'exports.handle = async () => { throw { status: 3 } }' }, 'index.handle');
    expect(await call()).toMatchObject({ ok: false, code: 4002, text: expect.stringContaining('status: 3') });
  });
});

describe('generators of Node.js handlers', () => {
  const files = {
    'index.js': `exports.sync = function* (e) { yield 'a'; yield { b: 1 }; return 'end'; };
      exports.late = async function* (e) { yield 'a'; await null; yield null; return { c: 2 }; };
      exports.forever = async function* (e, context) { try { for (let n = 0; ; n++) yield n; } finally { console.log('closed ' + context.signal.aborted); } };`,
  };
  const stream = (onChunk: (event: Buffer, id: number) => void, credit = 1000) => ({
    header: { traceId: 't', traceparent: '', requestId: 'r', stream: true, credit },
    onChunk,
  });

  test.each([
    ['index.sync', ['a', '{"b":1}'], 'end', ['a', { b: 1 }]],
    ['index.late', ['a'], { c: 2 }, ['a', null]],
  ])(
    '%s streams the values it yields, and returns them as one array when the call has no stream',
    async (handler, events, last, array) => {
      await load(files, handler);
      const got: string[] = [];
      expect(
        value(
          await call(
            {},
            stream(event => got.push(event.toString())),
          ),
        ),
      ).toEqual(last);
      expect(got).toEqual(events);
      expect(value(await call())).toEqual(array);
    },
  );

  test('a generator is closed when its reader disconnects', async () => {
    await load(files, 'index.forever');
    const caller = new AbortController();
    const running = call({}, { ...stream(() => caller.abort(), 5), signal: caller.signal });
    await expect(running).rejects.toMatchObject({ code: 'unavailable' });
    await expect.poll(() => runtime.log(), { timeout: WAIT_MS }).toContain('closed true');
  });

  test('a call fails with 4004 when an endless generator exceeds the result limit', async () => {
    await load(files, 'index.forever', { maxResultBytes: 10_000 });
    expect(await call()).toMatchObject({ ok: false, code: 4004 });
  });

  test('the runtime sends writes that the code does not await before the value', async () => {
    const source =
      'exports.handle = (e, c) => { const s = c.getStream(); for (const n of [1, 2, 3]) s.write(n); return 4; }';
    await load({ 'index.js': source }, 'index.handle');
    const got: string[] = [];
    const call1 = call(
      {},
      stream((event, id) => {
        got.push(event.toString());
        channel.credit(id, 1);
      }, 1),
    );
    expect(value(await call1)).toBe(4);
    expect(got).toEqual(['1', '2', '3']);
  });
});

describe('the end of calls and instances in Node.js', () => {
  test('a call that ignores its cancellation ends at its timeout, and the next call runs', async () => {
    const source = 'exports.handle = e => e.never ? new Promise(() => {}) : "next"';
    await load({ 'index.js': source }, 'index.handle');
    await expect(call({ never: true }, { timeoutMs: 50 })).rejects.toMatchObject({ code: 'deadline_exceeded' });
    expect(value(await call())).toBe('next');
    expect(channel.inFlight).toBe(0);
  });

  test('the signal gives the reason of its abort, and interrupted code may still answer', async () => {
    const source = `exports.handle = (e, { signal }) => new Promise(resolve => {
      console.log('waits');
      signal.addEventListener('abort', () => resolve(signal.reason.name + ': ' + signal.reason.message));
    })`;
    await load({ 'index.js': source }, 'index.handle');
    const caller = new AbortController();
    const running = call({}, { signal: caller.signal });
    await expect.poll(() => runtime.log(), { timeout: WAIT_MS }).toContain('waits');
    caller.abort('interrupt');
    expect(value(await running)).toBe('CallCancelled: the call was interrupted');
  });

  test('an unhandled rejection ends the instance and leaves its trace in the log', async () => {
    const source = 'exports.handle = () => { Promise.reject(new Error("stray")); return new Promise(() => {}); }';
    await load({ 'index.js': source }, 'index.handle');
    await expect(call()).rejects.toBeInstanceOf(ChannelClosed);
    expect(await runtime.exited).toBe(1);
    expect(runtime.log()).toContain('Error: stray');
  });

  test('the environment of the code does not contain the settings of the runtime', async () => {
    const source = 'exports.handle = () => Object.keys(process.env).filter(name => name.startsWith("ROOKERY_RUNTIME"))';
    await load({ 'index.js': source }, 'index.handle');
    expect(value(await call())).toEqual([]);
  });

  test('calls run concurrently up to the limit of the instance, and each has its own signal', async () => {
    const source = `let open; const gate = new Promise(resolve => { open = resolve; });
      exports.handle = async (e, { signal }) => { if (e.open) open(); await gate; return signal.aborted; };`;
    await load({ 'index.js': source }, 'index.handle', { concurrency: 2 });
    const first = call();
    expect(value(await call({ open: true }))).toBe(false);
    expect(value(await first)).toBe(false);
  });
});

test('a load refuses a handler or hook that expects a callback', async () => {
  const files = { 'main.js': 'exports.handler = (e, c, cb) => {}; exports.start = (context, done) => done();' };
  expect(await load(files, 'main.handler')).toMatchObject({
    ok: false,
    error: {
      code: 4001,
      message: expect.stringContaining('its parameters are (e, c, cb), expected (event, context)'),
    },
  });
});

test('a call fails with 4007 and names the place when its value cannot become JSON', async () => {
  const source = `
    const { Readable } = require('node:stream');
    const values = {
      response: () => new Response('x'), stream: () => new ReadableStream(), readable: () => Readable.from(['x']),
      nested: () => ({ rows: [1, { 'a b': new Response('x') }] }), nan: () => ({ a: [NaN] }), big: () => ({ a: { b: 1n } }),
      promise: () => ({ a: Promise.resolve(1) }), fine: () => ({ a: {}, b: null, c: new Map() }),
    };
    exports.handler = event => values[event]();
  `;
  await load({ 'main.js': source }, 'main.handler');
  const expected = {
    response: 'a Response is not JSON: return its text or its parsed body',
    stream: 'a ReadableStream is not JSON: read it, or yield its parts from a generator',
    readable: 'a stream is not JSON: read it, or yield its parts from a generator',
    nested: 'a Response is not JSON: return its text or its parsed body, at $.rows[1]["a b"]',
    nan: 'RangeError: NaN is not JSON, at $.a[0]',
    big: 'TypeError: Do not know how to serialize a BigInt, at $.a.b',
    promise: 'a Promise is not JSON: await it, at $.a',
  };
  const call = (event: string) =>
    channel.call({
      header: { traceId: 't', traceparent: '', requestId: 'r' },
      body: Buffer.from(JSON.stringify(event)),
      timeoutMs: WAIT_MS,
    });
  for (const [event, text] of Object.entries(expected)) {
    expect(await call(event)).toMatchObject({
      code: 4007,
      text: `the returned value cannot be turned into JSON: ${text}`,
    });
  }
  expect(((await call('fine')) as { data: Buffer }).data.toString()).toBe('{"a":{},"b":null,"c":{}}');
});

test('the load error of TypeScript explains an unsupported decorator or alias', async () => {
  const decorated = 'function d(t: unknown, c: unknown) {}\n@d\nclass A {}\nexport const handler = () => 1;\n';
  expect(await load({ 'main.mts': decorated }, 'main.handler')).toMatchObject({
    error: { message: expect.stringMatching(/main\.mts:2: SyntaxError.*decorators stay/) },
  });
  channel.close();
  await runtime.dispose();
  const aliased = "import { a } from '@/lib';\nexport const handler = () => a;\n";
  expect(await load({ 'alias.mts': aliased }, 'alias.handler')).toMatchObject({
    error: { message: expect.stringContaining('tsconfig.json is not read, so its "paths" are not known') },
  });
});
