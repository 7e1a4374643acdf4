import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import type { Io } from './io.ts';
import { age, coloured, printFields, printTable } from './print.ts';

function setUp({
  isTerminal = true,
  columns = 40,
  environment = { NO_COLOR: '1' },
}: {
  isTerminal?: boolean;
  columns?: number;
  environment?: Record<string, string>;
} = {}) {
  let text = '';
  const output = {
    write: (more: string | Uint8Array) => {
      text += String(more);
      return true;
    },
    drained: async () => {},
    isTerminal,
    columns,
  };
  const io: Io = {
    environment,
    out: output,
    err: output,
    stdin: Readable.from([]),
    signal: new AbortController().signal,
  };
  return {
    io,
    lines: () => text.split('\n').slice(0, -1),
    text: () => text,
  };
}

const COLUMNS = [
  { title: 'ID', text: (row: { id: string }) => row.id },
  { title: 'NAME', text: (row: { name: string }) => row.name, isFlexible: true },
  { title: 'AGE', text: () => '5s' },
];

describe('a table', () => {
  const row = { id: '12345678', name: 'a-name-that-is-much-too-long-for-this-terminal' };

  test('fits the terminal: the flexible column gives way', () => {
    const { io, lines } = setUp();
    printTable(io, COLUMNS, [row]);
    expect(lines()).toEqual(['ID        NAME                       AGE', '12345678  a-name-that-is-much-too-…  5s']);
    for (const line of lines()) expect(line.length).toBeLessThanOrEqual(40);
  });

  test('elsewhere nothing is cut', () => {
    const { io, lines } = setUp({ isTerminal: false });
    printTable(io, COLUMNS, [row]);
    expect(lines()[1]).toContain(row.name);
  });

  test('characters that take two columns are counted as two', () => {
    const { io, lines } = setUp();
    printTable(io, COLUMNS, [
      { id: '1', name: '代理' },
      { id: '2', name: 'abcdef' },
    ]);
    expect(lines()[1]).toBe('1   代理    5s');
    expect(lines()[2]).toBe('2   abcdef  5s');
  });

  test('texts of others cannot steer the terminal or break the line', () => {
    const { io, lines } = setUp();
    printTable(io, COLUMNS, [{ id: '1', name: 'a\u001b[2Jb\nc' }]);
    expect(lines()).toHaveLength(2);
    expect(lines()[1]).toContain('a�[2Jb c');
  });
});

test('fields without a value are left out', () => {
  const { io, lines } = setUp();
  printFields(io, [
    ['id', '1'],
    ['reason', ''],
    ['error', undefined],
    ['restarts', 0],
  ]);
  expect(lines()).toEqual(['id        1', 'restarts  0']);
});

test.each([
  [true, {}, true],
  [true, { NO_COLOR: '1' }, false],
  [true, { NO_COLOR: '' }, true],
  [false, {}, false],
])('terminal %s with %j: colours %s', (isTerminal, environment, expected) => {
  const { io } = setUp({ isTerminal, environment });
  expect(coloured(io, io.out, 'red', 'x') !== 'x').toBe(expected);
});

test.each([
  [0, '0s'],
  [119_000, '119s'],
  [120_000, '2m'],
  [7_200_000, '2h'],
  [172_800_000, '2d'],
])('%i ms ago is %s', (ms, expected) => {
  expect(age(new Date(1e12).toISOString(), 1e12 + ms)).toBe(expected);
});

test('an unknown time is a dash, one in the future is 0s', () => {
  expect(age(null)).toBe('-');
  expect(age(new Date(2e12).toISOString(), 1e12)).toBe('0s');
});

test('a terminal that is too narrow takes from what gives first, and from a name last', async () => {
  const columns = [
    { title: 'ID', text: (row: { id: string; name: string }) => row.id, isFlexible: true, gives: 'first' as const },
    { title: 'NAME', text: (row: { name: string }) => row.name, isFlexible: true, gives: 'last' as const },
    { title: 'NOTE', text: () => 'a note of some length', isFlexible: true },
  ];
  const rows = [{ id: '3f1c2a9e-0000-4000-8000-000000000000', name: 'default/a-name-of-thirty-characters' }];
  const lines = (width: number) => {
    let out = '';
    const output = {
      write: (text: string | Uint8Array) => {
        out += String(text);
        return true;
      },
      drained: async () => {},
      isTerminal: true,
      columns: width,
    };
    printTable({ out: output, environment: { NO_COLOR: '1' } } as never, columns, rows);
    return out.split('\n')[1];
  };
  expect(lines(80)).toContain('default/a-name-of-thirty-characters');
  expect(lines(80)).toMatch(/^3f1c2a9e-\S*…/);
  expect(lines(60)).toContain('default/a-name-of-thirty-characters');
  expect(lines(40)?.length).toBeLessThanOrEqual(40);
});
