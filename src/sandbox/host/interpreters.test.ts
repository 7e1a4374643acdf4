import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { Interpreters } from './interpreters.ts';

describe('Interpreters', () => {
  let directory: string;

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'rookery-interpreters-'));
  });

  afterEach(() => {
    rmSync(directory, { recursive: true, force: true });
  });

  const program = (name: string, script: string) => {
    const path = join(directory, name);
    writeFileSync(path, `#!/bin/sh\n${script}\n`);
    chmodSync(path, 0o755);
    return path;
  };

  test('find returns the path that the interpreter reports, not the path of its shim', async () => {
    const path = program('shim', 'echo /real/python3.77; echo 3.77');
    const interpreters = new Interpreters({ '3.77': path }, {});
    expect(await interpreters.find('3.77')).toEqual({ version: '3.77', path: '/real/python3.77' });
  });

  test('find rejects an interpreter of another version', async () => {
    const path = program('python', 'echo /real/python; echo 3.78');
    await expect(new Interpreters({ '3.77': path }, {}).find('3.77')).rejects.toThrow(
      `invalid function: runtime python3.77 is not available: ${path}: it is Python 3.78`,
    );
  });

  test('find includes the error output of a broken interpreter', async () => {
    const path = program('python', 'echo "cannot find libpython" >&2; exit 1');
    await expect(new Interpreters({ '3.77': path }, {}).find('3.77')).rejects.toThrow(`${path}: cannot find libpython`);
  });

  test('find fails for a configured path that cannot be executed, without a search', async () => {
    const path = join(directory, 'absent');
    await expect(new Interpreters({ '3.11': path }, {}).find('3.11')).rejects.toThrow(`${path}: it cannot be executed`);
  });

  test('find succeeds once a missing interpreter exists', async () => {
    const path = join(directory, 'python');
    const interpreters = new Interpreters({ '3.77': path }, {});
    await expect(interpreters.find('3.77')).rejects.toMatchObject({ code: 'failed_precondition' });
    program('python', 'echo /real/python; echo 3.77');
    expect(await interpreters.find('3.77')).toMatchObject({ version: '3.77' });
  });

  test('findAny finds a Python of this machine', async () => {
    expect((await new Interpreters({}, process.env).findAny()).path).toMatch(/^\//);
  });
});
