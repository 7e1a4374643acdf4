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

test.each(['before', 'after'])('Exits reports a lack of memory that Docker tells %s the end', async order => {
  const events = new PassThrough();
  const engine = {
    request: async (what: string) =>
      what === 'tell its events' ? events : { State: { Running: false, ExitCode: 137, OOMKilled: false } },
  } as unknown as Engine;
  const exits = new Exits(engine, 'installation', SILENT);
  await exits.open();
  const exit = exits.expect('c');
  const actions = order === 'before' ? ['oom', 'die'] : ['die', 'oom'];
  for (const Action of actions) events.write(`${JSON.stringify({ Action, Actor: { ID: 'c' } })}\n`);
  expect(await exit).toMatchObject({ signal: 'SIGKILL', oomKilled: true });
  exits.close();
});

test('Exits reports a kill through docker at once, without waiting for a lack of memory', async () => {
  const events = new PassThrough();
  const engine = {
    request: async (what: string) =>
      what === 'tell its events' ? events : { State: { Running: false, ExitCode: 137, OOMKilled: false } },
  } as unknown as Engine;
  const exits = new Exits(engine, 'installation', SILENT);
  await exits.open();
  const exit = exits.expect('c');
  for (const Action of ['kill', 'die']) events.write(`${JSON.stringify({ Action, Actor: { ID: 'c' } })}\n`);
  expect(await exit).toMatchObject({ oomKilled: false, cause: 'stopped through docker' });
  exits.close();
});
