import { mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { schemaOfHints } from './input-schema.ts';

let code: string;
beforeEach(async () => {
  code = await mkdtemp(join(tmpdir(), 'rookery-hints-'));
});
afterEach(() => rm(code, { recursive: true }));

const app = (text: string) => writeFile(join(code, 'app.py'), text);
const hints = (handler = 'app.handle', runtime?: string) => schemaOfHints('--input-schema', { code, handler, runtime });

test('the hints of a handler become a schema, and the code is not changed', async () => {
  await mkdir(join(code, 'parts'));
  await writeFile(join(code, 'parts', 'size.py'), 'import enum\nclass Size(enum.Enum):\n    S = "s"\n    L = "l"\n');
  await app(
    'from typing import Dict\nfrom parts.size import Size\nprint("{")\ndef handle(event: Dict[str, Size], context):\n    return event\n',
  );
  expect(await hints()).toEqual({ type: 'object', additionalProperties: { enum: ['s', 'l'] } });
  expect((await readdir(code)).sort()).toEqual(['app.py', 'parts']);
  expect(await readdir(join(code, 'parts'))).toEqual(['size.py']);
});

test('a handler without a schema is refused with the reason', async () => {
  await app('def handle(event, context): return event\n');
  await expect(hints()).rejects.toThrow(
    `--input-schema hints: app.handle in ${code}: the parameter event has no type hint that says what the event is`,
  );
  await expect(hints('app.absent')).rejects.toThrow("module 'app' has no attribute 'absent'");
  await expect(hints('')).rejects.toThrow('needs the handler of the function, as module.function');
  await expect(hints('index.handle', 'nodejs22')).rejects.toThrow('the runtime is nodejs22. Write the JSON Schema.');
  await app('import os, sys\nsys.stderr.write("first\\nno database\\n")\nsys.stderr.flush()\nos._exit(3)\n');
  await expect(hints()).rejects.toThrow('python3 failed while it imported it: no database');
  await expect(
    schemaOfHints('--input-schema', { code: undefined, handler: 'app.handle', runtime: undefined }),
  ).rejects.toThrow('needs the directory of the code on this machine: name it with --code');
});
