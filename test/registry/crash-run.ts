import { readRegister } from '../../src/core/function.ts';
import { createRegistry } from '../../src/registry/registry.ts';
import { WRITE_OPERATIONS } from '../../src/server/write-operations.ts';
import { openStores } from '../../src/storage/stores.ts';

/**
 * Registers functions in the database file of the argument until the process is killed.
 * Prints the URN of each acknowledged function.
 */
const [, , file = ''] = process.argv;
const program = new URL('./write-program.mjs', import.meta.url);
const { database, writes } = await openStores({ file }, { operations: WRITE_OPERATIONS, program });
const { functions } = createRegistry({
  database,
  writes,
  business: 'yrk',
  clusters: ['cluster001'],
  exists: async () => true,
  poolImages: null,
});

async function registerOneAfterAnother(worker: number): Promise<never> {
  for (let n = 0; ; n++) {
    const name = `0@crash@w${worker}-${n}`;
    const read = readRegister({ name, runtime: 'python3.11', cpu: 500, memory: 512, description: 'x'.repeat(500) });
    if (!read.ok) throw new Error(read.problems.join('; '));
    const { urn } = await functions.register('default', read.value);
    process.stdout.write(`${urn}\n`);
  }
}

await Promise.all(Array.from({ length: 8 }, (_, worker) => registerOneAfterAnother(worker)));
