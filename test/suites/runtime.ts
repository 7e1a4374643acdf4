import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type CallSpan, readCallSpans } from '../../src/core/call-spans.ts';
import type { RuntimeEndpoint } from '../../src/core/instance.ts';
import { LIMITS } from '../../src/core/limits.ts';
import { frameOf } from '../../src/lib/length-frames.ts';
import { connectProven } from '../../src/lib/proven-tls.ts';
import type { Call, CallOutcome } from '../../src/runtime/call.ts';
import { Channel, ChannelClosed } from '../../src/runtime/channel.ts';
import { encodeFrame, type Frame, FrameReader } from '../../src/runtime/frames.ts';
import { FRAME, type Init, PROTOCOL_VERSION } from '../../src/runtime/protocol.ts';
import { everyFrame } from '../fakes/every-frame.ts';

/**
 * Entries that the suite needs from a language, with the behaviour of each. All may be in one file. Events
 * and results are JSON; `boom` is the text of every failure.
 */
export interface RuntimeEntries {
  /** Returns the event. */
  readonly echo: string;
  readonly fail: string;
  /** Ends the process at once with exit code `event.code`. */
  readonly exit: string;
  /** Adds 1 to a number that the instance keeps (0 at first) and returns it. */
  readonly count: string;
  /**
   * Waits until the file `event.file` exists, or not at all without it, then appends `event.number` to a list
   * of the instance. Returns `{order: <the list>, most: <largest number of concurrent calls>}`.
   */
  readonly gate: string;
  /** Sleeps `event.seconds`, in a way that a cancel can end. */
  readonly sleep: string;
  /** Returns a value that JSON cannot represent. */
  readonly notJson: string;
  /** Returns a text of `event.length` characters `x`. */
  readonly text: string;
  /** Returns 100 000 arrays, each inside the other. */
  readonly deep: string;
  /** Writes each text of `event.parts` to the stream and returns `"end"`. */
  readonly stream: string;
  /** Writes the lines `a line on stdout` and `a line on stderr`. */
  readonly log: string;
  /** Writes `event.lines` lines of 1 KiB to stdout and returns `"printed"`. */
  readonly flood: string;
  /** Returns everything of the context under the names of INIT and CALL, and `remainingMs`. */
  readonly facts: string;
  /**
   * Makes the span `outer` with an inner span, and then the span `last`. The span `inner` has no attributes;
   * `outer` has `n` 1, `text` `a`, and `late` true, which is set after `inner`. Fails in `last` if
   * `event.fail` is true, else returns `"done"`. Absent: the runtime has no spans.
   */
  readonly spans?: string;
  /** Makes `event.count` spans `s`, each with the attribute `number`. */
  readonly manySpans?: string;
  /** Initializers. They set the number of `count` to 100, fail, or take a minute. */
  readonly start: string;
  readonly startFails: string;
  readonly startSlow: string;
  /** pre_stop hooks. They write `pre_stop has run`, fail, or take a minute. */
  readonly stop: string;
  readonly stopFails: string;
  readonly stopSlow: string;
  /** Entries that cannot be loaded, each with the expected error text. */
  readonly unloadable: Readonly<Record<string, string>>;
}

/** A started runtime that listens. */
export interface StartedRuntime {
  readonly endpoint: RuntimeEndpoint;
  readonly secret: string;
  /** Resolves with its exit code when the runtime ends. */
  readonly exited: Promise<number | null>;
  /** Returns the output of the runtime and its code so far, stdout and stderr. */
  log(): string;
  /** Ends the runtime if it still runs, and removes its files. */
  dispose(): Promise<void>;
}

export interface RuntimeUnderTest {
  readonly codePath: string;
  readonly entries: RuntimeEntries;
  /**
   * Kind of the runtime. `code` (the default): the runtime loads user code. `server`: it passes calls on to
   * an HTTP server (docs/languages/http.md). Then nothing is loaded, a text is a value, and headers carry the
   * context. A stream has no final value, and SIGTERM ends the server.
   */
  readonly kind?: 'code' | 'server';
  /** True if the runtime reads no more calls while `concurrency` calls run. */
  readonly readsInTurn?: boolean;
  /** True if the log uses another stream than the answers and may arrive later. */
  readonly isLogLate?: boolean;
  /** Starts a runtime. With `slowToStop`, a server ignores SIGTERM. */
  start(options?: { readonly slowToStop: boolean }): Promise<StartedRuntime>;
}

/** Timeout of each wait of a test. */
const WAIT_MS = 20_000;

