import { describe, expect, test } from 'vitest';
import { PoolModel } from '../../test/pools/model.ts';

const SEEDS = Array.from({ length: 150 }, (_, seed) => seed + 1);
const STEPS = 250;

describe.each([
  ['used again', true],
  ['used once', false],
])('a pool whose pods are %s, with delayed views of the cluster', (_name, reuse) => {
  test('a pool ends no claimed pod while its size changes, and reaches the wanted size', () => {
    for (const seed of SEEDS) {
      const model = new PoolModel(seed, reuse);
      for (let step = 0; step < STEPS; step++) model.step();
      model.settle();
      expect(model.ended, `seed ${seed}`).toEqual([]);
      const members = model.pods.filter(({ isMember }) => isMember);
      expect([members.length, model.replicas], `seed ${seed}`).toEqual([model.wanted, model.wanted]);
      expect(
        members.filter(({ isRetired }) => isRetired),
        `seed ${seed}`,
      ).toEqual([]);
    }
  });

  test('a deleted pool keeps only its claimed pods', () => {
    for (const seed of SEEDS) {
      const model = new PoolModel(seed, reuse);
      for (let step = 0; step < STEPS; step++) {
        if (step === STEPS - 20) model.delete();
        model.step();
      }
      model.settle();
      expect(model.ended, `seed ${seed}`).toEqual([]);
      expect(
        model.pods.every(({ instanceId }) => instanceId !== null),
        `seed ${seed}`,
      ).toBe(true);
    }
  });
});
