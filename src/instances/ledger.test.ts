import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { resolveConfig } from '../config/config.ts';
import type { OwnerKind } from '../core/instance.ts';
import { TenantBudget } from '../lib/budgets.ts';
import { Ledger, type LedgerOptions, type Size } from './ledger.ts';

const KINDS: readonly OwnerKind[] = ['agent', 'function', 'job', 'build'];
const MACHINE: Size = { cpuMillis: 4000, memoryMb: 8192, processes: 1000 };
const ONCE = { cpu: 1, memory: 1, processes: 1 };
const NOTHING: Size = { cpuMillis: 0, memoryMb: 0, processes: 0 };

const ledgerOf = (options: Partial<LedgerOptions> = {}) =>
  new Ledger({ machine: MACHINE, overcommit: ONCE, openCallBytes: new TenantBudget(1024), ...options });
const size = (changes: Partial<Size> = {}): Size => ({ cpuMillis: 1000, memoryMb: 1024, processes: 10, ...changes });

describe('the ledger counts all owners together', () => {
  test.each(KINDS)('the ledger refuses another instance when a %s has taken the last capacity', kind => {
    const ledger = ledgerOf();
    for (const other of KINDS.filter(each => each !== kind)) ledger.reserve(other, size());
    expect(ledger.refusal(size())).toBeUndefined();
    ledger.reserve(kind, size());
    expect(ledger.refusal(size())?.code).toBe('resource_exhausted');
    ledger.release(kind, size());
    expect(ledger.refusal(size())).toBeUndefined();
  });

  test('the ledger refuses an instance when any single resource is exhausted', () => {
    const ledger = ledgerOf();
    ledger.reserve('function', size({ cpuMillis: 100, memoryMb: 8000, processes: 10 }));
    expect(ledger.refusal(size({ memoryMb: 192 }))).toBeUndefined();
    expect(ledger.refusal(size({ memoryMb: 193 }))?.message).toContain('not have enough free memory');
    expect(ledger.refusal(size({ memoryMb: 1, processes: 991 }))?.message).toContain('not have enough free processes');
    expect(ledger.refusal(size({ memoryMb: 1, cpuMillis: 3901 }))?.message).toContain('not have enough free CPU');
  });
});

describe('overcommit of the machine', () => {
  test.each([
    ['cpu', 'cpuMillis'],
    ['memory', 'memoryMb'],
    ['processes', 'processes'],
  ] as const)('the overcommit factor of %s raises the limit of that resource only', (factor, name) => {
    const one = { ...NOTHING, [name]: MACHINE[name] };
    const ledger = ledgerOf({ overcommit: { ...ONCE, [factor]: 3 } });
    for (let taken = 0; taken < 3; taken++) {
      expect(ledger.refusal(one)).toBeUndefined();
      ledger.reserve('agent', one);
    }
    expect(ledger.refusal({ ...NOTHING, [name]: 1 })?.code).toBe('resource_exhausted');
    for (const other of ['cpuMillis', 'memoryMb', 'processes'] as const) {
      if (other !== name) expect(ledger.reservations.limit[other]).toBe(MACHINE[other]);
    }
  });

  test('the ledger counts an instance that is larger than the machine as the whole machine', () => {
    const huge = size({ cpuMillis: 1_000_000, memoryMb: 1_000_000, processes: 1_000_000 });
    const ledger = ledgerOf({ overcommit: { cpu: 2, memory: 2, processes: 2 } });
    expect(ledger.isWithinMachine(huge)).toBe(false);
    for (const kind of ['agent', 'job'] as const) {
      expect(ledger.refusal(huge)).toBeUndefined();
      ledger.reserve(kind, huge);
      expect(ledger.reservations.by[kind]).toEqual(MACHINE);
    }
    expect(ledger.refusal(size())?.code).toBe('resource_exhausted');
    for (const kind of ['agent', 'job'] as const) ledger.release(kind, huge);
    expect(ledger.reservations.by).toEqual(Object.fromEntries(KINDS.map(kind => [kind, NOTHING])));
  });

  test('the ledger counts running instances even beyond its limits', () => {
    const ledger = ledgerOf();
    for (let found = 0; found < 10; found++) ledger.reserve('agent', size());
    expect(ledger.reservations.by.agent).toEqual({ cpuMillis: 10_000, memoryMb: 10_240, processes: 100 });
    expect(ledger.refusal(size({ cpuMillis: 0, memoryMb: 1 }))?.code).toBe('resource_exhausted');
    for (let ended = 0; ended < 7; ended++) ledger.release('agent', size());
    expect(ledger.refusal(size())).toBeUndefined();
  });

  test('the default settings accept 1 000 default agents on a machine of 24 GiB and 2 processors', async () => {
    const config = await resolveConfig([], { environment: { HOME: '/root' }, isRoot: true });
    const machine = { cpuMillis: 2000, memoryMb: 24 * 1024, processes: 32_768 };
    const ledger = ledgerOf({ machine, overcommit: config.overcommit });
    const agent = { cpuMillis: 1000, memoryMb: 2048, processes: config.maxProcesses };
    expect(config.maxProcesses).toBe(256);
    for (let count = 0; count < 1000; count++) {
      expect(ledger.refusal(agent)).toBeUndefined();
      ledger.reserve('agent', agent);
    }
  });
});

