import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { findInterpreters } from '../../scripts/pythons.ts';
import { Channel } from '../../src/runtime/channel.ts';
import type { RuntimeCommand } from '../../src/sandbox/driver.ts';
import type { ProcessDriver } from '../../src/sandbox/process/driver.ts';
import { describeWith } from '../probe.ts';
import { call, initOf, isError } from '../suites/sandbox-driver.ts';
import { ProcessFixture } from './process-fixture.ts';

const WAIT_MS = 30_000;
const RUNTIME = join(import.meta.dirname, '../../runtimes/python/rookery_runtime');

/** Tests mounts that would hide files of the host on which the sandbox itself depends. */
describeWith(['root', 'namespaces'], "mount targets on the host's files", () => {
  let fixture: ProcessFixture;
  let driver: ProcessDriver;
  let source: string;
  let version: string;
  let library: string;
  let program: string;

  beforeAll(async () => {
    fixture = new ProcessFixture();
    driver = fixture.driver();
    source = mkdtempSync(join(tmpdir(), 'rookery-targets-'));
    const interpreter = (await findInterpreters()).at(-1);
    if (interpreter === undefined) throw new Error('no Python interpreter is here');
    version = interpreter.version;
    library = execFileSync(
      interpreter.path,
      ['-c', 'import os; print(os.path.dirname(os.path.realpath(os.__file__)))'],
      {
        encoding: 'utf8',
      },
    ).trim();
    program = join(source, 'bin/program');
    mkdirSync(join(source, 'bin'));
    writeFileSync(program, '#!/bin/sh\nexec sleep 60\n', { mode: 0o755 });
  });

  afterAll(async () => {
    await fixture.dispose();
    rmSync(source, { recursive: true, force: true });
  });

  const start = (target: string, command: RuntimeCommand, readonly = false) => {
    const mounts = [
      { source: join(source, 'bin'), target: '/bin-of-it', readonly: true },
      { source, target, readonly },
    ];
    return driver.start(fixture.spec({ command, mounts }), AbortSignal.timeout(WAIT_MS));
  };

  const refusal = (target: string, hidden: string) =>
    isError('failed_precondition', new RegExp(`^mount target ${target} hides ${hidden}, which the sandbox needs$`));

  test.each(['/usr', '/usr/bin', '/usr/lib', '/bin', '/lib', '/usr/../bin'])(
    'the driver refuses a mount at %s because the sandbox needs the directory',
    async target => {
      await expect(start(target, { kind: 'python', version })).rejects.toSatisfy(refusal(target, '/(usr|bin|lib)\\S*'));
      expect(await driver.list()).toEqual([]);
    },
  );

  test('the driver refuses a mount over the interpreter, its library or a directory above them', async () => {
    const above = `/${library.split('/')[1]}`;
    for (const target of [library, join(library, 'lib-dynload'), above]) {
      await expect(start(target, { kind: 'python', version })).rejects.toSatisfy(refusal(target, `${above}\\S*`));
    }
    expect(await driver.list()).toEqual([]);
  });

  test('the driver refuses a mount over the runtime only when a part of it is loaded late', async () => {
    const http = { kind: 'http', argv: ['/bin-of-it/program'], deployDir: '/bin-of-it' } as const;
    await expect(start(RUNTIME, http)).rejects.toSatisfy(refusal(RUNTIME, RUNTIME));
    const { handle } = await start(RUNTIME, { kind: 'python', version });
    expect(await driver.inspect(handle)).toEqual({ state: 'running' });
    await driver.remove(handle);
  });

  test.each([
    ['the first sandbox of a zygote', dirname(RUNTIME), {}],
    ['a sandbox with another network', dirname(RUNTIME), { network: 'none' }],
    ['a sandbox whose mounts hide the whole installation', dirname(dirname(RUNTIME)), { network: 'none' }],
  ] as const)('a running sandbox needs no other file of the installation: %s', async (_title, target, changes) => {
    const cold = new ProcessFixture({ spares: 0 });
    try {
      const spec = cold.spec(changes);
      const mounts = [...spec.mounts, { source, target, readonly: true }];
      const started = await cold.driver().start({ ...spec, mounts }, AbortSignal.timeout(WAIT_MS));
      const channel = await Channel.open(started.endpoint, spec.secret, AbortSignal.timeout(WAIT_MS));
      const init = initOf(spec, cold.codePath, 'behaviours.echo');
      expect(await channel.initialize(init, AbortSignal.timeout(WAIT_MS))).toMatchObject({ ok: true });
      expect(await call(channel, 'here')).toBe('here');
      channel.close();
    } finally {
      await cold.dispose();
    }
  });

  test("the driver refuses a mount over the directory of a program's socket and leaves its source unchanged", async () => {
    const exec = { kind: 'exec', argv: ['/bin-of-it/program'], deployDir: '/bin-of-it' } as const;
    for (const target of ['/run', '/run/rookery', '/var/run']) {
      await expect(start(target, exec)).rejects.toSatisfy(refusal(target, '/run/rookery'));
    }
    expect(readdirSync(source)).toEqual(['bin']);
    expect(await driver.list()).toEqual([]);
  });

  test('the driver refuses a mount over the platform’s own mounts, and allows one below them', async () => {
    const platformMounts = [{ source: join(source, 'bin'), target: '/opt/function/code', readonly: false }];
    const command = { kind: 'python', version } as const;
    for (const target of ['/opt', '/opt/function/code']) {
      const spec = fixture.spec({ command, platformMounts, mounts: [{ source, target, readonly: true }] });
      const starting = driver.start(spec, AbortSignal.timeout(WAIT_MS));
      await expect(starting).rejects.toSatisfy(refusal(target, '/opt/function/code'));
    }
    const below = [{ source, target: '/opt/function/code/data', readonly: true }];
    const spec = fixture.spec({ command, platformMounts, mounts: below });
    const { handle } = await driver.start(spec, AbortSignal.timeout(WAIT_MS));
    await driver.remove(handle);
  });

  test('the driver refuses a mount whose target is a link that an earlier mount brings', async () => {
    execFileSync('ln', ['-sfn', '/usr/bin', join(source, 'bin/link')]);
    const link = '/bin-of-it/link';
    await expect(start(link, { kind: 'python', version })).rejects.toSatisfy(refusal(link, '/usr/bin'));
  });
});
