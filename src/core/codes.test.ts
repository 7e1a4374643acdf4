import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { CALL_CODES, META_CODES } from './codes.ts';

const SRC = join(import.meta.dirname, '..');
const ALL = [...Object.values(META_CODES), ...CALL_CODES];

test('every code number has one row', () => {
  const numbers = ALL.map(row => row.code);
  expect(numbers.filter((number, at) => numbers.indexOf(number) !== at)).toEqual([]);
});

test('every kind of error belongs to at most one call code', () => {
  const kinds = CALL_CODES.flatMap(row => row.standsFor ?? []);
  expect(kinds.filter((kind, at) => kinds.indexOf(kind) !== at)).toEqual([]);
});

test('only the codes for lack of capacity are marked as retried', () => {
  expect(CALL_CODES.filter(row => row.isRetried).map(row => row.code)).toEqual([150429, 150431, 150510]);
});

test('source files contain no code number outside core/codes.ts', () => {
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' }).filter(
    file => /(?<!\.test)\.ts$/.test(file) && file !== 'core/codes.ts',
  );
  expect(files.length).toBeGreaterThan(200);
  expect(
    files.flatMap(file => literalsOf(readFileSync(join(SRC, file), 'utf8')).map(found => `${file}: ${found}`)),
  ).toEqual([]);
});

test.each([
  ['{ number: 200400 }', ['200400']],
  ['return 150_424;', ['150_424']],
  ['reply.send({ code: 4140 })', ['4140']],
  ['status === 413 ? 4140 : error.number === 150427 // but not 4004\n', ['4140', '150427']],
  ['/** Fails with 200400. */ const buffer = 4096; const at = { sizeBytes: 14004 };', []],
  ["const text = 'code 4002'; const idle = { idle: 4000 };", []],
])('the code numbers found in %j are %j', (source, found) => {
  expect(literalsOf(source)).toEqual(found);
});

/**
 * Returns the code numbers in source text, without comments and strings. Skips 4000, also a WebSocket close
 * code.
 */
function literalsOf(source: string): string[] {
  const numbers = new Set(ALL.map(row => row.code).filter(code => code > 1000 && code !== 4000));
  const code = source
    .replace(/'(?:[^'\\\n]|\\.)*'/g, "''")
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/(^|\s)\/\/.*$/gm, '');
  return (code.match(/(?<![\w.$`])\d[\d_]*(?![\w.])/g) ?? []).filter(each =>
    numbers.has(Number(each.replaceAll('_', ''))),
  );
}
