import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Bed } from './agents.ts';

/** Script that is loaded before the service and throws an uncaught error at each SIGUSR2. */
const FAULTS = `
let count = 0;
process.on('SIGUSR2', () => {
  count += 1;
  if (count % 2 === 0) setImmediate(() => { throw new TypeError('a fault of the test'); });
  else Promise.reject(new TypeError('a fault of the test'));
});
process.on('SIGPWR', () => { for (let n = 0; n < 150; n += 1) setImmediate(() => { throw new TypeError('one of many'); }); });
`;

let directory: string;
let bed: Bed;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'rookery-uncaught-'));
  const file = join(directory, 'faults.mjs');
  writeFileSync(file, FAULTS);
  bed = await Bed.start(
    { 'plain.py': 'def handler(event, context):\n    return event\n' },
    { env: { NODE_OPTIONS: `--import ${file}` } },
  );
});

afterEach(async () => {
  await bed?.[Symbol.asyncDispose]();
  rmSync(directory, { recursive: true, force: true });
});

const countOf = async () => {
  const text = await (await fetch(`${bed.server.frontendUrl}/metrics`)).text();
  return Number(/^rookery_uncaught_errors_total\{scope="process"\} (\d+)$/m.exec(text)?.[1] ?? 0);
};

test('an uncaught error is logged and counted, and the service answers further calls', async () => {
  const created = await bed.ask('POST', '/api/agent', bed.createBody('lives', 'plain.handler'));
  const id = String(created.body.instance_id);
  for (const expected of [1, 2, 3]) {
    process.kill(bed.server.pid, 'SIGUSR2');
    await vi.waitFor(async () => expect(await countOf()).toBe(expected), 20_000);
    expect((await bed.invoke(id, { n: expected })).body.data).toEqual({ n: expected });
  }
  expect(bed.server.output).toContain('a fault of the test');
  expect(bed.server.output).toContain('faults.mjs');
});

test('a flood of uncaught errors ends the service cleanly with exit code 1, and its agents continue', async () => {
  const created = await bed.ask('POST', '/api/agent', bed.createBody('lives', 'plain.handler'));
  expect(created.body).toMatchObject({ code: 200 });
  const ended = once(bed.server.process, 'exit');
  process.kill(bed.server.pid, 'SIGPWR');
  expect(await ended).toEqual([1, null]);
  expect(bed.server.output).toContain('more than 100 uncaught errors');
  expect(bed.server.output).toContain('stopped: 1 agent lives on and is adopted at the next start');
});
