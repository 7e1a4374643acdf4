/** `npm run races [-- --rounds 10000 --seed 1]`: the long form of `races.test.ts`. */
import { parseArgs } from 'node:util';
import { WRITE_OPERATIONS } from '../../src/server/write-operations.ts';
import { openStores } from '../../src/storage/stores.ts';
import { startPostgres } from '../parts/postgres.ts';
import { race } from './races.ts';

const PROGRAM = new URL('../registry/write-program.mjs', import.meta.url);
const TELL_EVERY = 1000;

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '10000' },
    seed: { type: 'string', default: `${Date.now() % 1_000_000}` },
  },
});
const rounds = Number(values.rounds);
const seed = Number(values.seed);
await using server = await startPostgres();
const url = await server.database();
const open = () => openStores({ url, waitMs: 30_000, poolSize: 4 }, { operations: WRITE_OPERATIONS, program: PROGRAM });
const stores = [await open(), await open()] as const;
try {
  const onRound = (round: number) => {
    if ((round + 1) % TELL_EVERY === 0) console.log(`${round + 1} of ${rounds} rounds`);
  };
  const { first, second, both } = await race(stores, { rounds, seed, onRound });
  console.log(`seed ${seed}: ${rounds} races, each ended as one of the two orders`);
  console.log(`${first} only as the first order, ${second} only as the second, ${both} as both, which are the same`);
} finally {
  for (const store of stores) await store.close();
}
