import { expect, test } from 'vitest';
import { failedPrecondition } from '../core/error.ts';
import type { InstanceSpec } from '../core/instance.ts';
import { AgentCode } from './agent-code.ts';
import { AgentTable } from './agent-table.ts';

const SHA = 'ab'.repeat(32);
const LOG = { warn: () => undefined, error: () => undefined, info: () => undefined } as never;
const specOf = (...sources: string[]) =>
  ({
    tenant: 't',
    mounts: sources.map((source, at) => ({ source, target: `/${at}`, readonly: false })),
  }) as unknown as InstanceSpec;

function places() {
  const users = new Set<string>();
  return {
    users,
    place: async (_tenant: string, sha256: string, user: string) => {
      if (sha256 !== SHA) throw failedPrecondition('no such package');
      users.add(user);
      return `/data/${sha256}`;
    },
    confirm: async () => undefined,
    registerUser: (_tenant: string, _sha256: string, user: string) => void users.add(user),
    release: async (user: string) => void users.delete(user),
  };
}

test('code packages become read-only platform mounts, and other mounts stay unchanged', async () => {
  const code = new AgentCode(new AgentTable(), places(), LOG);
  const placed = await code.place({ id: 'a', epoch: 1 }, specOf('/srv/data', `code://${SHA}`));
  expect(placed).toMatchObject({
    mounts: [{ source: '/srv/data', target: '/0', readonly: false }],
    platformMounts: [{ source: `/data/${SHA}`, target: '/1', readonly: true }],
  });
});

test('place returns the given spec object when the spec mounts no package', async () => {
  const spec = specOf('/srv/data');
  expect(await new AgentCode(new AgentTable(), places(), LOG).place({ id: 'a', epoch: 1 }, spec)).toBe(spec);
});

test('the code of the next sandbox stays placed when the previous sandbox releases its code', async () => {
  const of = places();
  const code = new AgentCode(new AgentTable(), of, LOG);
  code.registerUser({ id: 'a', epoch: 1 }, specOf(`code://${SHA}`));
  await code.place({ id: 'a', epoch: 2 }, specOf(`code://${SHA}`));
  code.release({ id: 'a', epoch: 1 });
  expect([...of.users]).toEqual(['a.2']);
  code.release({ id: 'a', epoch: 2 });
  code.release({ id: 'a', epoch: 2 });
  expect([...of.users]).toEqual([]);
});

test('release also releases the code of earlier sandboxes of the same agent', async () => {
  const of = places();
  const code = new AgentCode(new AgentTable(), of, LOG);
  for (const [id, epoch] of [
    ['a', 1],
    ['a', 2],
    ['a', 4],
    ['b', 1],
  ] as const) {
    await code.place({ id, epoch }, specOf(`code://${SHA}`));
  }
  code.release({ id: 'a', epoch: 3 });
  expect([...of.users]).toEqual(['a.4', 'b.1']);
});

test('undo and a failed place release only the code of their own sandbox', async () => {
  const of = places();
  const code = new AgentCode(new AgentTable(), of, LOG);
  await code.place({ id: 'a', epoch: 1 }, specOf(`code://${SHA}`));
  await code.place({ id: 'a', epoch: 2 }, specOf(`code://${SHA}`));
  await code.undo({ id: 'a', epoch: 2 });
  expect([...of.users]).toEqual(['a.1']);
  await expect(code.place({ id: 'a', epoch: 2 }, specOf(`code://${'cd'.repeat(32)}`))).rejects.toThrow(
    'no such package',
  );
  expect([...of.users]).toEqual(['a.1']);
});

test('place releases all packages when one package is not available', async () => {
  const of = places();
  const code = new AgentCode(new AgentTable(), of, LOG);
  const placing = code.place({ id: 'a', epoch: 1 }, specOf(`code://${SHA}`, `code://${'cd'.repeat(32)}`));
  await expect(placing).rejects.toThrow('no such package');
  expect([...of.users]).toEqual([]);
});
