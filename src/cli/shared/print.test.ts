import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { age } from '../../lib/age.ts';
import type { Io } from './io.ts';
import { coloured, printable, printError, printFields, printTable, printWarnings } from './print.ts';

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

describe('printTable', () => {
  const row = { id: '12345678', name: 'a-name-that-is-much-too-long-for-this-terminal' };

  test('printTable shortens the flexible column to fit the terminal', () => {
    const { io, lines } = setUp();
    printTable(io, COLUMNS, [row]);
    expect(lines()).toEqual(['ID        NAME                       AGE', '12345678  a-name-that-is-much-too-…  5s']);
    for (const line of lines()) expect(line.length).toBeLessThanOrEqual(40);
  });

  test('printTable does not truncate when output is not a terminal', () => {
    const { io, lines } = setUp({ isTerminal: false });
    printTable(io, COLUMNS, [row]);
    expect(lines()[1]).toContain(row.name);
  });

  test('printTable counts wide characters as two columns', () => {
    const { io, lines } = setUp();
    printTable(io, COLUMNS, [
      { id: '1', name: '代理' },
      { id: '2', name: 'abcdef' },
    ]);
    expect(lines()[1]).toBe('1   代理    5s');
    expect(lines()[2]).toBe('2   abcdef  5s');
  });

  test('printTable replaces control characters and line breaks in values', () => {
    const { io, lines } = setUp();
    printTable(io, COLUMNS, [{ id: '1', name: 'a\u001b[2Jb\nc' }]);
    expect(lines()).toHaveLength(2);
    expect(lines()[1]).toContain('a�[2Jb c');
  });
});

test('printFields leaves out fields without a value', () => {
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
])('colours are added on a terminal (%s) with %j: %s', (isTerminal, environment, expected) => {
  const { io } = setUp({ isTerminal, environment });
  expect(coloured(io, io.out, 'red', 'x') !== 'x').toBe(expected);
});

test.each([
  [0, '0s'],
  [119_000, '119s'],
  [120_000, '2m'],
  [7_200_000, '2h'],
  [172_800_000, '2d'],
])('a time %i ms ago is printed as %s', (ms, expected) => {
  expect(age(new Date(1e12).toISOString(), 1e12 + ms)).toBe(expected);
});

test('an unknown time is printed as a dash, and a future time as 0s', () => {
  expect(age(null)).toBe('-');
  expect(age(new Date(2e12).toISOString(), 1e12)).toBe('0s');
});

test('printTable shortens the column with gives "first" before others, and "last" after all others', async () => {
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

describe('printed texts of users', () => {
  test('printed texts of users contain no characters that control the terminal, reorder text or hide it', () => {
    const steering = [
      '\x1b]0;x\x07',
      '\r',
      '\x9b',
      '\u202e',
      '\u2066',
      '\u200b',
      '\u200f',
      '\ufeff',
      '\u2028',
      '\u{e0041}',
      '\xad',
    ];
    for (const text of steering) expect(printable(text)).toMatch(/^[\ufffd\]0;x]+$/);
    expect(printable('a\tb\nü 漢 👩\u200d🚀')).toBe('a\tb\nü 漢 👩\u200d🚀');
    const it = setUp();
    printError(it.io, 'boom \x1b[2J\u202e');
    expect(it.text()).toBe('boom \ufffd[2J\ufffd\n');
  });

  test('warnings about several missing isolation layers are printed as one line', () => {
    const it = setUp({ isTerminal: false });
    const user =
      "the server is not root: whatever user is asked for has the rights of the server's user on the host's files";
    const layers = ['cgroup.memory is not available here (x): y', 'net is not available here (x): y', user];
    printWarnings(it.io, [...layers, 'unknown field: foo']);
    expect(it.lines()).toEqual(['warning: unknown field: foo', 'warning: less isolated here: rookery doctor']);
  });
});
