import { setMaxListeners } from 'node:events';
import { appendFileSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { LIMITS } from '../../core/limits.ts';
import { MEBIBYTE } from '../../core/units.ts';
import { OpenedLog } from '../../lib/opened-log.ts';
import type { LogRequest } from '../driver.ts';
import { readLogs } from './logs.ts';

setFlagsFromString('--expose-gc');
/** Frees buffers that are no longer used, so that a measurement counts only those in use. */
const collectGarbage = runInNewContext('gc') as () => void;

const NEVER = new Promise<never>(() => undefined);
const line = (text: string, atMs = 1000) => `${String(atMs).padStart(13, '0')} ${text}\n`;

describe('readLogs', () => {
  let directory: string;

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-logs-'));
  });

  afterEach(() => {
    rmSync(directory, { recursive: true, force: true });
  });

  const write = (name: string, text: string) => writeFileSync(join(directory, name), text);

  const read = async (changes: Partial<LogRequest> = {}) => {
    const request = { tail: null, sinceMs: null, follow: false, ...changes };
    const chunks: Buffer[] = [];
    for await (const chunk of readLogs(directory, request, NEVER, AbortSignal.timeout(10_000))) chunks.push(chunk);
    return Buffer.concat(chunks).toString();
  };

  test('readLogs reads all files, the oldest first', async () => {
    write('log.2', line('a'));
    write('log.1', line('b'));
    write('log', line('c') + line('d'));
    expect(await read()).toBe('a\nb\nc\nd\n');
  });

  test('a sandbox without a log has no lines', async () => {
    expect(await read()).toBe('');
    rmSync(directory, { recursive: true });
    expect(await read()).toBe('');
    expect(await read({ follow: true })).toBe('');
  });

  test('readLogs joins a line that was cut by the rotation', async () => {
    write('log.1', '0000000001000 be');
    write('log', `0000000001001+gin\n${line('next')}`);
    expect(await read()).toBe('begin\nnext\n');
  });

  test.each([
    [0, ''],
    [1, 'd\n'],
    [2, 'c\nd\n'],
    [3, 'b\nc\nd\n'],
    [4, 'a\nb\nc\nd\n'],
    [9, 'a\nb\nc\nd\n'],
  ])('readLogs with tail %d reads over two files', async (tail, expected) => {
    write('log.1', line('a') + line('b'));
    write('log', line('c') + line('d'));
    expect(await read({ tail })).toBe(expected);
  });

  test.each([
    [1, 'c\n'],
    [2, 'begin\nc\n'],
    [3, 'a\nbegin\nc\n'],
  ])('tail %d counts a line that was cut by the rotation once', async (tail, expected) => {
    write('log.1', `${line('a')}0000000001000 be`);
    write('log', `0000000001001+gin\n${line('c')}`);
    expect(await read({ tail })).toBe(expected);
  });

  test('tail counts a last line that has not ended', async () => {
    write('log', `${line('a')}0000000001000 half`);
    expect(await read({ tail: 1 })).toBe('half\n');
    expect(await read({ tail: 2 })).toBe('a\nhalf\n');
  });

  test('readLogs returns the tail of a long log', async () => {
    write('log', Array.from({ length: 100_000 }, (_, index) => line(String(index))).join(''));
    expect(await read({ tail: 50_000 })).toBe(
      Array.from({ length: 50_000 }, (_, index) => `${index + 50_000}\n`).join(''),
    );
  });

  test('an opened log without earlier lines has each line that is written before it is read', async () => {
    write('log', line('before'));
    const request = { tail: 0, sinceMs: null, follow: true };
    const end = new AbortController();
    const log = new OpenedLog(() => readLogs(directory, request, NEVER, end.signal));
    await log.open();
    appendFileSync(join(directory, 'log'), line('after'));
    renameSync(join(directory, 'log'), join(directory, 'log.1'));
    write('log', line('rotated'));
    let seen = '';
    for await (const chunk of log) {
      seen += chunk;
      if (seen.includes('rotated')) break;
    }
    expect(seen).toBe('after\nrotated\n');
  });

  test('readLogs follows a log over rotations without losing or repeating a line, and ends with the sandbox', async () => {
    write('log', line('0'));
    let end: () => void = () => undefined;
    const ended = new Promise<void>(resolve => {
      end = resolve;
    });
    let seen = '';
    const following = (async () => {
      const request = { tail: null, sinceMs: null, follow: true };
      for await (const chunk of readLogs(directory, request, ended, AbortSignal.timeout(20_000)))
        seen += chunk.toString();
    })();
    let expected = '0\n';
    for (let number = 1; number < 20; number++) {
      if (number % 5 === 0) {
        for (const [from, to] of [
          ['log.1', 'log.2'],
          ['log', 'log.1'],
        ] as const) {
          try {
            renameSync(join(directory, from), join(directory, to));
          } catch {
            // The first rotations have fewer files.
          }
        }
      }
      appendFileSync(join(directory, 'log'), line(String(number)));
      expected += `${number}\n`;
      await expect.poll(() => seen).toBe(expected);
    }
    appendFileSync(join(directory, 'log'), line('last'));
    end();
    await following;
    expect(seen).toBe(`${expected}last\n`);
  });

  test.each([
    ['short lines', line('y'.repeat(20))],
    ['lines of some kilobytes', line('y'.repeat(5000))],
    ['one line without an end', 'y'],
  ])('many followers that do not read hold one chunk each: %s', async (_title, text) => {
    const readers = 200;
    write('log', `${line('first')}0000000001000 ${text.repeat(Math.ceil((4 * MEBIBYTE) / text.length))}`);
    const gone = new AbortController();
    setMaxListeners(readers, gone.signal);
    const request = { tail: null, sinceMs: null, follow: true };
    collectGarbage();
    const before = process.memoryUsage().arrayBuffers;
    const following = Array.from({ length: readers }, () =>
      readLogs(directory, request, NEVER, gone.signal)[Symbol.asyncIterator](),
    );
    for (const each of following) for (let chunk = 0; chunk < 3; chunk++) expect((await each.next()).done).toBe(false);
    const perReader = () => {
      collectGarbage();
      return (process.memoryUsage().arrayBuffers - before) / readers;
    };
    // The engine frees collected buffers in another thread, a little later.
    await expect.poll(perReader).toBeLessThan(3 * LIMITS.logChunkBytes + LIMITS.logLineBytes);
    gone.abort();
    await Promise.all(following.map(each => each.return(undefined)));
  });
});
