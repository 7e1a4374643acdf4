import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parseCpuMillis, parseMemoryMb } from '../shared/units.ts';
import { runtimeOf } from './runtime.ts';

const HERE = new URL('http://127.0.0.1');

test.each([
  [['index.js'], 'index.handle', /^nodejs\d+$/],
  [['index.mts', 'package.json'], 'index.handle', /^nodejs\d+$/],
  [['package.json', 'lib'], 'lib/main.handle', /^nodejs\d+$/],
  [['bootstrap'], 'run', /^http$/],
  [['app.py', 'package.json'], 'app.handle', /^python3\.\d+$/],
  [['index.py', 'index.js'], 'index.handle', /^python3\.\d+$/],
  [[], undefined, /^python3\.\d+$/],
])('the runtime of %j with the handler %s is %s', async (names, handler, runtime) => {
  const code = await mkdtemp(join(tmpdir(), 'rookery-runtime-'));
  try {
    for (const name of names) await writeFile(join(code, name), '');
    expect(await runtimeOf(code, handler, HERE)).toMatch(runtime);
  } finally {
    await rm(code, { recursive: true });
  }
});

test('memory and CPU are read with and without a unit', () => {
  expect(['512', '512m', '4g', '0.5GiB', '1Gi'].map(text => parseMemoryMb(text))).toEqual([512, 512, 4096, 512, 1024]);
  expect(['500', '500m', '0.5', '2.0'].map(text => parseCpuMillis(text))).toEqual([500, 500, 500, 2000]);
  for (const text of ['', 'x', '1t', '0.0001g', '-1']) {
    expect(() => parseMemoryMb(text)).toThrow('--memory must be a whole number of MB, or with a unit (512m, 4g), not');
  }
  for (const text of ['', '1.5m', 'x']) expect(() => parseCpuMillis(text)).toThrow('--cpu must be a whole number');
});
