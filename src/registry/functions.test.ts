import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { propertyRuns } from '../../test/parts/property-runs.ts';
import { type TestRegistry, testRegistry } from '../../test/registry/registry.ts';
import type { FunctionSpec } from '../core/function.ts';
import { readRegister } from '../core/function.ts';
import { LATEST } from '../core/urn.ts';

const T = 'default';
const NAME = '0@demo@hello';
const specOf = (changes: Record<string, unknown> = {}): FunctionSpec => {
  const read = readRegister({ name: NAME, kind: 'agent', runtime: 'python3.11', cpu: 500, memory: 512, ...changes });
  if (!read.ok) throw new Error(read.problems.join('; '));
  return read.value;
};
const numbersOf = (results: PromiseSettledResult<unknown>[]) =>
  results.map(result => (result.status === 'fulfilled' ? 0 : (result.reason.number as number)));
const publishAs = (versionNumber: string, revisionId: string) => ({
  revisionId,
  versionNumber,
  versionDesc: '',
  kind: '' as const,
});
const revisionOf = async ({ registry }: TestRegistry) => (await registry.functions.get(T, NAME, LATEST)).revisionId;

describe('parallel requests', () => {
  test('exactly one of 20 parallel registers of one name succeeds', async () => {
    await using test = await testRegistry();
    const results = await Promise.allSettled(
      Array.from({ length: 20 }, () => test.registry.functions.register(T, specOf())),
    );
    expect(numbersOf(results).sort()).toEqual([0, ...Array(19).fill(4101)]);
  });

  test('exactly one of 20 parallel updates of one revision succeeds', async () => {
    await using test = await testRegistry();
    await test.registry.functions.register(T, specOf());
    const revisionId = await revisionOf(test);
    const results = await Promise.allSettled(
      Array.from({ length: 20 }, (_, cpu) =>
        test.registry.functions.update(T, NAME, { revisionId, changes: { cpu: cpu + 1 } }),
      ),
    );
    expect(numbersOf(results).sort()).toEqual([0, ...Array(19).fill(4134)]);
    const winner = numbersOf(results).indexOf(0);
    expect((await test.registry.functions.get(T, NAME, LATEST)).spec.cpu).toBe(winner + 1);
  });

  test('exactly one of 20 parallel publishes of a revision succeeds, with and without a version number', async () => {
    await using test = await testRegistry();
    await test.registry.functions.register(T, specOf());
    const revisionId = await revisionOf(test);
    for (const number of ['v1', '']) {
      const results = await Promise.allSettled(
        Array.from({ length: 20 }, () => test.registry.functions.publish(T, NAME, publishAs(number, revisionId))),
      );
      expect(numbersOf(results).sort()).toEqual([0, ...Array(19).fill(4114)]);
    }
  });

  test('a publish during an update stores one whole revision, never parts of two', async () => {
    await using test = await testRegistry();
    await test.registry.functions.register(T, specOf());
    const revisionId = await revisionOf(test);
    await Promise.allSettled([
      test.registry.functions.publish(T, NAME, publishAs('v1', revisionId)),
      test.registry.functions.update(T, NAME, { revisionId, changes: { cpu: 7 } }),
      test.registry.functions.publish(T, NAME, publishAs('v2', revisionId)),
    ]);
    const { total, records } = await test.registry.functions.versions(T, NAME, 1, 100);
    expect(total).toBe(records.length);
    for (const record of records.map(text => JSON.parse(text))) {
      expect(record.cpu).toBe(record.revisionId === revisionId ? 500 : 7);
    }
  });

  test('exactly one of 20 parallel publishes succeeds when one version slot is left', async () => {
    await using test = await testRegistry();
    await test.registry.functions.register(T, specOf());
    const revisionId = await revisionOf(test);
    for (let n = 0; n < 7; n++) await test.registry.functions.publish(T, NAME, publishAs(`v${n}`, revisionId));
    const results = await Promise.allSettled(
      Array.from({ length: 20 }, (_, n) => test.registry.functions.publish(T, NAME, publishAs(`w${n}`, revisionId))),
    );
    expect(numbersOf(results).sort()).toEqual([0, ...Array(19).fill(4110)]);
  });
});

