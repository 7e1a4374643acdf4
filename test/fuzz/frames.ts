import { Dice, type Fuzzer } from './fuzzer.ts';

export const fuzzFrames: Fuzzer = async ({ seed }) => {
  const dice = new Dice(seed);
  return { iterations: dice.below(1), faults: [], counts: {} };
};
