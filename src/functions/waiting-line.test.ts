import { expect, test } from 'vitest';
import { type InLine, WaitingLine } from './waiting-line.ts';

interface One extends InLine<One> {
  readonly name: string;
}

function one(name: string): One {
  return { name, isInLine: false, before: undefined, behind: undefined };
}

function names(line: WaitingLine<One>): string {
  let text = '';
  for (let next = line.first; next !== undefined; next = next.behind) text += next.name;
  expect(text).toHaveLength(line.size);
  return text;
}

test('they stand in the order in which they joined, whoever leaves', () => {
  const line = new WaitingLine<One>();
  const [a, b, c, d] = [one('a'), one('b'), one('c'), one('d')];
  for (const each of [a, b, c, d]) line.join(each);
  expect(names(line)).toBe('abcd');
  expect(line.leave(b)).toBe(true);
  expect(names(line)).toBe('acd');
  expect(line.leave(a)).toBe(true);
  expect(line.leave(d)).toBe(true);
  expect(names(line)).toBe('c');
  line.join(b);
  expect(names(line)).toBe('cb');
  expect(line.leave(c)).toBe(true);
  expect(line.leave(b)).toBe(true);
  expect(names(line)).toBe('');
  expect(line.first).toBeUndefined();
});

test('who is not there cannot leave, and who has left leads to nobody', () => {
  const line = new WaitingLine<One>();
  const [a, b, c] = [one('a'), one('b'), one('c')];
  expect(line.leave(a)).toBe(false);
  for (const each of [a, b, c]) line.join(each);
  line.leave(b);
  expect(line.leave(b)).toBe(false);
  expect(b).toEqual(one('b'));
  expect(line.size).toBe(2);
});