describe('a refusal of the ledger', () => {
  test('a refusal names the full resource, its holders and the setting of its limit', () => {
    const ledger = ledgerOf();
    ledger.reserve('agent', size({ memoryMb: 5000 }));
    ledger.reserve('function', size({ memoryMb: 2000 }));
    ledger.reserve('build', size({ memoryMb: 1000 }));
    expect(ledger.refusal(size())).toMatchObject({
      code: 'resource_exhausted',
      message:
        'the machine does not have enough free memory: 1024 of 8192 MiB are requested; reserved are agents 5000, functions 2000, builds of environments 1000 (setting overcommit.memory)',
      retryAfterSeconds: 5,
    });
  });

  test('listeners run once, on the first release after a refusal', () => {
    const ledger = ledgerOf();
    let told = 0;
    ledger.onRelease(() => told++);
    for (let taken = 0; taken < 4; taken++) ledger.reserve('agent', size());
    ledger.release('agent', size());
    expect(told).toBe(0);
    ledger.reserve('agent', size());
    ledger.refusal(size());
    ledger.refusal(size());
    expect(told).toBe(0);
    ledger.release('agent', size());
    ledger.release('agent', size());
    expect(told).toBe(1);
  });

  test('a changed reservation gives a waiting request only what it leaves', () => {
    const ledger = ledgerOf();
    const whole = size({ memoryMb: MACHINE.memoryMb });
    ledger.reserve('agent', whole);
    let fits: boolean | undefined;
    ledger.onRelease(() => {
      fits = ledger.fits(size());
    });
    for (const [to, isEnough] of [
      [whole, false],
      [size({ memoryMb: MACHINE.memoryMb - 1024 }), true],
    ] as const) {
      expect(ledger.fits(size())).toBe(false);
      ledger.resize('agent', whole, to);
      expect(fits).toBe(isEnough);
    }
  });

  test('a reservation that replaces another is refused only for what is missing', () => {
    const ledger = ledgerOf();
    ledger.reserve('agent', size({ memoryMb: 4096 }));
    expect(ledger.refusal(size({ memoryMb: 8192 }))?.code).toBe('resource_exhausted');
    expect(ledger.refusal(size({ memoryMb: 8192 }), size({ memoryMb: 4096 }))).toBeUndefined();
  });

  test('a refusal inside a listener makes the next release call the listener again', () => {
    const ledger = ledgerOf();
    let told = 0;
    ledger.onRelease(() => {
      told++;
      ledger.refusal(size({ cpuMillis: 4000 }));
    });
    for (let taken = 0; taken < 4; taken++) ledger.reserve('job', size());
    ledger.refusal(size());
    for (const expected of [1, 2, 3]) {
      ledger.release('job', size());
      expect(told).toBe(expected);
    }
    // The fourth release makes the request fit, so the fifth one calls no listener.
    ledger.release('job', size());
    ledger.release('job', NOTHING);
    expect(told).toBe(4);
  });
});

const SIZE = fc.record({
  cpuMillis: fc.integer({ min: 0, max: 10_000 }),
  memoryMb: fc.integer({ min: 0, max: 20_000 }),
  processes: fc.integer({ min: 0, max: 3000 }),
});
const HISTORY = fc.array(fc.record({ kind: fc.constantFrom(...KINDS), size: SIZE, keep: fc.nat(5) }), {
  maxLength: 60,
});

test('the ledger keeps exact sums and correct refusals over any history, and ends at zero', () => {
  fc.assert(
    fc.property(HISTORY, history => {
      const ledger = ledgerOf({ overcommit: { cpu: 4, memory: 2, processes: 3 } });
      const held: { kind: OwnerKind; size: Size }[] = [];
      const counted = (name: keyof Size, more?: Size) =>
        [...held.map(one => one.size), ...(more ? [more] : [])].reduce(
          (sum, one) => sum + Math.min(one[name], MACHINE[name]),
          0,
        );
      for (const { kind, size, keep } of history) {
        const { limit } = ledger.reservations;
        const fits = (['cpuMillis', 'memoryMb', 'processes'] as const).every(
          name => counted(name, size) <= limit[name],
        );
        expect(ledger.refusal(size) === undefined).toBe(fits);
        // A running instance counts even if the ledger would refuse it.
        ledger.reserve(kind, size);
        held.push({ kind, size });
        while (held.length > keep) {
          const given = held.shift();
          if (given) ledger.release(given.kind, given.size);
        }
      }
      for (const given of held) ledger.release(given.kind, given.size);
      expect(ledger.reservations.by).toEqual(Object.fromEntries(KINDS.map(kind => [kind, NOTHING])));
    }),
  );
});
