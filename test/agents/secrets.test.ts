import { randomBytes } from 'node:crypto';
import { expect, test, vi } from 'vitest';
import type { SecretSource } from '../../src/core/secret.ts';
import { Secrets } from '../../src/registry/secrets.ts';
import { openDurableWrites } from '../../src/storage/writes/durable.ts';
import { CODE, fakePackages, gate, Harness, ledgerOf, specOf, TENANT } from './harness.ts';

/** Opens agents with secrets of the same database; `afterRead` runs once a create has read their values. */
async function open(afterRead: (secrets: Secrets) => Promise<void>) {
  let secrets: Secrets;
  const source: SecretSource = {
    valuesOf: async (tenant, names) => {
      const values = await secrets.valuesOf(tenant, names);
      await afterRead(secrets);
      return values;
    },
    check: (tenant, names) => secrets.check(tenant, names),
  };
  const { packages, users } = fakePackages();
  const ledger = ledgerOf(1);
  const harness = await Harness.open({ secrets: source, packages, ledger });
  const writes = await openDurableWrites(harness.database, ':memory:');
  const log = { info: () => undefined, warn: () => undefined };
  const keys = [new Uint8Array(randomBytes(32))];
  secrets = new Secrets({ database: harness.database, writes, keys, ownKeyFile: null, allowUnreadable: false, log });
  await secrets.put(TENANT, 's', 'value');
  return {
    ...{ harness, secrets, users, ledger },
    [Symbol.asyncDispose]: async () => {
      await writes.close();
      await harness[Symbol.asyncDispose]();
    },
  };
}

const SPEC = { ...specOf('a'), mounts: [CODE], env: { SECRET: { secret: 's' } } };

test('a create fails without residue when its secret is removed during the create', async () => {
  let removed = 0;
  await using bed = await open(async secrets => {
    if (removed++ === 0) await secrets.remove(TENANT, 's');
  });
  const { harness, secrets, users, ledger } = bed;
  await expect(harness.agents.create({ spec: SPEC })).rejects.toThrow('secret does not exist: s');
  expect((await harness.agents.list({ tenant: TENANT, limit: 10, cursor: null })).instances).toEqual([]);
  expect({ sandboxes: harness.driver.instanceIds, code: users.size }).toEqual({ sandboxes: [], code: 0 });
  expect(ledger.reservations.by.agent.memoryMb).toBe(0);
  await secrets.put(TENANT, 's', 'another value');
  expect(await harness.agents.create({ spec: SPEC })).toMatchObject({ status: 'RUNNING' });
});

test('a secret that a create has read stays while the sandbox starts', async () => {
  await using bed = await open(async () => undefined);
  const { harness, secrets } = bed;
  const { opened, open: start } = gate();
  harness.driver.faults.startGate = opened;
  const creating = harness.agents.create({ spec: SPEC });
  await vi.waitFor(() => expect(harness.driver.starts).toHaveLength(1));
  await expect(secrets.remove(TENANT, 's')).rejects.toThrow('secret s is in use: agent');
  start();
  expect(await creating).toMatchObject({ status: 'RUNNING' });
});
