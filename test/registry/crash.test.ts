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

test('kill -9 in the middle of writes: every acknowledged function is there, with its total, and the next start goes on', async () => {
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
      // A second life begins with names of its own.
      await database.deleteFrom('functions').execute();
      await database.deleteFrom('function_totals').execute();
      acknowledged.clear();
      await database.destroy();
    }
  } finally {
    await rm(directory, { recursive: true });
  }
});

/** The URNs that a process had acknowledged when it was killed. */
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
