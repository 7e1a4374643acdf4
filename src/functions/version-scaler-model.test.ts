import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { settle } from '../../test/fakes/fake-clock.ts';
import { type FakeInstance, POLICY, session, World } from '../../test/functions/world.ts';
import { propertyRuns } from '../../test/parts/property-runs.ts';
import type { Lease } from './group.ts';
import type { AcquireOptions, GroupKey } from './policy.ts';

describe('VersionScaler: model', () => {
  const event = fc.oneof(
    {
      weight: 6,
      arbitrary: fc.record({
        kind: fc.constant('call' as const),
        sess: fc.option(fc.constantFrom('a', 'b', 'c')),
        ctx: fc.constantFrom('', 'x'),
        label: fc.constantFrom('', '', 'l'),
        size: fc.constantFrom(1, 2, -1),
      }),
    },
    {
      weight: 6,
      arbitrary: fc.record({ kind: fc.constant('finish' as const), which: fc.nat(), replace: fc.boolean() }),
    },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('crash' as const), which: fc.nat() }) },
    { weight: 3, arbitrary: fc.record({ kind: fc.constant('started' as const), which: fc.nat(), ok: fc.boolean() }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('stopped' as const), which: fc.nat() }) },
    { weight: 2, arbitrary: fc.record({ kind: fc.constant('time' as const), ms: fc.integer({ min: 1, max: 3000 }) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('labels' as const), min: fc.nat(2) }) },
    { weight: 1, arbitrary: fc.record({ kind: fc.constant('endSession' as const), sess: fc.constantFrom('a', 'b') }) },
  );

  it('VersionScaler keeps its invariants under random calls, finishes, crashes, limits and time', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(event, { maxLength: 80 }),
        fc.record({
          concurrency: fc.integer({ min: 1, max: 3 }),
          maxInstances: fc.integer({ min: 1, max: 4 }),
          minInstances: fc.integer({ min: 0, max: 1 }),
          slaQuotaMs: fc.option(fc.constant(500)),
          oneshot: fc.boolean(),
          holdStops: fc.boolean(),
        }),
        async (events, shape) => {
          const concurrency = shape.oneshot ? 1 : shape.concurrency;
          const world = new World({ ...shape, concurrency, labels: new Map([['l', { min: 0, max: 2 }]]) });
          world.holdStarts = true;
          world.holdStops = shape.holdStops;
          world.scaler.start();
          const running: { lease: Lease; instance: FakeInstance }[] = [];
          let asked = 0;
          let answered = 0;
          const sticky = new Map<string, FakeInstance>();
          const check = () => {
            for (const instance of world.alive) expect(instance.running).toBeLessThanOrEqual(concurrency);
            const of = (label: string) =>
              [...world.alive].filter(i => i.key.label === label).length +
              world.starting.filter(s => s.key.label === label).length;
            expect(of('')).toBeLessThanOrEqual(shape.maxInstances);
            expect(of('l')).toBeLessThanOrEqual(2);
            for (const group of world.scaler.groups) {
              const isFree = group.replicas.some(
                ({ state, inFlight, reservedSlots }) => state === 'ready' && inFlight + reservedSlots === 0,
              );
              // A free instance must serve a call that waits for any instance.
              expect(isFree && group.isBusy).toBe(false);
              const nowMs = world.clock.now();
              // A session that just ended may leave a long-idle instance, whose end is due at this moment.
              const isDue = group.cancelTimer !== undefined && group.timerAtMs >= nowMs && group.timerAtMs <= nowMs + 1;
              if (group.isBusy || isDue) continue;
              const restedTooLong = group.replicas.filter(
                ({ state, inFlight, reservedSlots, idleSinceMs }) =>
                  state === 'ready' && inFlight + reservedSlots === 0 && nowMs > idleSinceMs + POLICY.scaleDownMs,
              );
              const { labels, minInstances } = world.scaler.policy;
              const { label, sessionContext } = group.key;
              const ofNone = sessionContext === '' ? minInstances : 0;
              expect(restedTooLong.length).toBeLessThanOrEqual(labels.get(label)?.min ?? ofNone);
            }
          };
          const call = (options: Partial<AcquireOptions>, key: Partial<GroupKey>) => {
            asked += 1;
            world.acquire(options, key).then(
              lease => {
                answered += 1;
                const instance = lease.instance as FakeInstance;
                instance.running += 1;
                const id = options.session && `${options.session.id}/${key.label}/${key.sessionContext}`;
                const bound = id && sticky.get(id);
                const takesCalls = [...world.scaler.groups].some(({ replicas }) =>
                  replicas.some(replica => replica.instance === bound && replica.state === 'ready'),
                );
                if (bound && takesCalls && !bound.stopped && !draining.has(bound)) expect(instance).toBe(bound);
                if (id) sticky.set(id, instance);
                running.push({ lease, instance });
              },
              () => {
                answered += 1;
              },
            );
          };
          const draining = new Set<FakeInstance>();
          const finish = (index: number, outcome: 'done' | 'replace') => {
            const [done] = running.splice(index, 1);
            if (!done) return;
            done.instance.running -= 1;
            if (outcome === 'replace' || shape.oneshot) draining.add(done.instance);
            done.lease.release(outcome);
          };
          for (const e of events) {
            if (e.kind === 'call') {
              const size = e.size === -1 ? -1 : Math.min(e.size, concurrency);
              call(e.sess ? { session: session(e.sess, size, 20_000) } : {}, { sessionContext: e.ctx, label: e.label });
            } else if (e.kind === 'finish' && running.length > 0)
              finish(e.which % running.length, e.replace ? 'replace' : 'done');
            else if (e.kind === 'crash' && world.alive.size > 0)
              [...world.alive][e.which % world.alive.size]?.kill('crashed');
            else if (e.kind === 'started' && world.starting.length > 0) {
              const [start] = world.starting.splice(e.which % world.starting.length, 1);
              if (e.ok) start?.ok();
              else start?.fail(new Error('no start'));
            } else if (e.kind === 'stopped') {
              const stopping = [...world.alive].filter(({ stopped }) => stopped);
              stopping[e.which % stopping.length]?.kill('stopped');
            } else if (e.kind === 'time') await world.clock.advance(e.ms);
            else if (e.kind === 'labels')
              world.scaler.setPolicy({ ...world.scaler.policy, labels: new Map([['l', { min: e.min, max: 2 }]]) });
            else if (e.kind === 'endSession') {
              world.scaler.endSession(e.sess);
              sticky.clear();
            }
            await settle();
            check();
          }
          // In the end every start and call finishes and time passes, so only the minimum remains.
          world.scaler.setPolicy({ ...world.scaler.policy, labels: new Map([['l', { min: 0, max: 2 }]]) });
          for (let round = 0; round < 200; round++) {
            for (const instance of world.alive) if (instance.stopped) instance.kill('stopped');
            for (const start of world.starting.splice(0)) start.ok();
            while (running.length > 0) finish(0, 'done');
            await world.clock.advance(1000);
            check();
          }
          expect(answered).toBe(asked);
          expect(world.scaler.waiting).toBe(0);
          expect(world.alive.size).toBe(shape.minInstances);
        },
      ),
      { numRuns: propertyRuns(200) },
    );
  });
});
