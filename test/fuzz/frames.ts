import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { messageOf } from '../../src/core/error.ts';
import { LIMITS } from '../../src/core/limits.ts';
import type { CallOutcome, InitOutcome } from '../../src/runtime/call.ts';
import { CHECKED_BYTES } from '../../src/runtime/call.ts';
import { Channel } from '../../src/runtime/channel.ts';
import { encodeFrame, type Frame, FrameReader, writeHeader } from '../../src/runtime/frames.ts';
import { FRAME, type Hello, type Init } from '../../src/runtime/protocol.ts';
import { everyFrame } from '../fakes/every-frame.ts';
import { Random } from '../parts/random.ts';
import { escapesOf, type Fuzzer } from './fuzzer.ts';

/** Time after which an unsettled call counts as hanging. Every call has a shorter timeout (`CALL_MS`). */
const HANG_MS = 20_000;
const CALL_MS = 300;
/** Largest growth of live memory after garbage collection, from the first tenth of the run to its end. */
const MAX_GROWTH_BYTES = 24 * 1024 * 1024;
const SENDERS = 4;

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

const CODES: readonly unknown[] = [
  4001,
  4002,
  4007,
  4000,
  4037,
  200,
  200404,
  -1,
  4002.5,
  1e300,
  '4002',
  '4002\r\nA: b',
  'constructor',
  '__proto__',
  {},
  [],
  null,
  true,
];
const VALUES: readonly string[] = [
  'null',
  '1',
  '"a"',
  '{"a":[1,2]}',
  ' [] ',
  '',
  '1,"code":500',
  '}',
  '{"a"',
  'NaN',
  '"\n"',
  '\u0000',
  '['.repeat(5000),
  // This value is larger than the size up to which results are checked to be JSON.
  `"${'x'.repeat(5000)}"`,
  `"${'x'.repeat(5000)}","code":500`,
  `"${'x'.repeat(5000)}\\\\","code":500,"a":"\\"`,
  `{"a":"${'x'.repeat(5000)}"},"message":"forged"`,
  `[${'1,'.repeat(3000)}1]]`,
  `${'1'.repeat(5000)} x`,
];
const TEXTS: readonly unknown[] = [
  'x',
  '',
  'a\r\nSet-Cookie: a=b',
  '\u0000\u001b[2J',
  'é\ud800',
  'y'.repeat(100_000),
  {},
  null,
  7,
];
const TYPES = Object.values(FRAME);

/**
 * A hostile runtime. Most of its answers are correct, so that its wrong frames meet a channel in every state.
 */
class HostileRuntime {
  readonly #random: Random;
  readonly #sockets = new Map<Hello['role'], net.Socket>();
  readonly #calls: number[] = [];
  frames = 0;

  constructor(random: Random) {
    this.#random = random;
  }

