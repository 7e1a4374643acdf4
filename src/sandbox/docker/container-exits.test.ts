import { PassThrough } from 'node:stream';
import { expect, test } from 'vitest';
import { unavailable } from '../../core/error.ts';
import { SILENT } from '../../telemetry/logger.ts';
import { Exits } from './container-exits.ts';
import type { Engine } from './engine.ts';

test('Exits.wait fails for all waiters while the daemon is down, and reports the exit on a retry', async () => {
  let isAway = true;
  const events = new PassThrough();
  const engine = {
    request: async (what: string) => {
      if (isAway) throw unavailable('the daemon is away');
      if (what === 'tell its events') return events;
      return { State: { Running: false, Status: 'exited', ExitCode: 3, OOMKilled: false } };
    },
  } as unknown as Engine;
  const exits = new Exits(engine, 'installation', SILENT);
  const waits = [exits.wait('c'), exits.wait('c')];
  for (const wait of waits) await expect(wait).rejects.toMatchObject({ code: 'unavailable' });
  isAway = false;
  expect(await exits.wait('c')).toMatchObject({ code: 3 });
  exits.close();
});

/** Returns the exit of a killed container, of which Docker tells these events. */
async function exitAfter(actions: readonly string[]) {
  const events = new PassThrough();
  const engine = {
    request: async (what: string) =>
      what === 'tell its events' ? events : { State: { Running: false, ExitCode: 137, OOMKilled: false } },
  } as unknown as Engine;
  const exits = new Exits(engine, 'installation', SILENT);
  await exits.open();
  const exit = exits.expect('c');
  for (const Action of actions) events.write(`${JSON.stringify({ Action, Actor: { ID: 'c' } })}\n`);
  return await exit.finally(() => exits.close());
}

test.each([[['oom', 'die']], [['die', 'oom']]])(
  'Exits reports a lack of memory that Docker tells before or after the end: %j',
  async actions => {
    expect(await exitAfter(actions)).toMatchObject({ signal: 'SIGKILL', oomKilled: true });
  },
);

test('Exits reports a kill through docker at once, without waiting for a lack of memory', async () => {
  expect(await exitAfter(['kill', 'die'])).toMatchObject({ oomKilled: false, cause: 'stopped through docker' });
});