/** Describes the conformance suite of a runtime: calls, streams, cancels, connections and the end. */
export function describeRuntime(name: string, subject: RuntimeUnderTest): void {
  const { entries } = subject;
  const isServer = subject.kind === 'server';

  describe(`the runtime protocol: ${name}`, () => {
    let directory: string;
    let runtime: StartedRuntime;
    const channels: Channel[] = [];

    beforeEach(async () => {
      directory = mkdtempSync(join(tmpdir(), 'rookery-runtime-'));
      runtime = await subject.start();
    });

    afterEach(async () => {
      for (const channel of channels.splice(0)) channel.close();
      await runtime.dispose();
      rmSync(directory, { recursive: true });
    });

    async function open(): Promise<Channel> {
      const channel = await Channel.open(runtime.endpoint, runtime.secret, AbortSignal.timeout(WAIT_MS));
      channels.push(channel);
      return channel;
    }

    function initOf(handler: string, changes: Partial<Init> = {}): Init {
      return {
        codePath: subject.codePath,
        handler,
        initializer: '',
        preStop: '',
        initTimeoutMs: 10_000,
        concurrency: 1,
        maxResultBytes: LIMITS.responseBodyBytes,
        instanceId: 'instance-1',
        tenant: 'tenant-1',
        namespace: 'space',
        name: 'agent-1',
        functionName: '0@shop@order',
        version: 'v1',
        memoryMb: 512,
        cpuMillis: 750,
        ...changes,
      };
    }

    async function ready(handler: string, changes: Partial<Init> = {}): Promise<Channel> {
      const channel = await open();
      const outcome = await channel.initialize(initOf(handler, changes), AbortSignal.timeout(WAIT_MS));
      expect(outcome).toMatchObject({ ok: true });
      return channel;
    }

    /**
     * Polls until `running` calls run and, if given, `queued` calls wait. A runtime need not have read the
     * waiting calls.
     */
    async function counts(channel: Channel, running: number, queued?: number): Promise<void> {
      const signal = AbortSignal.timeout(WAIT_MS);
      for (;;) {
        const pong = await channel.ping(signal);
        if (pong.running === running && (queued === undefined || pong.queued === queued)) return;
      }
    }

    const failure = (code: number, text: unknown) => ({ ok: false, code, text });

    describe('calls of a runtime', () => {
      test('a call returns its event byte for byte as a value, whatever it contains', async () => {
        const channel = await ready(entries.echo);
        for (const event of [{ a: [1, -2.5, null, true, 'é\u{1f600}"\\\n'] }, 'text', 0, null, [], {}]) {
          expect(resultOf(await channel.call(callOf(event)))).toEqual(event);
        }
      });

      test('a call keeps half of a surrogate pair in its event and value', async () => {
        const channel = await ready(entries.echo);
        const halves = ['a\ud83db', '\ude00\ud83d\ude00', '\ud83d'];
        expect(resultOf(await channel.call(callOf(halves)))).toEqual(halves);
      });

      test('a call accepts white space around the event and a body of the largest size', async () => {
        const channel = await ready(entries.echo);
        const outcome = await channel.call({ ...callOf(null), body: Buffer.from(' \n{"a": 1}\t ') });
        expect(resultOf(outcome)).toEqual({ a: 1 });
        const text = 'x'.repeat(LIMITS.invokeBodyBytes - 2);
        expect(resultOf(await channel.call(callOf(text)))).toBe(text);
      });

      test('a call reports the time in the handler', async () => {
        const channel = await ready(entries.sleep);
        const outcome = await channel.call(callOf({ seconds: 0.05 }));
        expect(outcome.runMicros).toBeGreaterThanOrEqual(50_000);
      });

      test('a handler that raises fails the call with 4002 and the text, logs the trace, and the next call runs', async () => {
        const channel = await ready(entries.fail);
        for (let round = 0; round < 2; round++) {
          const outcome = await channel.call(callOf({}));
          expect(outcome).toMatchObject(
            failure(4002, expect.stringMatching(/^Fail to run user call handler\. err: .*boom.*\.$/s)),
          );
        }
        if (subject.isLogLate) await expect.poll(() => runtime.log(), { timeout: WAIT_MS }).toContain('boom');
        expect(runtime.log()).toContain('boom');
      });

      test(`a value that is not JSON is ${isServer ? 'a text' : '4007'}`, async () => {
        const channel = await ready(entries.notJson);
        const outcome = await channel.call(callOf({}));
        if (isServer) expect(resultOf(outcome)).toEqual(expect.any(String));
        else expect(outcome).toMatchObject(failure(4007, expect.any(String)));
      });

      test('a result above the limit is 4004 with both sizes, and one of exactly the limit passes', async () => {
        const channel = await ready(entries.text, { maxResultBytes: 1000 });
        expect(await channel.call(callOf({ length: 999 }))).toMatchObject(
          failure(4004, 'response body size 1001 exceeds the limit of 1000'),
        );
        expect(resultOf(await channel.call(callOf({ length: 998 })))).toBe('x'.repeat(998));
      });

      test('a result of 7 MiB is refused, and the instance continues', async () => {
        const channel = await ready(entries.text);
        const length = 7 * 1024 * 1024;
        expect(await channel.call(callOf({ length }))).toMatchObject(
          failure(4004, `response body size ${length + 2} exceeds the limit of ${LIMITS.responseBodyBytes}`),
        );
        expect(resultOf(await channel.call(callOf({ length: 3 })))).toBe('xxx');
      });

      test('an event or a value that is nested too deeply fails its call and not the instance', async () => {
        const echo = await ready(entries.echo);
        const body = Buffer.from('['.repeat(100_000) + ']'.repeat(100_000));
        const outcome = await echo.call({ ...callOf(null), body });
        // A language without a depth limit may return the value.
        if (!outcome.ok) expect([4002, 4007]).toContain(outcome.code);
        expect(resultOf(await echo.call(callOf(1)))).toBe(1);
      });

      test('the next call finds the memory of the instance', async () => {
        const channel = await ready(entries.count);
        const values = [];
        for (let round = 0; round < 3; round++) values.push(resultOf(await channel.call(callOf({}))));
        expect(values).toEqual([1, 2, 3]);
      });

      test('the context of a handler names the call and the instance', async () => {
        const channel = await ready(entries.facts);
        const header = {
          traceId: 'trace-1',
          requestId: 'request-1',
          sessionId: 'session-1',
          traceparent: `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`,
          headers: { 'x-colour': 'red' },
        };
        const facts = resultOf(await channel.call({ ...callOf({}), header })) as Record<string, unknown>;
        expect(facts).toMatchObject({
          ...header,
          traceparent: expect.stringMatching(/^00-1{32}-(?!2{16})[0-9a-f]{16}-01$/),
          instanceId: 'instance-1',
        });
        if (isServer) return;
        expect(facts).toMatchObject({
          tenant: 'tenant-1',
          namespace: 'space',
          name: 'agent-1',
          functionName: '0@shop@order',
          version: 'v1',
          memoryMb: 512,
          cpuMillis: 750,
        });
        expect(facts.remainingMs).toBeGreaterThan(0);
        expect(facts.remainingMs).toBeLessThanOrEqual(WAIT_MS);
      });

      test('the span of traceparent has the first digits of the request id', async () => {
        const channel = await ready(entries.facts);
        const header = {
          ...{ traceId: 'trace-1', requestId: '01234567-89ab-4cde-8f01-23456789abcd', headers: {} },
          traceparent: `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`,
        };
        const facts = resultOf(await channel.call({ ...callOf({}), header }));
        expect(facts).toMatchObject({ traceparent: `00-${'1'.repeat(32)}-0123456789ab4cde-01` });
      });

      if (entries.spans !== undefined && entries.manySpans !== undefined) {
        const { spans: spansEntry, manySpans: manySpansEntry } = entries;

        test('spans of a handler arrive with its result and with its failure', async () => {
          const channel = await ready(spansEntry);
          for (const fail of [false, true]) {
            const outcome = await channel.call(callOf({ fail }));
            expect(outcome.ok).toBe(!fail);
            const { spans, dropped } = readCallSpans(String(outcome.spans));
            expect(spans).toMatchObject([
              { name: 'outer', parent: null, attributes: { n: 1, text: 'a', late: true } },
              { name: 'inner', parent: 0 },
              { name: 'last', parent: null, ...(fail && { error: expect.stringContaining('boom') }) },
            ]);
            const [outer, inner, last] = spans as [CallSpan, CallSpan, CallSpan];
            expect([outer.error, inner.error, inner.attributes, last.attributes, dropped]).toEqual([
              ...[undefined, undefined, undefined, undefined, 0],
            ]);
            if (!fail) expect(last.error).toBeUndefined();
            expect(inner.startMicros).toBeGreaterThanOrEqual(outer.startMicros);
            // Each time is rounded.
            expect(inner.startMicros + inner.micros).toBeLessThanOrEqual(outer.startMicros + outer.micros + 2);
            expect(last.startMicros + 1).toBeGreaterThanOrEqual(outer.startMicros + outer.micros);
            expect(last.startMicros + last.micros).toBeLessThanOrEqual(outcome.runMicros + 2);
          }
        });

        test('spans above the limit are dropped and counted', async () => {
          const channel = await ready(manySpansEntry);
          const { count } = LIMITS.callSpans;
          const { spans, dropped } = readCallSpans(String((await channel.call(callOf({ count: count + 2 }))).spans));
          expect([spans.length, dropped]).toEqual([count, 2]);
          expect(spans.at(-1)).toMatchObject({ name: 's', attributes: { number: count - 1 } });
        });

        test('a call without spans has none', async () => {
          const channel = await ready(manySpansEntry);
          expect(await channel.call(callOf({ count: 0 }))).not.toHaveProperty('spans');
        });
      }

      test('lines of a handler are in the log when the call is answered', async () => {
        const channel = await ready(entries.log);
        await channel.call(callOf({}));
        // Stdout and stderr arrive independently.
        for (const line of subject.isLogLate ? ['a line on stdout\n', 'a line on stderr\n'] : [])
          await expect.poll(() => runtime.log(), { timeout: WAIT_MS }).toContain(line);
        expect(runtime.log()).toContain('a line on stdout\n');
        expect(runtime.log()).toContain('a line on stderr\n');
      });

      test('a handler that writes megabytes of lines is answered', async () => {
        const channel = await ready(entries.flood);
        expect(resultOf(await channel.call(callOf({ lines: 20_000 })))).toBe('printed');
      });

      test('a runtime process that ends fails its calls at once', async () => {
        const channel = await ready(entries.exit);
        const calls = [channel.call(callOf({ code: 7 })), channel.call(callOf({ code: 8 }))];
        for (const call of calls) await expect(call).rejects.toBeInstanceOf(ChannelClosed);
        expect(await runtime.exited).toBe(7);
      });
    });

    describe('order and concurrency of calls', () => {
      test('calls of two clients run one after another, those of each in the order of their arrival', async () => {
        const first = await ready(entries.gate);
        const second = await open();
        const file = join(directory, 'go');
        const calls = [first.call(callOf({ number: 0, file }))];
        await counts(first, 1);
        for (let number = 1; number <= 10; number++) {
          calls.push((number % 2 === 0 ? first : second).call(callOf({ number })));
        }
        writeFileSync(file, '');
        await Promise.all(calls);
        const { order, most } = resultOf(await first.call(callOf({ number: 11 }))) as { order: number[]; most: number };
        expect(most).toBe(1);
        expect(order.filter(number => number % 2 === 0)).toEqual([0, 2, 4, 6, 8, 10]);
        expect(order.filter(number => number % 2 === 1)).toEqual([1, 3, 5, 7, 9, 11]);
      });

      test('a runtime runs as many calls at once as asked, and no more', async () => {
        const channel = await ready(entries.gate, { concurrency: 3 });
        const file = join(directory, 'go');
        const calls = [];
        for (let number = 0; number < 8; number++) calls.push(channel.call(callOf({ number, file })));
        await counts(channel, 3, 5);
        writeFileSync(file, '');
        const most = (await Promise.all(calls)).map(outcome => (resultOf(outcome) as { most: number }).most);
        // The runtime counts three as running, above. On a slow machine a thread may reach its first line
        // only after the gate opens.
        expect(Math.max(...most)).toBeLessThanOrEqual(3);
      });

      test('a thousand calls that are sent at once are all answered in order', async () => {
        const channel = await ready(entries.count);
        const calls = [];
        for (let number = 0; number < 1000; number++) calls.push(channel.call(callOf({})));
        const values = (await Promise.all(calls)).map(resultOf);
        expect(values).toEqual(Array.from({ length: 1000 }, (_, index) => index + 1));
      });
    });

    describe('initialization of a runtime', () => {
      test('the initializer runs once, before the first call', async () => {
        const channel = await ready(entries.count, { initializer: entries.start });
        expect(resultOf(await channel.call(callOf({})))).toBe(101);
        const again = await channel.initialize(initOf(entries.count), AbortSignal.timeout(WAIT_MS));
        expect(again).toMatchObject({ ok: true });
        expect(resultOf(await channel.call(callOf({})))).toBe(102);
      });

      const failures: [title: string, init: () => Init, code: number, text: string][] = [
        [
          'an initializer that fails is 4201',
          () => initOf(entries.count, { initializer: entries.startFails }),
          4201,
          'boom',
        ],
        [
          'an initializer that takes too long is 4211',
          () => initOf(entries.count, { initializer: entries.startSlow, initTimeoutMs: 200 }),
          4211,
          'timed out after 0.2 s',
        ],
      ];
      const loading: typeof failures = [
        ['no handler is 4201', () => initOf(''), 4201, 'empty user call code'],
        [
          'a code directory that does not exist is 4001',
          () => initOf(entries.echo, { codePath: '/nowhere' }),
          4001,
          '/nowhere',
        ],
        ...Object.entries(entries.unloadable).map(([handler, text]): [string, () => Init, number, string] => [
          `the entry ${handler} is 4001`,
          () => initOf(handler),
          4001,
          text,
        ]),
      ];
      test.each(isServer ? failures : [...failures, ...loading])(
        'a failed initialization also fails every call of every later client: %s',
        async (_, init, code, text) => {
          const channel = await open();
          const outcome = await channel.initialize(init(), AbortSignal.timeout(WAIT_MS));
          expect(outcome).toMatchObject({ ok: false, error: { code, message: expect.stringContaining(text) } });
          const message = outcome.ok ? '' : outcome.error.message;
          expect(await channel.call(callOf({}))).toMatchObject(failure(code, message));
          const other = await open();
          expect(other.hello).toMatchObject({ state: 'failed', error: { code, message } });
          expect(await other.call(callOf({}))).toMatchObject(failure(code, message));
          const again = await other.initialize(init(), AbortSignal.timeout(WAIT_MS));
          expect(again).toMatchObject({ ok: false, error: { code, message } });
        },
      );

      test('a call before INIT fails with 4000', async () => {
        const channel = await open();
        expect(channel.hello).toMatchObject({ version: PROTOCOL_VERSION, state: 'new' });
        expect(await channel.call(callOf({}))).toMatchObject(failure(4000, expect.any(String)));
      });
    });

    describe('cancels of calls', () => {
      test('a call above its time is given up, its code is interrupted, and the next call runs', async () => {
        const channel = await ready(entries.sleep);
        await expect(channel.call({ ...callOf({ seconds: 60 }), timeoutMs: 100 })).rejects.toMatchObject({
          code: 'deadline_exceeded',
          message: 'timed out after 0.1 s',
        });
        expect(resultOf(await channel.call(callOf({ seconds: 0 })))).toBe('slept');
        // A runtime with several threads may answer the interrupted call after the next one.
        while (channel.inFlight > 0) await counts(channel, 0);
      });

      test('a caller that disconnects frees its slot', async () => {
        const channel = await ready(entries.sleep);
        const caller = new AbortController();
        const call = channel.call({ ...callOf({ seconds: 60 }), signal: caller.signal });
        await counts(channel, 1);
        caller.abort();
        await expect(call).rejects.toMatchObject({ code: 'unavailable' });
        expect(resultOf(await channel.call(callOf({ seconds: 0 })))).toBe('slept');
      });

      test('an interrupted call is answered with 4002', async () => {
        const channel = await ready(entries.sleep);
        const caller = new AbortController();
        const call = channel.call({ ...callOf({ seconds: 60 }), signal: caller.signal });
        await counts(channel, 1);
        caller.abort('interrupt');
        expect(await call).toMatchObject(failure(4002, expect.stringContaining('interrupted')));
      });

      test('a waiting call that is cancelled never runs and holds no slot', async () => {
        const channel = await ready(entries.gate);
        const file = join(directory, 'go');
        const running = channel.call(callOf({ number: 1, file }));
        await counts(channel, 1);
        const caller = new AbortController();
        const waiting = channel.call({ ...callOf({ number: 2 }), signal: caller.signal });
        await counts(channel, 1);
        caller.abort();
        await expect(waiting).rejects.toMatchObject({ code: 'unavailable' });
        // The runtime answers the cancelled call while the other one still runs.
        while (channel.inFlight > 1) await counts(channel, 1);
        writeFileSync(file, '');
        await running;
        expect(resultOf(await channel.call(callOf({ number: 3 })))).toEqual({ order: [1, 3], most: 1 });
      });

      const waits: [title: string, eventBytes: number, sent: number, most: number][] = [
        ['512 calls', 0, 1100, 512],
        ['8 MiB of events', 1_000_000, 30, 9],
      ];
      test.each(waits)('the runtime stops reading a connection when %s wait', async (_, eventBytes, sent, most) => {
        const { file, waiting, running, channel } = await fill(sent, 'x'.repeat(eventBytes));
        if (subject.readsInTurn) await counts(channel, 2);
        else await counts(channel, 2, most);
        // A runtime that continued to read would have read everything by the last poll.
        for (let look = 0; look < 100; look++) {
          expect((await channel.ping(AbortSignal.timeout(WAIT_MS))).queued).toBeLessThanOrEqual(most);
        }
        writeFileSync(file, '');
        for (const outcome of await Promise.all([...running, ...waiting])) expect(outcome.ok).toBe(true);
      });

      test.skipIf(subject.readsInTurn)(
        'the runtime continues to read when half of the waiting calls are done',
        async () => {
          const callers = Array.from({ length: 300 }, () => new AbortController());
          const { file, waiting, running, channel } = await fill(1100, '', callers);
          await counts(channel, 2, 512);
          const outcomes = Promise.allSettled([...running, ...waiting]);
          for (const caller of callers.slice(0, 255)) caller.abort();
          await counts(channel, 2, 257);
          for (let look = 0; look < 100; look++) {
            expect((await channel.ping(AbortSignal.timeout(WAIT_MS))).queued).toBe(257);
          }
          callers[255]?.abort();
          await counts(channel, 2, 512);
          writeFileSync(file, '');
          const states = (await outcomes).map(outcome => outcome.status);
          expect(states.filter(state => state === 'rejected')).toHaveLength(256);
        },
      );

      /**
       * Sends two calls that run until `file` exists, and `sent` calls that wait. `callers` cancel the first
       * of these.
       */
      async function fill(sent: number, text: string, callers: readonly AbortController[] = []) {
        const channel = await ready(entries.gate, { concurrency: 2 });
        const file = join(directory, 'go');
        const running = [1, 2].map(number => channel.call(callOf({ number, file })));
        await counts(channel, 2);
        const waiting = Array.from({ length: sent }, (_unused, index) => {
          const call = callOf({ number: index + 3, text });
          const caller = callers[index];
          return channel.call(caller === undefined ? call : { ...call, signal: caller.signal });
        });
        return { file, waiting, running, channel };
      }

      test('a cancel at any moment affects only its own call', async () => {
        const channel = await ready(entries.count);
        let answered = 0;
        for (let round = 0; round < 300; round++) {
          const caller = new AbortController();
          const cancelled = channel.call({ ...callOf({}), signal: caller.signal });
          const other = channel.call(callOf({}));
          setImmediate(() => caller.abort());
          const [first, second] = await Promise.allSettled([cancelled, other]);
          if (first.status === 'fulfilled') expect(first.value.ok).toBe(true);
          expect(second).toMatchObject({ status: 'fulfilled', value: { ok: true } });
          answered++;
        }
        expect(answered).toBe(300);
      });
    });

    describe('streams of calls', () => {
      const last = isServer ? null : 'end';

      test('written texts arrive as events in order, followed by the value', async () => {
        const channel = await ready(entries.stream);
        const events: string[] = [];
        const parts = ['one', 'zwei\n2', 'é\u{1f600}'];
        const outcome = await channel.call({
          ...callOf({ parts }),
          header: { ...HEADER, stream: true, credit: 1000 },
          onChunk: event => events.push(event.toString()),
        });
        expect(events).toEqual(parts);
        expect(resultOf(outcome)).toBe(last);
      });

      test('a writer exceeds its credit by one event at most', async () => {
        const channel = await ready(entries.stream);
        const events: string[] = [];
        let grant = true;
        const call = channel.call({
          ...callOf({ parts: ['12345', '12345', '12345', '12345'] }),
          header: { ...HEADER, stream: true, credit: 6 },
          onChunk: (event, callId) => {
            events.push(event.toString());
            // After the second event the runtime has overdrawn its credit by 4. The grant of 14 covers this
            // and the last two events.
            if (events.length === 2 && grant) {
              grant = false;
              void channel.ping(AbortSignal.timeout(WAIT_MS)).then(pong => {
                expect(pong.running).toBe(1);
                expect(events).toHaveLength(2);
                channel.credit(callId, 14);
              });
            }
          },
        });
        expect(resultOf(await call)).toBe(last);
        expect(events).toHaveLength(4);
      });

      test('a writer that waits for its reader is cancelled with the call', async () => {
        const channel = await ready(entries.stream);
        const call = channel.call({
          ...callOf({ parts: ['12345', '12345'] }),
          header: { ...HEADER, stream: true, credit: 1 },
          timeoutMs: 200,
        });
        await expect(call).rejects.toMatchObject({ code: 'deadline_exceeded' });
        while (channel.inFlight > 0) await counts(channel, 0);
      });

      test(`a call without a reader has no stream${isServer ? ', and its text is the value' : ''}`, async () => {
        const channel = await ready(entries.stream);
        const outcome = await channel.call(callOf({ parts: ['one'] }));
        if (isServer) expect(resultOf(outcome)).toBe('data: one\n\n');
        else expect(outcome).toMatchObject(failure(4002, expect.any(String)));
      });
    });

    describe('connections to a runtime', () => {
      test('the end of a client cancels its running calls and drops its waiting ones, and the next client finds the state', async () => {
        const first = await ready(entries.gate);
        const file = join(directory, 'never');
        resultOf(await first.call(callOf({ number: 1 })));
        const running = first.call(callOf({ number: 2, file }));
        const waiting = first.call(callOf({ number: 3 }));
        await counts(first, 1);
        first.close();
        await expect(running).rejects.toBeInstanceOf(ChannelClosed);
        await expect(waiting).rejects.toBeInstanceOf(ChannelClosed);
        const second = await open();
        expect(second.hello.state).toBe('ready');
        // An HTTP program learns of a cancelled call by the end of its connection, possibly after the next
        // call has begun.
        const most = isServer ? expect.any(Number) : 1;
        expect(resultOf(await second.call(callOf({ number: 4 })))).toEqual({ order: [1, 4], most });
      });

      test('a wrong secret is refused without a hint about the right one', async () => {
        const refused = Channel.open(runtime.endpoint, 'wrong', AbortSignal.timeout(WAIT_MS));
        await expect(refused).rejects.toMatchObject({
          code: 'unavailable',
          message: expect.not.stringContaining(runtime.secret),
        });
        expect((await open()).hello.state).toBe('new');
      });

      const wrong: [title: string, bytes: () => Buffer][] = [
        ['a first frame that is not HELLO', () => encodeFrame(FRAME.PING, 0)],
        ['a HELLO that is not JSON', () => encodeFrame(FRAME.HELLO, 0, 'hello')],
        ['a HELLO of another version', () => helloOf({ version: 99 })],
        ['a HELLO without a role', () => helloOf({ role: '' })],
        ['a frame above the limit', () => Buffer.concat([helloOf({}), lengthOf(LIMITS.frameBytes + 1)])],
        ['a frame of length 0', () => Buffer.concat([helloOf({}), lengthOf(0)])],
        [
          'a frame that is not allowed on the data connection',
          () => Buffer.concat([helloOf({}), encodeFrame(FRAME.STOPPED, 0)]),
        ],
        [
          'a CALL without a header',
          () => Buffer.concat([helloOf({}), encodeFrame(FRAME.CALL, 1, Buffer.from([255, 255]))]),
        ],
      ];
      test.each(wrong)('%s ends the connection and nothing else', async (_, bytes) => {
        const channel = await ready(entries.count);
        await sendAndWaitForEnd(runtime.endpoint, bytes());
        expect(resultOf(await channel.call(callOf({})))).toBe(1);
      });

      test('frames may arrive in pieces', async () => {
        const channel = await ready(entries.count);
        const header = Buffer.from('{}');
        const call = Buffer.concat([Buffer.from([0, header.length]), header, Buffer.from('{}')]);
        const bytes = Buffer.concat([helloOf({}), encodeFrame(FRAME.CALL, 5, call), encodeFrame(FRAME.CALL, 6, call)]);
        const answers = await sendInPieces(runtime.endpoint, bytes, 3);
        expect(answers.map(frame => [frame.type, frame.callId])).toEqual([
          [FRAME.HELLO_OK, 0],
          [FRAME.RESULT, 5],
          [FRAME.RESULT, 6],
        ]);
        expect(resultOf(await channel.call(callOf({})))).toBe(3);
      });
    });

    describe('the end of a runtime', () => {
      const stop = (channel: Channel, graceMs: number) => channel.stop(graceMs, AbortSignal.timeout(WAIT_MS));

      test('STOP runs pre_stop, and the runtime exits with 0', async () => {
        const channel = await ready(entries.echo, { preStop: entries.stop });
        expect(await stop(channel, 10_000)).toEqual({});
        expect(await runtime.exited).toBe(0);
        expect(runtime.log()).toContain('pre_stop has run');
      });

      test('STOP cancels the running call and refuses the waiting ones', async () => {
        const channel = await ready(entries.sleep, { preStop: entries.stop });
        // Handles the outcome from the beginning, because the connection may end before the answer of the
        // stop.
        const outcomeOf = () => channel.call(callOf({ seconds: 60 })).catch((error: unknown) => error);
        const running = outcomeOf();
        await counts(channel, 1);
        const waiting = outcomeOf();
        expect(await stop(channel, 10_000)).toEqual({});
        // The outcome is the answer or the end of the connection, whichever arrives first.
        const outcome = await running;
        if (!(outcome instanceof ChannelClosed)) expect(outcome).toMatchObject({ ok: false, code: 4002 });
        expect(await waiting).toSatisfy(
          (refusal: unknown) =>
            refusal instanceof ChannelClosed || String(refusal).includes('instance exited: it is stopping'),
        );
        expect(await runtime.exited).toBe(0);
        expect(runtime.log()).toContain('pre_stop has run');
      });

      test('a pre_stop that fails or takes too long is 4009, and the runtime still exits', async () => {
        // A server is stopped by SIGTERM, which cannot be answered with a failure.
        if (!isServer) {
          const channel = await ready(entries.echo, { preStop: entries.stopFails });
          expect(await stop(channel, 10_000)).toMatchObject({
            error: { code: 4009, message: expect.stringContaining('boom') },
          });
          expect(await runtime.exited).toBe(0);
        }
        await runtime.dispose();
        runtime = await subject.start({ slowToStop: true });
        const other = await ready(entries.echo, { preStop: entries.stopSlow });
        expect(await stop(other, 200)).toMatchObject({
          error: { code: 4009, message: expect.stringContaining('timed out') },
        });
        expect(await runtime.exited).toBe(0);
      });

      test('a runtime that was never initialized stops', async () => {
        const channel = await open();
        expect(await stop(channel, 10_000)).toEqual({});
        expect(await runtime.exited).toBe(0);
      });
    });

    function helloOf(changes: Record<string, unknown>): Buffer {
      const hello = { version: PROTOCOL_VERSION, secret: runtime.secret, client: 'other', role: 'data', ...changes };
      return encodeFrame(FRAME.HELLO, 0, JSON.stringify(hello));
    }
  });
}