  serve(socket: net.Socket): void {
    let role: Hello['role'] | undefined;
    const reader = new FrameReader(
      everyFrame(frame => {
        if (role === undefined) {
          role = (JSON.parse(frame.payload.toString()) as Hello).role;
          this.#sockets.set(role, socket);
          this.#send(role, this.#random.chance(0.96) ? this.#hello() : this.#anything());
          if (this.#random.chance(0.05)) this.#send(role, this.#anything());
        } else this.#react(role, frame);
      }),
    );
    socket.on('data', chunk => reader.push(chunk));
    socket.on('error', () => undefined);
  }

  #react(role: Hello['role'], { type, callId }: Frame): void {
    const random = this.#random;
    if (random.chance(0.02)) return;
    if (random.chance(0.04)) this.#send(random.pick(['data', 'control']), this.#anything());
    if (type === FRAME.INIT)
      this.#send(
        'data',
        random.chance(0.9) ? json(FRAME.INIT_OK, 0, { loadMicros: 1, initMicros: 2 }) : this.#error(0),
      );
    else if (type === FRAME.PING)
      this.#send('control', json(FRAME.PONG, 0, random.chance(0.9) ? { running: 1, queued: 0 } : random.pick(CODES)));
    else if (type === FRAME.STOP)
      this.#send('control', json(FRAME.STOPPED, 0, random.chance(0.7) ? {} : { error: this.#failure() }));
    else if (type === FRAME.CALL) this.#answer(callId);
    else if (type === FRAME.CREDIT && random.chance(0.5)) this.#send('data', this.#chunk(callId));
    if (random.chance(0.004)) this.#sockets.get(role)?.destroy();
  }

  #answer(callId: number): void {
    const random = this.#random;
    this.#calls.push(callId);
    for (let count = random.below(3); count > 0; count--)
      if (random.chance(0.3)) this.#send('data', this.#chunk(callId));
    const answers = random.chance(0.96) ? 1 : random.below(3);
    for (let count = 0; count < answers; count++) {
      this.#send('data', random.chance(0.8) ? this.#result(callId) : this.#error(callId));
    }
  }

  #hello(): Buffer {
    const random = this.#random;
    const hello: Record<string, unknown> = {
      version: 1,
      runtime: 'hostile',
      sdk: 'hostile/1',
      state: random.pick(['ready', 'failed', 'new']),
    };
    if (random.chance(0.03)) hello[random.pick(Object.keys(hello))] = random.pick([...CODES, ...TEXTS]);
    if (random.chance(0.05)) hello.error = this.#failure();
    return json(FRAME.HELLO_OK, 0, hello);
  }

  #result(callId: number): Buffer {
    const random = this.#random;
    const value = random.chance(0.02) ? Buffer.alloc(random.below(300_000), 0x31) : Buffer.from(random.pick(VALUES));
    return encodeFrame(
      FRAME.RESULT,
      callId,
      random.chance(0.97) ? Buffer.concat([random.bytes(4), value]) : random.bytes(random.below(6)),
    );
  }

  #chunk(callId: number): Buffer {
    const random = this.#random;
    return encodeFrame(
      FRAME.CHUNK,
      callId,
      Buffer.alloc(random.pick([0, 1, 10, 1000, 100_000]), random.pick([0x0a, 0x0d, 0x61, 0xff])),
    );
  }

  #error(callId: number): Buffer {
    return json(
      FRAME.ERROR,
      callId,
      this.#random.chance(0.9) ? this.#failure() : this.#random.pick([...CODES, ...TEXTS]),
    );
  }

  #failure(): unknown {
    const random = this.#random;
    const proper = random.chance(0.7);
    return {
      code: proper ? 4002 : random.pick(CODES),
      message: proper ? 'x' : random.pick(TEXTS),
      ...(random.chance(0.3) ? { runMicros: proper ? 5 : random.pick(CODES) } : {}),
    };
  }

  /** Returns a frame of any kind for any call, with right or wrong lengths, or bytes that are not a frame. */
  #anything(): Buffer {
    const random = this.#random;
    const callId =
      random.chance(0.7) && this.#calls.length > 0 ? random.pick(this.#calls) : random.pick([0, 1, 2, 0xffff_ffff]);
    switch (random.below(8)) {
      case 0:
        return random.bytes(random.below(60));
      case 1: {
        const head = Buffer.alloc(9 + random.below(20));
        writeHeader(
          head,
          random.pick(TYPES),
          callId,
          random.pick([0, 3, 100, LIMITS.frameBytes - 5, LIMITS.frameBytes + 5, 0xffff_fff0]),
        );
        return head;
      }
      case 2:
        return this.#result(callId);
      case 3:
        return this.#error(callId);
      case 4:
        return this.#chunk(callId);
      case 5:
        return encodeFrame(random.below(256), callId, random.bytes(random.below(30)));
      case 6:
        return json(random.pick(TYPES), callId, random.pick([...CODES, ...TEXTS]));
      default: {
        const frame = random.chance(0.5) ? this.#hello() : this.#error(callId);
        frame[random.below(frame.length)] = random.below(256);
        return frame;
      }
    }
  }

  /** Sends bytes, sometimes in several pieces. */
  #send(role: Hello['role'], bytes: Buffer): void {
    const socket = this.#sockets.get(role);
    if (socket === undefined || socket.destroyed) return;
    this.frames += 1;
    const cut = this.#random.chance(0.1) ? this.#random.below(bytes.length + 1) : bytes.length;
    socket.write(bytes.subarray(0, cut));
    if (cut < bytes.length) setImmediate(() => socket.write(bytes.subarray(cut)));
  }
}

