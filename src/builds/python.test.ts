import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { findInterpreters } from '../../scripts/pythons.ts';
import { askPython } from './python.ts';

let directory: string;

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-venv-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

test('askPython finds the base interpreter, also from inside a virtual environment', async () => {
  const found = await findInterpreters();
  // The oldest and the newest interpreter report their base in different ways.
  for (const { version, path } of new Set([...found.slice(0, 1), ...found.slice(-1)])) {
    const own = await askPython(path);
    expect(own).toMatchObject({ path, basePath: path });
    const venv = join(directory, version);
    execFileSync(path, ['-m', 'venv', '--without-pip', venv]);
    const inner = await askPython(join(venv, 'bin/python'));
    expect(inner).toMatchObject({ version: own.version, mounts: own.mounts });
    expect(inner.basePath.startsWith(directory)).toBe(false);
    expect(await askPython(inner.basePath)).toMatchObject({ version: own.version, basePath: inner.basePath });
  }
});