describe('reading a version', () => {
  test('read returns the new record after an update and fails after a delete', async () => {
    await using test = await testRegistry();
    const { functions } = test.registry;
    await functions.register(T, specOf());
    const read = async () => JSON.parse(await functions.read(T, NAME, LATEST));
    expect((await read()).cpu).toBe(500);
    await functions.update(T, NAME, { revisionId: await revisionOf(test), changes: { cpu: 7 } });
    expect((await read()).cpu).toBe(7);
    await functions.delete(T, NAME, LATEST);
    await expect(read()).rejects.toMatchObject({ number: 4115 });
  });

  test('readers never see an older revision again while a writer updates', async () => {
    await using test = await testRegistry();
    const { functions } = test.registry;
    await functions.register(T, specOf());
    let done = false;
    const seen: string[] = [];
    const reader = (async () => {
      while (!done) {
        seen.push(JSON.parse(await functions.read(T, NAME, LATEST)).revisionId);
        await new Promise(resolve => setImmediate(resolve));
      }
    })();
    for (let n = 0; n < 50; n++) {
      await functions.update(T, NAME, { revisionId: await revisionOf(test), changes: { timeout: n + 1 } });
      expect(JSON.parse(await functions.read(T, NAME, LATEST)).timeout).toBe(n + 1);
    }
    done = true;
    await reader;
    expect(seen).toEqual(seen.toSorted());
  });

  test('read queries a shared database on every call', async () => {
    await using test = await testRegistry({ isShared: true });
    const { functions } = test.registry;
    await functions.register(T, specOf());
    expect(JSON.parse(await functions.read(T, NAME, LATEST)).cpu).toBe(500);
    const row = await test.database.selectFrom('functions').select('record').executeTakeFirstOrThrow();
    await test.database
      .updateTable('functions')
      .set({ record: row.record.replace('"cpu":500', '"cpu":501') })
      .execute();
    expect(JSON.parse(await functions.read(T, NAME, LATEST)).cpu).toBe(501);
  });

  test('get returns every field that was registered', async () => {
    await using test = await testRegistry();
    const spec = specOf({
      kind: 'faas',
      handler: 'a.b',
      storageType: 's3',
      s3CodePath: { bucketId: 'b', objectId: 'o', bucketUrl: 'u', token: 't', sha512: 'a'.repeat(128) },
      rootfs: { type: 'image', imageurl: 'i', user: 'u', ports: ['80'], mounts: [{ source: '/srv', target: '/x' }] },
      customResources: { gpu: 0.5 },
      tags: { a: 'b' },
      layers: ['l'],
      device: { model: 'x' },
      autoScaleConfig: { slaQuota: 500 },
      schedulePolicies: [{ a: 1 }],
      enableSessionCtx: true,
      extendedHandler: { initializer: 'a.init' },
      extendedTimeout: { pre_stop: 5 },
    });
    await test.registry.functions.register(T, spec);
    expect((await test.registry.functions.get(T, NAME, LATEST)).spec).toEqual(spec);
  });
});

test('the registry reports each stored change once and no failed change', async () => {
  await using test = await testRegistry();
  const { functions } = test.registry;
  await functions.register(T, specOf());
  await expect(functions.register(T, specOf())).rejects.toMatchObject({ number: 4101 });
  await functions.publish(T, NAME, publishAs('v1', await revisionOf(test)));
  await functions.update(T, NAME, { revisionId: await revisionOf(test), changes: {} });
  await functions.delete(T, NAME, 'v1');
  await functions.delete(T, NAME, LATEST);
  const of = { tenant: T, name: NAME };
  expect(test.changes).toEqual([
    { ...of, kind: 'registered', version: LATEST, mayKeepInstances: false },
    { ...of, kind: 'published', version: 'v1', mayKeepInstances: true },
    { ...of, kind: 'updated', version: LATEST, mayKeepInstances: true },
    { ...of, kind: 'deleted', version: 'v1', mayKeepInstances: true },
    { ...of, kind: 'deleted', version: null, mayKeepInstances: true },
  ]);
});

test('a change reports mayKeepInstances only for a faas function with a minimum', async () => {
  await using test = await testRegistry();
  const told = async (more: Partial<ReturnType<typeof specOf>>) => {
    await test.registry.functions.register(T, { ...specOf(), ...more });
    const change = test.changes.at(-1);
    await test.registry.functions.delete(T, more.name ?? NAME, LATEST);
    return change?.mayKeepInstances;
  };
  expect(await told({ kind: 'faas', minInstance: 1 })).toBe(true);
  expect(await told({ kind: 'faas', minInstance: 0 })).toBe(false);
  expect(await told({ kind: 'agent', minInstance: 1 })).toBe(false);
});

test('an unsubscribed listener receives no further changes', async () => {
  await using test = await testRegistry();
  const heard: string[] = [];
  const end = test.registry.onChange(({ kind }) => heard.push(kind));
  await test.registry.functions.register(T, specOf());
  end();
  await test.registry.functions.delete(T, NAME, LATEST);
  expect(heard).toEqual(['registered']);
});

