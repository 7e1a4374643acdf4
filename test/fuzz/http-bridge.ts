import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { resolve } from 'node:path';
import { createInterface, type Interface } from 'node:readline';
import { setImmediate as turn } from 'node:timers/promises';
import { Inside } from '../http/passthrough-bed.ts';
import { Random } from '../parts/random.ts';
import { hostileAnswer } from './answers.ts';
import type { Fuzzer } from './fuzzer.ts';

/**
 * Attacks the bridge of kind `http`. Calls of several threads get the same hostile answers as the
 * passthrough.
 */
const CALLS = 40;
const HANG_MS = 30_000;
const KEPT_MS = 100;
/**
 * The bridge holds at most 512 MiB of answers (`_LIMIT_BYTES` in `http_exchange.py`), and 64 MiB are for the
 * interpreter. How much of it four calls need at once depends on the machine.
 */
const MAX_PEAK_MB = 576;
const DRIVER = resolve(import.meta.dirname, 'http_bridge.py');
const PYTHONPATH = resolve(import.meta.dirname, '../../runtimes/python');

interface Outcome {
  readonly kind: 'value' | 'too large' | 'failure' | 'escaped' | 'end';
  readonly mark: string;
  readonly text: string;
  readonly peakMb: number;
}

/** Runs random hostile answers against the bridge until a limit, and returns the faults. */
export const fuzzHttpBridge: Fuzzer = async ({ seed, maxIterations, maxSeconds }) => {
  const inside = new Inside();
  let random = new Random(seed);
  const port = await inside.tcp(socket => serve(socket, mark => hostileAnswer(random, mark)));
  const child = spawn('python3', ['-B', DRIVER, String(port)], {
    env: { ...process.env, PYTHONPATH },
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const lines = createInterface({ input: child.stdout });
  const faults: string[] = [];
  const counts = { calls: 0, values: 0, tooLarge: 0, failures: 0, peakMb: 0 };
  const endMs = performance.now() + maxSeconds * 1000;
  let iterations = 0;
  const judge = ({ kind, mark, text, peakMb }: Outcome) => {
    counts.peakMb = Math.max(counts.peakMb, peakMb);
    if (kind === 'value') counts.values += 1;
    else if (kind === 'too large') counts.tooLarge += 1;
    else if (kind === 'failure') counts.failures += 1;
    else if (text !== '') faults.push(`seed ${seed + iterations}: ${mark} ${kind}: ${text}`);
    if (text.length > 2000) faults.push(`seed ${seed + iterations}: ${mark}: an error of ${text.length} characters`);
  };
  try {
    for (; iterations < maxIterations && performance.now() < endMs && faults.length < 10; iterations += 1) {
      random = new Random(seed + iterations);
      const marks = Array.from(
        { length: CALLS },
        (_, index) => `m${String(iterations * CALLS + index).padStart(9, '0')}.`,
      );
      counts.calls += marks.length;
      const outcomes = take(lines, marks.length);
      child.stdin.write(`${marks.join('\n')}\n`);
      for (const outcome of await outcomes) judge(outcome);
    }
    const last = take(lines, 1);
    child.stdin.end();
    for (const outcome of await last) judge(outcome);
    if (counts.peakMb > MAX_PEAK_MB) faults.push(`the bridge took ${counts.peakMb} MB`);
  } catch (error) {
    faults.push(`seed ${seed + iterations}: ${String(error)}`);
  } finally {
    await end(child);
    await inside.close();
  }
  return { iterations, faults, counts };
};

/** Returns the next `count` lines of the driver. Fails when they do not arrive in time. */
function take(lines: Interface, count: number): Promise<Outcome[]> {
  const outcomes: Outcome[] = [];
  return new Promise((fulfil, reject) => {
    const stop = () => {
      clearTimeout(timer);
      lines.off('line', onLine).off('close', onClose);
    };
    const fail = (why: string) => {
      stop();
      reject(new Error(`${why} after ${outcomes.length} of ${count} calls`));
    };
    const timer = setTimeout(() => fail('a call hangs'), HANG_MS);
    const onClose = () => fail('the bridge ended');
    const onLine = (line: string) => {
      outcomes.push(JSON.parse(line) as Outcome);
      if (outcomes.length < count) return;
      stop();
      fulfil(outcomes);
    };
    lines.on('line', onLine).on('close', onClose);
  });
}

/**
 * Answers requests of one connection while they arrive in quick succession. Unread bytes of one call must not
 * become the answer of the next call.
 */
function serve(socket: Socket, planned: (mark: string) => ReturnType<typeof hostileAnswer>): void {
  let heard = '';
  const idle = setTimeout(() => socket.end(), KEPT_MS);
  socket.once('close', () => clearTimeout(idle));
  socket.on('end', () => socket.end());
  socket.on('data', async data => {
    heard += data.toString('latin1');
    const mark = /"mark": "(m\d{9}\.)"\}$/.exec(heard)?.[1];
    if (mark === undefined) return;
    heard = '';
    idle.refresh();
    const plan = planned(mark);
    for (const part of plan.parts) {
      socket.write(part);
      await turn();
    }
    if (plan.end === 'reset') socket.resetAndDestroy();
    else if (plan.end === 'end') socket.end();
  });
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  const timer = setTimeout(() => child.kill('SIGKILL'), 1000);
  await ended;
  clearTimeout(timer);
}
