import { execFile } from 'node:child_process';
import { chmodSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { describeWith } from '../probe.ts';
import { describeDurableAgents } from '../suites/durable-agent.ts';
import { describeDurableSleep } from '../suites/durable-sleep.ts';
import { Bed } from './agents.ts';

const run = promisify(execFile);
const FIXTURES = resolve(import.meta.dirname, '../fixtures');

async function buildProgram(fixture: string, program: string): Promise<void> {
  await run('go', ['build', '-o', program, '.'], { cwd: join(FIXTURES, fixture) });
}

async function build(codeDir: string): Promise<void> {
  // The sandbox's user executes the program and need not be its owner.
  chmodSync(codeDir, 0o755);
  await buildProgram('go-durable', join(codeDir, 'app.handle'));
}

describeWith(['go'], 'programs in Go', () => {
  const spec = { runtime: 'go', extendedHandler: { alarm: 'onAlarm', sleep: 'onSleep' } };
  describeDurableAgents('durable agents in Go', { files: {}, spec: { runtime: 'go' }, build });
  describeDurableSleep('sleep and alarms of a durable agent in Go', { files: {}, spec, build });

  test('a Go program without WithAlarm is refused with the reason when the create names an alarm entry', {
    timeout: 300_000,
  }, async () => {
    await using bed = await Bed.start({});
    chmodSync(bed.codeDir, 0o755);
    await buildProgram('go', join(bed.codeDir, 'echo'));
    const spec = { runtime: 'go', extendedHandler: { alarm: 'onAlarm' } };
    const id = await bed.create('lacking', 'echo', spec, { durable: true });
    expect((await bed.invoke(id)).body.message).toContain(
      'cannot load the alarm entry onAlarm: the program calls rookery.Start without rookery.WithAlarm',
    );
  });
});
