import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, test } from 'vitest';
import { openDatabase } from '../../src/storage/database.ts';

const ROUNDS = 3;
const ACKNOWLEDGED_PER_ROUND = 300;

test('the registry keeps every acknowledged function and the totals after kill -9 during writes', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'rookery-crash-'));
  try {
    const file = join(directory, 'a.db');
    const acknowledged = new Set<string>();
    for (let round = 0; round < ROUNDS; round++) {
      for (const urn of await registerAndKill(file)) acknowledged.add(urn);
      const database = await openDatabase(file);
      const rows = await database.selectFrom('functions').select(['record', 'change_seq']).execute();
      const stored = new Set(rows.map(row => (JSON.parse(row.record) as { id: string }).id));
      expect([...acknowledged].filter(urn => !stored.has(urn))).toEqual([]);
      const totals = await database.selectFrom('function_totals').selectAll().executeTakeFirstOrThrow();
      expect(totals).toMatchObject({ version: '$latest', total: rows.length, last_change: rows.length });
      expect(new Set(rows.map(row => row.change_seq)).size).toBe(rows.length);
      // The next round registers the same names again.
      await database.deleteFrom('functions').execute();
      await database.deleteFrom('function_totals').execute();
      acknowledged.clear();
      await database.destroy();
    }
  } finally {
    await rm(directory, { recursive: true });
  }
});

/** Registers functions in a child process, kills the child, and returns the URNs acknowledged before. */
async function registerAndKill(file: string): Promise<string[]> {
  const program = join(import.meta.dirname, 'crash-run.ts');
  const child = spawn(process.execPath, ['--import', 'tsx', program, file], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  const urns: string[] = [];
  for await (const line of createInterface({ input: child.stdout })) {
    urns.push(line);
    if (urns.length === ACKNOWLEDGED_PER_ROUND) child.kill('SIGKILL');
  }
  const [, signal] = await exited;
  expect(signal).toBe('SIGKILL');
  return urns;
}