/**
 * Drives real channels over real sockets against a hostile runtime. No error may escape. Each call must
 * settle with an outcome for callers. A channel must close after an invalid frame, and memory must not grow.
 */
export const fuzzFrames: Fuzzer = async ({ seed, maxIterations, maxSeconds }) => {
  const directory = mkdtempSync(join(tmpdir(), 'rookery-fuzz-'));
  const path = join(directory, 'runtime.sock');
  const faults: string[] = [];
  const counts = { frames: 0, calls: 0, failed: 0, lost: 0, broken: 0, refused: 0 };
  const endMs = performance.now() + maxSeconds * 1000;
  const waiting: HostileRuntime[] = [];
  let iterations = 0;
  let heapBytes = 0;

  const sender = async (index: number) => {
    const ownPath = `${path}.${index}`;
    let runtime = new HostileRuntime(new Random(0));
    const sockets = new Set<net.Socket>();
    const server = net.createServer(socket => {
      sockets.add(socket);
      socket.on('error', () => socket.destroy());
      socket.on('close', () => sockets.delete(socket));
      runtime.serve(socket);
    });
    await new Promise<void>(resolve => server.listen(ownPath, resolve));
    while (iterations < maxIterations && performance.now() < endMs && faults.length < 20) {
      const own = seed + iterations++;
      const random = new Random(own);
      runtime = new HostileRuntime(random);
      waiting[index] = runtime;
      const run = attack(ownPath, random, counts, fault => faults.push(`seed ${own}: ${fault}`));
      const hang = new Promise<void>(resolve => {
        const timer = setTimeout(() => {
          faults.push(`seed ${own}: hangs`);
          resolve();
        }, HANG_MS);
        void run.finally(() => {
          clearTimeout(timer);
          resolve();
        });
      });
      await Promise.race([run, hang]);
      counts.frames += runtime.frames;
      for (const socket of sockets) socket.destroy();
      if (iterations === Math.max(200, Math.floor(maxIterations / 10)) || (heapBytes === 0 && iterations > 2000))
        heapBytes = liveBytes();
    }
    await new Promise(resolve => server.close(resolve));
  };

  try {
    const escapes = await escapesOf(
      async () => void (await Promise.all(Array.from({ length: SENDERS }, (_, index) => sender(index)))),
    );
    faults.push(...escapes.map(what => `escaped: ${what}`));
  } finally {
    rmSync(directory, { recursive: true });
  }
  const growthBytes = heapBytes === 0 ? 0 : liveBytes() - heapBytes;
  if (growthBytes > MAX_GROWTH_BYTES) faults.push(`live memory grew by ${growthBytes} bytes`);
  return { iterations, faults, counts: { ...counts, growthKb: Math.round(growthBytes / 1024) } };
};

/** Opens one channel to the runtime, uses it and closes it. */
async function attack(
  path: string,
  random: Random,
  counts: Record<'calls' | 'failed' | 'lost' | 'broken' | 'refused', number>,
  fault: (what: string) => void,
): Promise<void> {
  const signal = () => AbortSignal.timeout(CALL_MS);
  const init = random.chance(0.5) ? ({} as Init) : undefined;
  let channel: Channel;
  try {
    channel = await Channel.open({ kind: 'unix', path }, 'secret', signal(), init);
  } catch (error) {
    counts.refused += 1;
    checkText(error, fault);
    return;
  }
  try {
    if (init) {
      const outcome = await channel.initialized(signal());
      if (!outcome.ok) checkFailure(outcome, fault);
    }
    const waits: Promise<unknown>[] = [];
    for (let count = random.below(12); count >= 0 && !channel.isClosed; count--) {
      counts.calls += 1;
      waits.push(call(channel, random, counts, fault));
      if (random.chance(0.1)) waits.push(channel.ping(signal()).catch(error => checkText(error, fault)));
      if (random.chance(0.5)) await new Promise(resolve => setImmediate(resolve));
    }
    await Promise.all(waits);
    if (random.chance(0.3)) await channel.stop(10, signal());
  } catch (error) {
    checkText(error, fault);
  } finally {
    if (channel.closedBecause.startsWith('the runtime broke')) counts.broken += 1;
    checkText(new Error(channel.closedBecause), fault);
    channel.close();
    await channel.closed;
    if (channel.inFlight !== 0) fault(`${channel.inFlight} calls are open on a closed channel`);
  }
}

