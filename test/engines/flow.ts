import assert from 'node:assert/strict';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import type * as client from '../../clients/typescript/src/index.ts';

/**
 * Checks of the client that run inside of Bun and Deno. The file is copied to a project with the installed
 * client, and has no import of its own that remains there.
 */
export interface Parts {
  readonly client: typeof client;
  readonly rookery: client.Rookery;
  /** URL of the same service behind TLS. */
  readonly secureUrl: string;
}

/** Handler of the agents and of the function; `index.words` streams. */
export const CODE = `let calls = 0;
export async function handle(event) {
  if (event.fail) throw new Error('asked to');
  if (event.hang) await new Promise(() => {});
  console.log('called by ' + event.name);
  return { text: 'Hello, ' + event.name, calls: ++calls };
}
export async function* words({ text }) {
  for (const word of text.split(' ')) yield word;
}
`;
const LARGE_BYTES = 5_000_000;
const POLL_MS = 50;

export const CHECKS: Readonly<Record<string, (parts: Parts) => Promise<void>>> = {
  'an agent is created from a directory, called, restarted and deleted': async ({ client, rookery }) => {
    const agent = await rookery.agents.create({ code: './app' });
    assert.deepEqual(await agent.invoke({ name: 'Ada' }), { text: 'Hello, Ada', calls: 1 });
    assert.deepEqual(await agent.invoke({ name: 'Ada' }), { text: 'Hello, Ada', calls: 2 });
    await agent.restart();
    assert.deepEqual(await agent.invoke({ name: 'Lin' }), { text: 'Hello, Lin', calls: 1 });
    const listed: string[] = [];
    for await (const { id } of rookery.agents.list()) listed.push(id);
    assert(listed.includes(agent.id));
    await agent.delete();
    await assert.rejects(agent.refresh(), client.NotFound);
  },

  'a function is deployed, called, streamed, mapped and deleted': async ({ client, rookery }) => {
    const fn = await rookery.functions.deploy('words', { code: './app', handler: 'index.words' });
    const pieces: string[] = [];
    for await (const piece of fn.stream({ text: 'piece by piece' })) pieces.push(piece);
    assert.deepEqual(pieces, ['piece', 'by', 'piece']);
    await fn.delete();
    await assert.rejects(rookery.functions.get('words'), client.NotFound);

    const hello = await rookery.functions.deploy('hello', { code: './app' });
    const texts: string[] = [];
    const inputs = ['Ada', 'Lin', 'Tim'].map(name => ({ name }));
    for await (const { text } of hello.map<{ text: string }>(inputs, { concurrency: 2 })) texts.push(text);
    assert.deepEqual(texts, ['Hello, Ada', 'Hello, Lin', 'Hello, Tim']);
    const spawned = await hello.spawn({ name: 'Kim' });
    assert.equal(((await spawned.result()) as { text: string }).text, 'Hello, Kim');
    await hello.delete();
  },

  'files are written, read, streamed, listed, renamed, watched and removed': async ({ client, rookery }) => {
    await using sandbox = await rookery.sandboxes.create();
    const { files } = sandbox;
    await files.makeDirectory('/tmp/dir');
    await files.write('/tmp/dir/bytes', new Uint8Array([1, 2, 255]), { mode: '600' });
    assert.deepEqual([...(await files.read('/tmp/dir/bytes'))], [1, 2, 255]);
    assert.equal((await files.stat('/tmp/dir/bytes')).mode, '0600');
    const chunk = Buffer.alloc(LARGE_BYTES / 100, 'x');
    await files.write('/tmp/dir/large', Readable.from(Array.from({ length: 100 }, () => chunk)));
    let bytes = 0;
    for await (const part of await files.readStream('/tmp/dir/large')) bytes += part.length;
    assert.equal(bytes, LARGE_BYTES);
    assert.deepEqual(names(await files.list('/tmp/dir')), ['bytes', 'large']);

    const watch = await files.watch('/tmp/dir');
    const changes = watch[Symbol.asyncIterator]();
    await files.rename('/tmp/dir/bytes', '/tmp/dir/renamed');
    assert.deepEqual((await changes.next()).value, { type: 'rename', name: 'bytes' });
    const ended = endOf(changes);
    watch.close();
    await ended;
    await files.remove('/tmp/dir');
    assert.equal(await files.exists('/tmp/dir'), false);
    await assert.rejects(files.read('/tmp/dir/large'), client.NotFound);
  },

  'a terminal passes input, separate outputs, its size, much output and the exit code': async ({ rookery }) => {
    await using sandbox = await rookery.sandboxes.create();
    const pipes = await sandbox.terminal({ command: ['sh', '-c', 'cat; echo "$WORD" >&2; exit 3'], ...NO_TTY });
    await pipes.write('typed');
    pipes.endInput();
    const written = { stdout: '', stderr: '' };
    for await (const { from, data } of pipes) written[from] += data.toString();
    assert.deepEqual(written, { stdout: 'typed', stderr: 'err\n' });
    assert.equal(pipes.returncode, 3);

    const shell = await sandbox.terminal({ command: 'read word; stty size; echo got $word', cols: 90, rows: 30 });
    shell.resize(100, 40);
    await shell.write('it\n');
    let output = '';
    for await (const { data } of shell) output += data.toString();
    assert.match(output, /40 100\r\ngot it/);
    assert.equal(shell.returncode, 0);

    const large = await sandbox.terminal({ command: `head -c ${LARGE_BYTES} /dev/zero`, tty: false });
    let bytes = 0;
    for await (const { data } of large) {
      // The client must neither lose nor keep all of what arrives while the reader is slow.
      if (bytes === 0) await delay(POLL_MS);
      bytes += data.length;
    }
    assert.equal(bytes, LARGE_BYTES);
    assert.equal(large.returncode, 0);

    const left = await sandbox.terminal({ command: 'echo started; sleep 600', tty: false });
    for await (const _ of left) break;
    left.close();
    assert.equal(await left.wait(), null);
    await assert.rejects(left.write('more'), /the terminal is closed/);
  },

  'a log and the events are followed until the reader ends them': async ({ rookery }) => {
    const ends = new AbortController();
    const events = rookery.events.follow({ signal: ends.signal });
    assert.equal((await events.next()).value?.type, 'hello');
    await using agent = await rookery.agents.create({ code: './app' });
    await agent.invoke({ name: 'Ada' });
    for await (const line of agent.follow()) if (line.includes('called by Ada')) break;
    for await (const { data } of events) if (data.instance_id === agent.id) break;
    const more = rookery.events.follow({ signal: ends.signal });
    await more.next();
    ends.abort(new Error('enough'));
    await assert.rejects(endOf(more), /enough/);
  },

  'a command, code in a sandbox and a job give their results': async ({ client, rookery }) => {
    await using sandbox = await rookery.sandboxes.create();
    assert.equal((await sandbox.exec(['echo', 'checked'])).check().stdout, 'checked\n');
    const failed = await sandbox.exec('echo wrong >&2; exit 3');
    assert.throws(() => failed.check(), client.CommandFailed);
    assert.equal((await rookery.sandboxes.runCode('print("out"); 1 + 1')).text, '2');
    const id = await rookery.jobs.submit('ls', { code: './app' });
    const lines: string[] = [];
    for await (const line of rookery.jobs.follow(id)) lines.push(line);
    assert(lines.join('\n').includes('index.mjs'));
    assert.equal((await rookery.jobs.wait(id)).status, 'SUCCEEDED');
    await rookery.jobs.delete(id);
  },

  'a failure has the class of its code': async ({ client, rookery }) => {
    await using agent = await rookery.agents.create({ name: 'faulty', code: './app' });
    const failure = await caught(agent.invoke({ fail: true }, { traceId: 'the-trace' }));
    assert(failure instanceof client.ExecutionFailed && failure instanceof client.RookeryError);
    assert.deepEqual([failure.status, failure.innerCode, failure.traceId], [500, 4002, 'the-trace']);
    await assert.rejects(rookery.agents.create({ name: 'faulty', code: './app' }), client.Conflict);
    await assert.rejects(rookery.agents.get('unknown'), client.NotFound);
    await assert.rejects(agent.exec('true', { traceId: 'two\nlines' }), /has characters that no header has/);
    await assert.rejects(agent.terminal({ rows: -1 }), client.InvalidRequest);
    const gone = await rookery.sandboxes.create();
    await gone.kill();
    const refused = await caught(gone.terminal());
    assert(refused instanceof client.NotFound, String(refused));
    assert.equal(refused.status, 404);
  },

  'a request ends at its timeout, at an abort, and when nothing listens': async ({ client, rookery }) => {
    await using agent = await rookery.agents.create({ code: './app' });
    await assert.rejects(agent.invoke({ hang: true }, { runMs: 50 }), client.Timeout);
    await assert.rejects(agent.exec('sleep 600', { timeoutMs: 50 }), client.Timeout);
    const ends = new AbortController();
    const calling = agent.invoke({ hang: true }, { signal: ends.signal });
    setTimeout(() => ends.abort(new Error('enough')), POLL_MS);
    await assert.rejects(calling, /enough/);
    await assert.rejects(agent.terminal({ signal: AbortSignal.abort(new Error('enough')) }), /enough/);
    const silent = await startSilent();
    const half = await new client.Rookery({ url: silent.url, retries: 0 }).sandboxes.get('x');
    await assert.rejects(half.terminal({ timeoutMs: 50 }), client.Timeout);
    const opening = half.terminal({ signal: AbortSignal.timeout(50) });
    await assert.rejects(opening, { name: 'TimeoutError' });
    await silent.close();
    const nowhere = new client.Rookery({ url: silent.url, retries: 0 });
    const unreachable = await caught(nowhere.sandboxes.get('x'));
    assert(unreachable instanceof client.Unavailable);
    assert.match(unreachable.message, /^http:\/\/127\.0\.0\.1:\d+ cannot be reached: nothing listens there$/);
    await assert.rejects(half.terminal(), client.Unavailable);
  },

  'a service behind TLS is reached with the certificate authorities of the environment': async parts => {
    const { client, secureUrl } = parts;
    using secure = new client.Rookery({ url: secureUrl, tenant: 'secure' });
    await using sandbox = await secure.sandboxes.create();
    const terminal = await sandbox.terminal({ command: 'cat', tty: false });
    await terminal.write('over TLS');
    terminal.endInput();
    let output = '';
    for await (const { data } of terminal) output += data.toString();
    assert.equal(output, 'over TLS');
  },
};

/** Starts a service that answers requests with an agent, and no handshake of a WebSocket. */
async function startSilent(): Promise<{ readonly url: string; close(): Promise<void> }> {
  const sockets = new Set<Socket>();
  const server = createServer(socket => {
    sockets.add(socket);
    socket
      .on('error', () => undefined)
      .on('data', data => {
        const body = '{"instance":{"instance_id":"x"}}';
        if (/^upgrade:/im.test(data.toString())) return;
        socket.write(
          `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
        );
      });
  });
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const close = async () => {
    for (const socket of sockets) socket.destroy();
    await new Promise(resolve => server.close(resolve));
  };
  const { port } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${port}`, close };
}

const NO_TTY = { tty: false, env: { WORD: 'err' } } as const;

function names(entries: readonly { readonly name: string }[]): readonly string[] {
  return entries.map(({ name }) => name).sort();
}

/** Returns the error of a promise; fails if it succeeds. */
async function caught(failing: Promise<unknown>): Promise<unknown> {
  return await failing.then(
    () => assert.fail('there was no error'),
    (error: unknown) => error,
  );
}

async function endOf(iterator: AsyncIterator<unknown>): Promise<void> {
  while (!(await iterator.next()).done) {
    // Further values may arrive before the end.
  }
}
