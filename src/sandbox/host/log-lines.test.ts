import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { LIMITS } from '../../core/limits.ts';
import { LogLines } from './log-lines.ts';

const stored = (atMs: number, text: string) => `${String(atMs).padStart(13, '0')} ${text}`;

describe('LogLines', () => {
  test('LogLines removes the prefix of each line', () => {
    const lines = new LogLines(null);
    expect(lines.push(Buffer.from(stored(1, 'one\n') + stored(2, 'two\n'))).toString()).toBe('one\ntwo\n');
  });

  test('LogLines keeps an unfinished line when the buffer of its chunk is reused', () => {
    const lines = new LogLines(null);
    const memory = Buffer.alloc(100);
    const push = (bytes: string) => lines.push(memory.subarray(0, memory.write(bytes))).toString();
    expect(push(stored(1, 'first')) + push(' and more') + push(' than that\n')).toBe('first and more than that\n');
    expect(push(stored(2, 'one\n') + stored(3, 'two')) + push(' and a half\n')).toBe('one\ntwo and a half\n');
  });

  test('LogLines returns the same text for every chunk size', () => {
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

  test('LogLines holds an unfinished line back and completes the line on end', () => {
    const lines = new LogLines(null);
    expect(lines.push(Buffer.from(stored(1, 'half'))).length).toBe(0);
    expect(lines.end().toString()).toBe('half\n');
    expect(lines.end().length).toBe(0);
  });

  test('LogLines joins a file that begins with + to the previous line', () => {
    const lines = new LogLines(null);
    lines.startFile();
    lines.push(Buffer.from(stored(1, 'be')));
    lines.startFile();
    expect(lines.push(Buffer.from('0000000000002+gin\n')).toString()).toBe('begin\n');
  });

  test('LogLines returns a continued line alone when its beginning is lost', () => {
    const lines = new LogLines(null);
    lines.startFile();
    expect(lines.push(Buffer.from('0000000000002+gin\n')).toString()).toBe('gin\n');
  });

  test('LogLines omits lines from before the requested time', () => {
    const lines = new LogLines(2);
    const all = [1, 2, 3].map(atMs => stored(atMs, `${atMs}\n`)).join('');
    expect(lines.push(Buffer.from(all)).toString()).toBe('2\n3\n');
  });

  test('LogLines omits lines from the end of the requested time on', () => {
    const all = [1, 2, 3, 4].map(atMs => stored(atMs, `${atMs}\n`)).join('');
    expect(new LogLines(2, 4).push(Buffer.from(all)).toString()).toBe('2\n3\n');
    expect(new LogLines(null, 2).push(Buffer.from(all)).toString()).toBe('1\n');
  });

  describe('LogLines with a line above the limit', () => {
    const size = 16 * 1024;
    const long = 'x'.repeat(5 * LIMITS.logLineBytes);
    const piecesOf = (text: string, sinceMs: number | null) => {
      const lines = new LogLines(sinceMs);
      const pieces: Buffer[] = [];
      lines.startFile();
      for (let at = 0; at < text.length; at += size) pieces.push(lines.push(Buffer.from(text.slice(at, at + size))));
      pieces.push(lines.end());
      return pieces;
    };

    test.each([
      ['between others', stored(5, `${long}\n`)],
      ['that never ends', `${stored(5, long)}`],
    ])('LogLines returns a long line in bounded pieces without loss: %s', (_title, middle) => {
      const pieces = piecesOf(`${stored(1, 'before\n')}${middle}`, null);
      expect(Buffer.concat(pieces).toString()).toBe(`before\n${long}\n`);
      expect(Math.max(...pieces.map(piece => piece.length))).toBeLessThanOrEqual(LIMITS.logLineBytes + size);
    });

    test('LogLines omits all pieces of a long line that is too old', () => {
      const text = stored(1, `${long}\n`) + stored(3, `${long}\n`) + stored(2, 'y\n') + stored(4, 'z\n');
      expect(Buffer.concat(piecesOf(text, 3)).toString()).toBe(`${long}\nz\n`);
    });

    test('LogLines continues a long line in the next file', () => {
      const lines = new LogLines(null);
      lines.startFile();
      const shown = [lines.push(Buffer.from(stored(1, long)))];
      lines.startFile();
      shown.push(lines.push(Buffer.from(`0000000000002+end\n${stored(3, 'next\n')}`)));
      expect(Buffer.concat(shown).toString()).toBe(`${long}end\nnext\n`);
    });
  });
});