const HEADER = { traceId: 'trace', traceparent: '', requestId: 'request' };

function callOf(event: unknown): Call {
  return { header: HEADER, body: Buffer.from(JSON.stringify(event)), timeoutMs: WAIT_MS };
}

function resultOf(outcome: CallOutcome): unknown {
  if (!outcome.ok) throw new Error(`the call failed: ${outcome.code} ${outcome.text}`);
  return JSON.parse(outcome.data.toString());
}

function lengthOf(bytes: number): Buffer {
  const header = Buffer.alloc(9);
  header.writeUInt32BE(bytes);
  return header;
}

async function connectTo(endpoint: RuntimeEndpoint): Promise<net.Socket> {
  if (endpoint.kind === 'unix') return net.connect(endpoint.path);
  if (endpoint.kind === 'tcp') return net.connect(endpoint.port, endpoint.host);
  const socket = await connectProven(endpoint, AbortSignal.timeout(WAIT_MS), frameOf(Buffer.from('{"op":"runtime"}')));
  // Closes the socket when the peer ends, as a plain socket does.
  socket.allowHalfOpen = false;
  return socket.resume();
}

/** Sends bytes and resolves when the other side has closed the connection. */
async function sendAndWaitForEnd(endpoint: RuntimeEndpoint, bytes: Buffer): Promise<void> {
  const socket = await connectTo(endpoint);
  return await new Promise(resolve => {
    socket.on('error', () => undefined);
    socket.on('close', () => resolve());
    socket.resume();
    socket.write(bytes);
  });
}

/** Sends a few bytes at a time and reads `count` frames. */
async function sendInPieces(endpoint: RuntimeEndpoint, bytes: Buffer, count: number): Promise<Frame[]> {
  const socket = await connectTo(endpoint);
  return await new Promise((resolve, reject) => {
    socket.setNoDelay(true);
    const frames: Frame[] = [];
    const reader = new FrameReader(
      everyFrame(frame => {
        frames.push(frame);
        if (frames.length === count) {
          socket.destroy();
          resolve(frames);
        }
      }),
    );
    socket.on('data', chunk => reader.push(chunk));
    socket.on('error', reject);
    const next = (offset: number) => {
      if (offset < bytes.length) socket.write(bytes.subarray(offset, offset + 7), () => next(offset + 7));
    };
    next(0);
  });
}