describe('lists and totals under random changes', () => {
  const short = fc.constantFrom('a', 'b', 'ab', 'c');
  const number = fc.constantFrom('v1', 'v2');
  const step = fc.oneof(
    fc.record({ do: fc.constant('register' as const), name: short }),
    fc.record({ do: fc.constant('publish' as const), name: short, number }),
    fc.record({ do: fc.constant('update' as const), name: short }),
    fc.record({ do: fc.constant('delete' as const), name: short, number: fc.option(number, { nil: LATEST }) }),
  );

  test('every page of every filter equals the page of a simple model, newest change first', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 25 }), fc.integer({ min: 1, max: 4 }), async (steps, pageSize) => {
        await using test = await testRegistry();
        const { functions } = test.registry;
        const listing = test.registry.listing((total, records) =>
          Buffer.from(JSON.stringify({ total, records: records.map(text => JSON.parse(text)) })),
        );
        /** Expected versions, oldest change first. */
        let model: { name: string; version: string }[] = [];
        const has = (name: string, version: string) =>
          model.some(entry => entry.name === name && entry.version === version);
        for (const one of steps) {
          const name = `0@demo@${one.name}`;
          const exists = has(name, LATEST);
          if (one.do === 'register' && !exists) {
            await functions.register(T, specOf({ name }));
            model.push({ name, version: LATEST });
          } else if (one.do === 'publish' && exists && !has(name, one.number)) {
            const { revisionId } = await functions.get(T, name, LATEST);
            await functions.publish(T, name, publishAs(one.number, revisionId));
            model.push({ name, version: one.number });
          } else if (one.do === 'update' && exists) {
            const { revisionId } = await functions.get(T, name, LATEST);
            await functions.update(T, name, { revisionId, changes: {} });
            model = [
              ...model.filter(entry => entry.name !== name || entry.version !== LATEST),
              { name, version: LATEST },
            ];
          } else if (one.do === 'delete' && has(name, one.number)) {
            await functions.delete(T, name, one.number);
            model = model.filter(
              entry => entry.name !== name || (one.number !== LATEST && entry.version !== one.number),
            );
          }
        }
        for (const version of ['', LATEST, 'v1', 'v9']) {
          for (const namePart of ['', 'a', 'demo@b', 'x']) {
            const expected = model
              .filter(entry => (version === '' || entry.version === version) && entry.name.includes(namePart))
              .reverse();
            for (let pageIndex = 1; pageIndex <= Math.ceil(expected.length / pageSize) + 1; pageIndex++) {
              const page = JSON.parse(
                (await listing.page({ tenant: T, version, namePart }, pageIndex, pageSize)).toString(),
              );
              expect(page.total).toBe(expected.length);
              expect(
                page.records.map((r: { name: string; versionNumber: string }) => [r.name, r.versionNumber]),
              ).toEqual(
                expected
                  .slice((pageIndex - 1) * pageSize, pageIndex * pageSize)
                  .map(entry => [entry.name, entry.version]),
              );
            }
          }
        }
        const { functions: rows, published } = await totals(test);
        expect(rows).toBe(model.length);
        expect(published).toBe(model.filter(entry => entry.version !== LATEST).length);
      }),
      { numRuns: propertyRuns(60) },
    );
  });

  async function totals({ database }: TestRegistry) {
    const rows = await database.selectFrom('functions').select('version').execute();
    const row = await database
      .selectFrom('function_totals')
      .select('total')
      .where('version', '=', '')
      .executeTakeFirst();
    return { functions: rows.length, published: Number(row?.total ?? 0) };
  }
});

test('each list and read query uses an index and scans no table', async () => {
  await using test = await testRegistry();
  const plan = async (text: string) => {
    const { sql } = await import('kysely');
    const { rows } = await sql.raw<{ detail: string }>(`EXPLAIN QUERY PLAN ${text}`).execute(test.database);
    return rows.map(row => row.detail).join('; ');
  };
  const where = "select record from functions where tenant = 'a'";
  expect(await plan(`${where} and name = 'b' and version = 'c'`)).toMatch(
    /^SEARCH functions USING INDEX sqlite_autoindex/,
  );
  expect(await plan(`${where} order by change_seq desc limit 10 offset 5`)).toBe(
    'SEARCH functions USING INDEX functions_by_change (tenant=?)',
  );
  expect(await plan(`${where} and version = 'c' order by change_seq desc limit 10 offset 5`)).toBe(
    'SEARCH functions USING INDEX functions_by_version (tenant=? AND version=?)',
  );
  expect(await plan(`${where} and name = 'b'`)).toContain('SEARCH functions USING INDEX sqlite_autoindex');
  expect(await plan("select count(*) from functions where tenant = 'a' and replace(name, 'x', '') <> name")).toContain(
    'COVERING INDEX functions_by_change',
  );
});
