import { expect, test } from 'vitest';
import { LogLines } from './log-lines.ts';

function shown(...texts: readonly string[]): readonly string[] {
  const lines = new LogLines();
  for (const text of texts) lines.add(text);
  return lines.all;
}

test('lines are joined from chunks, and the last line is shown before its end', () => {
  expect(shown('one\ntw', 'o\n\nthr')).toEqual(['one', 'two', '', 'thr']);
});

test('terminal sequences are removed, and the text between them is kept', () => {
  const link = (text: string) => `\u001b]8;;http://a.example/\u001b\\${text}\u001b]8;;\u001b\\`;
  expect(shown(`${link('one')} and ${link('other')}, \u001b[1;31mred\u001b[0m\u001b]0;title\u0007.\r\n`)).toEqual([
    'one and other, red.',
  ]);
});

test('many unfinished terminal sequences are searched in linear time', () => {
  const [line = ''] = shown(`${'\u001b]'.repeat(8000)}\n`);
  expect(line.length).toBe(16_000);
  // Each of these would take seconds otherwise.
  expect(shown(`${'\u001b]'.repeat(8000)}\n`.repeat(200))).toHaveLength(131);
});

test('text without a line end is split, and only the newest part is kept', () => {
  const lines = new LogLines();
  for (let at = 0; at < 80; at++) lines.add('word '.repeat(50_000));
  lines.add('the end');
  const text = lines.all.join('');
  expect(text.endsWith('word the end')).toBe(true);
  expect(text.length).toBeLessThan(2.1 * 1024 * 1024);
  expect(Math.max(...lines.all.map(({ length }) => length))).toBeLessThanOrEqual(16 * 1024);
});

test('the newest lines are kept when a log has more than the maximum', () => {
  const all = shown(Array.from({ length: 6000 }, (_, at) => `line ${at}\n`).join(''));
  expect([all.length, all[0], all.at(-1)]).toEqual([5000, 'line 1000', 'line 5999']);
});
