import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { describeWith } from '../probe.ts';
import { Bed } from './agents.ts';

const CODE = `
def echo(event, context):
    return event
`;
const FUNCTION = '0@disk@echo';
const DISK_MB = 96;

describeWith(['root'], 'calls and their history on a full disk', () => {
  let disk: string;
  let bed: Bed;
  let agent: string;

  beforeAll(async () => {
    disk = mkdtempSync(join(tmpdir(), 'rookery-disk-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MB}m,mode=700`, 'rookery-disk', disk]);
    bed = await Bed.start({ 'code.py': CODE }, { dataDir: join(disk, 'data') });
    agent = await bed.create('echo', 'code.echo');
    const body = {
      ...{ name: FUNCTION, kind: 'faas', runtime: bed.runtime, cpu: 300, memory: 128, handler: 'code.echo' },
      ...{ storageType: 'local', codePath: bed.codeDir },
    };
    expect((await bed.ask('POST', '/serverless/v1/functions', body, { meta: true })).status).toBe(200);
  }, 120_000);
  afterAll(async () => {
    try {
      await bed?.[Symbol.asyncDispose]();
    } finally {
      spawnSync('umount', ['-l', disk]);
      rmSync(disk, { recursive: true, force: true });
    }
  });

  const call = async (trace: string, text = '') =>
    await bed.ask('POST', `/api/agent/${agent}/invoke`, { text }, { headers: { 'x-trace-id': trace } });
  const submit = async (event: unknown) => {
    const path = `/serverless/v1/functions/sn:cn:yrk:default:function:${FUNCTION}:$latest/invocations`;
    return await bed.ask('POST', path, event, { headers: { 'x-invoke-type': 'async' } });
  };
  const isRecorded = async (trace: string) =>
    ((await bed.ask('GET', `/api/calls?trace_id=${trace}`)).body.calls as unknown[]).length === 1;
  const failedRecords = async () => {
    const text = await (await fetch(`${bed.server.frontendUrl}/metrics`)).text();
    return Number(/^rookery_call_records_total\{.*failed.*\} (\d+)$/m.exec(text)?.[1] ?? 0);
  };

  /** Fills the disk. Returns a function that makes space again. */
  function fill(): () => void {
    const filler = join(disk, 'filler');
    const { bavail, bsize } = statfsSync(disk);
    // The service may write at the same time, so the last megabyte is filled in small steps.
    execFileSync('fallocate', ['-l', String(bavail * bsize - 1024 * 1024), filler]);
    try {
      for (;;) writeFileSync(filler, Buffer.alloc(4096), { flag: 'a' });
    } catch {
      // The disk is full.
    }
    return () => rmSync(filler, { force: true });
  }

  test('a full disk fails no call and loses only records, and no kill loses a record or an acknowledged call', async () => {
    await call('before');
    await vi.waitFor(async () => expect(await isRecorded('before')).toBe(true));
    const acknowledged: string[] = [];
    const submitOne = async (event: number) => {
      const { status, body } = await submit(event);
      if (status === 202) acknowledged.push(String(body.requestId));
      return status;
    };
    await submitOne(1);
    const free = fill();
    try {
      await vi.waitFor(async () => {
        const calls = await Promise.all(Array.from({ length: 20 }, () => call('full', 'x'.repeat(4000))));
        expect(calls.map(({ status }) => status)).toEqual(calls.map(() => 200));
        expect(await failedRecords()).toBeGreaterThan(0);
      });
      // It is refused, or its small write still fits: then the call must not be lost.
      await submitOne(2);
    } finally {
      free();
    }
    // The service finds out by its next write that the disk has space.
    let attempt = 0;
    await vi.waitFor(async () => {
      attempt += 1;
      await call(`after-${attempt}`);
      expect(await submitOne(3)).toBe(202);
      await vi.waitFor(async () => expect(await isRecorded(`after-${attempt}`)).toBe(true), { timeout: 5_000 });
    });
    await bed.killAndRestart();
    expect([await isRecorded('before'), await isRecorded(`after-${attempt}`)]).toEqual([true, true]);
    for (const id of acknowledged) {
      // A call that ran at the time of the kill ends as failed.
      const state = async () => (await bed.ask('GET', `/serverless/v1/functions/async-results/${id}`)).body.status;
      await expect.poll(state).toMatch(/^(completed|failed)$/);
    }
  }, 180_000);
});