async function call(
  channel: Channel,
  random: Random,
  counts: Record<'failed' | 'lost', number>,
  fault: (what: string) => void,
): Promise<void> {
  const isStream = random.chance(0.4);
  const reads = random.chance(0.7);
  const gone = new AbortController();
  const credit = 5000;
  let unreadBytes = 0;
  const running = channel.call({
    header: { traceId: 't', traceparent: '', requestId: 'r', ...(isStream ? { stream: true, credit } : {}) },
    body: Buffer.from('{}'),
    timeoutMs: random.chance(0.1) ? 5 : CALL_MS,
    signal: gone.signal,
    onChunk: isStream
      ? (event, callId) => {
          if (unreadBytes >= credit) fault('a chunk came beyond the credit');
          if (reads) channel.credit(callId, Math.max(1, event.length));
          else unreadBytes += Math.max(1, event.length);
        }
      : () => fault('a chunk came for a call that is no stream'),
  });
  if (random.chance(0.1)) setImmediate(() => gone.abort());
  try {
    const outcome = await running;
    if (outcome.ok) checkResult(outcome.data, fault);
    else {
      counts.failed += 1;
      checkFailure(outcome, fault);
    }
  } catch (error) {
    counts.lost += 1;
    if (error instanceof TypeError || error instanceof RangeError) fault(`an error of our own: ${error.stack}`);
    checkText(error, fault);
  }
}

/**
 * Checks a result inside the answer that a caller reads. A small result must be JSON. A large result is not
 * checked: the caller's parser may fail, but must find no field of the sandbox besides `data`.
 */
function checkResult(data: Buffer, fault: (what: string) => void): void {
  const whole = Buffer.concat([Buffer.from('{"code":200,"data":'), data, Buffer.from(',"message":""}')]);
  let answer: Record<string, unknown>;
  try {
    answer = JSON.parse(new TextDecoder('utf-8', { fatal: data.length <= CHECKED_BYTES }).decode(whole));
  } catch (error) {
    if (data.length <= CHECKED_BYTES) fault(`a result is not JSON: ${messageOf(error)}`);
    return;
  }
  const isOurs = answer.code === 200 && answer.message === '' && Object.keys(answer).join() === 'code,data,message';
  if (!isOurs) fault('a result changes the answer around it');
}

function checkFailure(failure: (CallOutcome | InitOutcome) & { ok: false }, fault: (what: string) => void): void {
  const { code, text } = 'error' in failure ? { code: failure.error.code, text: failure.error.message } : failure;
  if (!Number.isInteger(code) || code < 4000 || code > 4999) fault(`the code ${JSON.stringify(code)}`);
  if (typeof text !== 'string' || text.length > LIMITS.callErrorChars + 3) fault('a text that is none, or too long');
}

/** Checks that the text for callers and logs is one line without control characters. */
function checkText(error: unknown, fault: (what: string) => void): void {
  if (!(error instanceof Error) || /[\p{Cc}\u2028\u2029]/u.test(error.message))
    fault(`the text ${JSON.stringify(String(error))}`);
}

function json(type: number, callId: number, message: unknown): Buffer {
  return encodeFrame(type, callId, JSON.stringify(message));
}

function liveBytes(): number {
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  return heapUsed + external;
}
