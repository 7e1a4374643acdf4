import { expect, test } from 'vitest';
import { FakeCatalog, functionDefinition } from '../../test/functions/harness.ts';
import { testRegistry } from '../../test/registry/registry.ts';
import { type CatalogBed, describeCatalog, FUNCTION } from '../../test/suites/function-catalog.ts';
import { readRegister } from '../core/function.ts';
import { createCatalog } from './registry-catalog.ts';

const T = 'default';
const LATEST = '$latest';

describeCatalog('in memory', async () => {
  const catalog = new FakeCatalog();
  let revision = 0;
  const put = (name: string, minInstances: number) => {
    const urn = `${FUNCTION}${name}:${LATEST}`;
    catalog.put(functionDefinition({ urn, name: `0@svc@${name}`, revisionId: `r${++revision}` }, { minInstances }));
  };
  return {
    catalog,
    register: async (name, min) => put(name, min),
    update: async (name, min) => put(name, min),
    remove: async name => catalog.remove(`${FUNCTION}${name}:${LATEST}`),
    reserve: async (name, label, min, max) => catalog.reserve(`${FUNCTION}${name}:${LATEST}`, label, { min, max }),
    [Symbol.asyncDispose]: async () => undefined,
  };
});

async function registryBed(): Promise<CatalogBed & { registerKind(name: string, kind: string): Promise<void> }> {
  const { registry, database, [Symbol.asyncDispose]: close } = await testRegistry();
  const register = async (name: string, kind: string, minInstance: number) => {
    const read = readRegister({
      ...{ name: `0@svc@${name}`, kind, runtime: 'python3.11', cpu: 500, memory: 512, minInstance },
      ...{ handler: 'm.f', storageType: 'local', codePath: '/code' },
    });
    if (!read.ok) throw new Error(read.problems.join('; '));
    await registry.functions.register(T, read.value);
  };
  return {
    catalog: createCatalog(registry, database, { defaultSandboxType: 'process' }),
    register: (name, min) => register(name, 'faas', min),
    registerKind: (name, kind) => register(name, kind, 0),
    async update(name, minInstance) {
      const { revisionId } = await registry.functions.get(T, `0@svc@${name}`, LATEST);
      await registry.functions.update(T, `0@svc@${name}`, { revisionId, changes: { minInstance } });
    },
    remove: name => registry.functions.delete(T, `0@svc@${name}`, LATEST),
    async reserve(name, instanceLabel, minInstance, maxInstance) {
      const clusters = [{ clusterId: 'cluster001', minInstance, maxInstance }];
      await registry.reservations.put(T, { funcName: `0@svc@${name}`, version: LATEST, instanceLabel, clusters });
    },
    [Symbol.asyncDispose]: close,
  };
}

describeCatalog('of the registry', registryBed);

test.each(['yrlib', 'custom'])('find fails with 200400 for a function of kind %s', async kind => {
  await using bed = await registryBed();
  await bed.registerKind('lib', kind);
  await expect(bed.catalog.find(`${FUNCTION}lib:${LATEST}`)).rejects.toMatchObject({ number: 200400 });
});
