import { expect, test } from 'vitest';
import { AgentTable } from './agent-table.ts';
import { Operations } from './operations.ts';

test('an operation is found only while its work runs, even when the work fails', async () => {
  const operations = new Operations(new AgentTable(), () => () => undefined);
  await operations.run('a', 'create', async () => {
    expect(operations.of('a')?.kind).toBe('create');
    return undefined;
  });
  expect(operations.of('a')).toBeUndefined();
  await expect(operations.run('a', 'create', () => Promise.reject(new Error('no')))).rejects.toThrow('no');
  expect(operations.of('a')).toBeUndefined();
});

test('a newer operation stays registered when the replaced operation ends', async () => {
  const operations = new Operations(new AgentTable(), () => () => undefined);
  let end!: () => void;
  const first = operations.run(
    'a',
    'create',
    () => new Promise<undefined>(resolve => (end = () => resolve(undefined))),
  );
  await Promise.resolve();
  let endSecond!: () => void;
  const second = operations.run(
    'a',
    'delete',
    () => new Promise<undefined>(resolve => (endSecond = () => resolve(undefined))),
  );
  end();
  await first;
  expect(operations.of('a')?.kind).toBe('delete');
  endSecond();
  await second;
  expect(operations.of('a')).toBeUndefined();
});

test('operations count and abort creates and restarts, but not deletes', async () => {
  const operations = new Operations(new AgentTable(), () => () => undefined);
  const untilAbort = (signal: AbortSignal) =>
    new Promise<undefined>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
  const create = expect(operations.run('a', 'create', untilAbort)).rejects.toThrow('stopping');
  const restart = expect(operations.run('b', 'restart', untilAbort)).rejects.toThrow('stopping');
  let end!: () => void;
  const deleted = operations.run(
    'c',
    'delete',
    () => new Promise<undefined>(resolve => (end = () => resolve(undefined))),
  );
  await Promise.resolve();
  expect(operations.starts).toBe(2);
  operations.abortStarts(new Error('stopping'));
  await Promise.all([create, restart]);
  expect(operations.starts).toBe(0);
  expect(operations.of('c')).toBeDefined();
  const settled = operations.allEnded();
  end();
  await Promise.all([settled, deleted]);
});
