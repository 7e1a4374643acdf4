import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LogLines } from './log-lines.ts';

const stored = (atMs: number, text: string) => `${String(atMs).padStart(13, '0')} ${text}`;

describe('LogLines', () => {
  test('takes the prefix off each line', () => {
    const lines = new LogLines(null);
    expect(lines.push(Buffer.from(stored(1, 'one\n') + stored(2, 'two\n'))).toString()).toBe('one\ntwo\n');
  });

  test('gives the same however the bytes are cut', () => {
    const texts = fc.array(fc.string({ unit: fc.constantFrom('a', 'ü', ' ', '+', '1') }), { maxLength: 8 });
    fc.assert(
      fc.property(texts, fc.integer({ min: 1, max: 20 }), (all, size) => {
        const bytes = Buffer.from(all.map(text => stored(5, `${text}\n`)).join(''));
        const lines = new LogLines(null);
        let seen = '';
        for (let at = 0; at < bytes.length; at += size)
          seen += lines.push(bytes.subarray(at, at + size)).toString('latin1');
        expect(Buffer.from(seen, 'latin1').toString()).toBe(all.map(text => `${text}\n`).join(''));
      }),
    );
  });

  test('a line without an end waits for it, and is ended at the end', () => {
    const lines = new LogLines(null);
    expect(lines.push(Buffer.from(stored(1, 'half'))).length).toBe(0);
    expect(lines.end().toString()).toBe('half\n');
    expect(lines.end().length).toBe(0);
  });

  test('a file that begins with + goes on with the line before', () => {
    const lines = new LogLines(null);
    lines.beginFile();
    lines.push(Buffer.from(stored(1, 'be')));
    lines.beginFile();
    expect(lines.push(Buffer.from('0000000000002+gin\n')).toString()).toBe('begin\n');
  });

  test('a continued line whose beginning is lost stands for itself', () => {
    const lines = new LogLines(null);
    lines.beginFile();
    expect(lines.push(Buffer.from('0000000000002+gin\n')).toString()).toBe('gin\n');
  });

  test('leaves out what was written before the moment that is asked for', () => {
    const lines = new LogLines(2);
    const all = [1, 2, 3].map(atMs => stored(atMs, `${atMs}\n`)).join('');
    expect(lines.push(Buffer.from(all)).toString()).toBe('2\n3\n');
  });
});
