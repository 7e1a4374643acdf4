import { describe, expect, test } from 'vitest';
import type { FunctionCatalog } from '../../src/functions/catalog.ts';

export const FUNCTION = 'sn:cn:yrk:default:function:0@svc@';
const urnOf = (name: string) => `${FUNCTION}${name}:$latest`;

/** A catalog, and methods that change its entries. Each resolves when the change is stored and reported. */
export interface CatalogBed extends AsyncDisposable {
  readonly catalog: FunctionCatalog;
  /** Registers a function `0@svc@<name>` of the tenant `default`, kind faas. */
  register(name: string, minInstances: number): Promise<void>;
  /** Stores a new revision of the function. */
  update(name: string, minInstances: number): Promise<void>;
  remove(name: string): Promise<void>;
  /** Reserves instances of `$latest` for a label. */
  reserve(name: string, label: string, min: number, max: number): Promise<void>;
}

/** Tests the contract `FunctionCatalog`. */
export function describeCatalog(title: string, open: () => Promise<CatalogBed>): void {
  describe(`the function catalog, ${title}`, () => {
    test('find returns a version by its URN with all that its instances need', async () => {
      await using bed = await open();
      await bed.register('hello', 0);
      expect(await bed.catalog.find(urnOf('hello'))).toMatchObject({
        urn: urnOf('hello'),
        tenant: 'default',
        name: '0@svc@hello',
        version: '$latest',
        revisionId: expect.stringMatching(/./),
        scaling: { minInstances: 0 },
      });
    });

    test.each([
      ['a missing function', urnOf('nobody')],
      ['a missing version', `${FUNCTION}hello:v7`],
      ['a URN without a version', `${FUNCTION}hello`],
      ['another tenant', urnOf('hello').replace(':default:', ':other:')],
      ['a text that is not a URN', 'hello'],
      ['an empty text', ''],
    ])('find returns null for %s', async (_, urn) => {
      await using bed = await open();
      await bed.register('hello', 0);
      expect(await bed.catalog.find(urn)).toBeNull();
    });

    test('find returns a new revision after an update, and null after a delete', async () => {
      await using bed = await open();
      await bed.register('hello', 0);
      const before = await bed.catalog.find(urnOf('hello'));
      await bed.update('hello', 2);
      const after = await bed.catalog.find(urnOf('hello'));
      expect(after?.revisionId).not.toBe(before?.revisionId);
      expect(after?.scaling.minInstances).toBe(2);
      await bed.remove('hello');
      expect(await bed.catalog.find(urnOf('hello'))).toBeNull();
    });

    test('the catalog reports each stored change with the URN of the function to all listeners', async () => {
      await using bed = await open();
      const told: (string | null)[] = [];
      const seen: (number | undefined)[] = [];
      const reads: Promise<unknown>[] = [];
      bed.catalog.onChange(urn => void told.push(urn));
      bed.catalog.onChange(urn => {
        reads.push(bed.catalog.find(`${urn}:$latest`).then(found => seen.push(found?.scaling.minInstances)));
      });
      const hello = `${FUNCTION}hello`;
      for (const change of [() => bed.register('hello', 1), () => bed.update('hello', 2), () => bed.remove('hello')]) {
        await change();
        await Promise.all(reads);
      }
      expect(told).toEqual([hello, hello, hello]);
      expect(seen).toEqual([1, 2, undefined]);
    });

    test('the catalog reports changes of reservations, and a removed listener gets no reports', async () => {
      await using bed = await open();
      await bed.register('hello', 0);
      const told: (string | null)[] = [];
      const left: (string | null)[] = [];
      bed.catalog.onChange(urn => void told.push(urn));
      const leave = bed.catalog.onChange(urn => void left.push(urn));
      leave();
      await bed.reserve('hello', 'l', 1, 2);
      expect({ told, left }).toEqual({ told: [`${FUNCTION}hello`], left: [] });
    });

    test('labels returns the bounds of each label, and nothing when the version has no reservation', async () => {
      await using bed = await open();
      await bed.register('hello', 0);
      expect(await bed.catalog.labels(urnOf('hello'))).toEqual(new Map());
      await bed.reserve('hello', 'a', 1, 4);
      await bed.reserve('hello', 'b', 0, 2);
      expect(await bed.catalog.labels(urnOf('hello'))).toEqual(
        new Map([
          ['a', { min: 1, max: 4 }],
          ['b', { min: 0, max: 2 }],
        ]),
      );
    });

    test('warm returns the versions whose minimum or reservation is at least one instance', async () => {
      await using bed = await open();
      await bed.register('minimum', 1);
      await bed.register('cold', 0);
      await bed.register('reserved', 0);
      await bed.register('bounded', 0);
      await bed.reserve('reserved', 'l', 1, 2);
      await bed.reserve('bounded', 'l', 0, 2);
      expect((await bed.catalog.warm(null)).toSorted()).toEqual([urnOf('minimum'), urnOf('reserved')]);
      for (const [name, warm] of [
        ...[['minimum', [urnOf('minimum')] as string[]] as const, ['reserved', [urnOf('reserved')]] as const],
        ...[['cold', []] as const, ['bounded', []] as const, ['nobody', []] as const],
      ]) {
        expect(await bed.catalog.warm(`${FUNCTION}${name}`)).toEqual(warm);
      }
    });

    test('warm does not return a function whose name only begins with the given name', async () => {
      await using bed = await open();
      await bed.register('hello', 0);
      await bed.register('hello2', 1);
      expect(await bed.catalog.warm(`${FUNCTION}hello`)).toEqual([]);
    });

    test('the catalog reports a version as cold only when it has no instances', async () => {
      await using bed = await open();
      const cold: (string | null)[] = [];
      bed.catalog.onChange((urn, mayBeWarm) => {
        if (!mayBeWarm) cold.push(urn);
      });
      await bed.register('warm', 1);
      await bed.register('reserved', 0);
      await bed.reserve('reserved', 'l', 1, 1);
      await bed.update('warm', 2);
      expect(cold).not.toContain(`${FUNCTION}warm`);
      for (const urn of cold.filter(each => each !== `${FUNCTION}reserved`)) {
        expect(await bed.catalog.warm(urn)).toEqual([]);
      }
    });
  });
}
