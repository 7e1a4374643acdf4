import { expect, test } from 'vitest';
import { LIMITS } from '../../core/limits.ts';
import { ContainerLogLines, FirstLines, LastLines } from './logs.ts';

const PIECE = 'x'.repeat(16 * 1024);
const frame = (text: string, isStderr = false) => ({ isStderr, data: Buffer.from(text) });

test('pieces of a line are joined separately for each output', () => {
  const lines = new ContainerLogLines();
  expect(lines.push(frame('one '))).toEqual([]);
  expect(lines.push(frame('error\n', true)).map(String)).toEqual(['error\n']);
  expect(lines.push(frame('line\n')).map(String)).toEqual(['one line\n']);
  expect(lines.hadPieces).toBe(true);
  lines.push(frame('last'));
  expect(lines.end().map(String)).toEqual(['last\n']);
});

test.each([
  ['stdout', false],
  ['stderr', true],
])('a line without an end is returned in bounded pieces, without loss: %s', (_, isStderr) => {
  const lines = new ContainerLogLines();
  const shown: Buffer[] = [];
  for (let count = 0; count < 100; count++) shown.push(...lines.push(frame(PIECE, isStderr)));
  shown.push(...lines.push(frame('end\n', isStderr)), ...lines.end());
  expect(Buffer.concat(shown).toString()).toBe(`${PIECE.repeat(100)}end\n`);
  expect(Math.max(...shown.map(({ length }) => length))).toBeLessThanOrEqual(LIMITS.logLineBytes + PIECE.length);
});

test('the tail keeps the last lines, and a long line completely', () => {
  const last = new LastLines(2, 1000);
  last.push(['a\n', 'b\n', 'lo'].map(text => Buffer.from(text)));
  last.push(['ng\n', 'c\n'].map(text => Buffer.from(text)));
  expect(String(last.kept)).toBe('long\nc\n');
  expect(last.lines).toBe(4);
});

test('lines above the limit are only counted, and returned by a second read', () => {
  const pieces = Array.from({ length: 100 }, (_, index) => Buffer.from(`${index} ${'x'.repeat(100)}\n`));
  const last = new LastLines(90, 1000);
  for (const piece of pieces) last.push([piece]);
  expect(last.kept).toBeNull();
  const skipped = new FirstLines(last.lines - 90);
  const shown = pieces.flatMap(piece => skipped.without([piece]));
  expect(shown.map(String)).toEqual(pieces.slice(10).map(String));
});

test('all pieces of an omitted line are omitted', () => {
  const skipped = new FirstLines(1);
  const shown = ['lo', 'ng\n', 'next\n'].flatMap(text => skipped.without([Buffer.from(text)]));
  expect(shown.map(String)).toEqual(['next\n']);
});
