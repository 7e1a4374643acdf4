import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { sql } from 'kysely';
import { messageOf } from '../core/error.ts';
import { takeDataDir, writeNodeId } from '../data-dir/data-dir.ts';
import { type DataDirFacts, RUNNING, readFacts } from '../data-dir/data-dir-facts.ts';
import { connect, openDatabase } from './database.ts';
import { listNodeIds, listSandboxIds } from './queries/nodes.ts';

/** The problems of a data directory and the steps that repair it. */
export interface Recovery {
  /** Sentences: which files exist, which are missing, and what follows. */
  readonly findings: readonly string[];
  /** The repairs, in order of execution. Empty: a service can start as it is, or no repair is possible. */
  readonly steps: readonly RecoveryStep[];
  /** Sandboxes without a record in the database. The next service ends them. */
  readonly unknownSandboxes: readonly string[];
}

export interface RecoveryStep {
  readonly text: string;
  apply(): Promise<void>;
}

/**
 * Inspects a data directory that no service uses, and calls `work` with the result. Holds the lock of the
 * directory until `work` ends. Only the steps that `work` applies change anything. Fails with
 * `failed_precondition` when a service runs on the directory.
 */
export async function recover(path: string, work: (recovery: Recovery) => Promise<void>): Promise<void> {
  const taken = await takeDataDir(path);
  let isWhole = false;
  try {
    const facts = await readFacts(path);
    await work(await plan(path, taken.databaseFile, facts));
    // SQLite writes the log into the database when its last reader closes.
    isWhole = facts.hasDatabase && facts.hasLog;
  } finally {
    taken.release(isWhole);
  }
}

async function plan(path: string, file: string, facts: DataDirFacts): Promise<Recovery> {
  if (!facts.hasDatabase) return withoutDatabase(path, file, facts);
  const findings: string[] = [];
  const steps: RecoveryStep[] = [];
  if (facts.wasKilled && !facts.hasLog) {
    findings.push(
      'The last service was killed and its write-ahead log is missing: the last writes are lost, unless another program (sqlite3, a backup) has written it into the database.',
    );
    steps.push({
      text: 'continue with the database as it is, without the last writes',
      apply: () => rm(join(path, RUNNING), { force: true }),
    });
  }
  const { nodeIds, known } = await rowsOf(file, facts).catch((error: unknown) => {
    findings.push(`The database cannot be read: ${messageOf(error)}; put a backup back.`);
    return { nodeIds: [] as readonly string[], known: new Set<string>() };
  });
  const [only] = nodeIds;
  if (nodeIds.length > 1) {
    findings.push(`The database has rows of several nodes (${nodeIds.join(', ')}); node-id has to be one of them.`);
  }
  if (only !== undefined && (facts.nodeId === null || !nodeIds.includes(facts.nodeId))) {
    const what = facts.nodeId === null ? 'node-id is missing or empty' : `node-id says ${facts.nodeId}`;
    findings.push(`${what}; what is in the database belongs to the node ${nodeIds.join(' or ')}.`);
    if (nodeIds.length === 1) {
      steps.push({
        text: `write ${only} into node-id, so that the next service adopts what runs`,
        apply: async () => void (await writeNodeId(path, only)),
      });
    }
  }
  const unknownSandboxes = facts.sandboxes.filter(id => !known.has(id));
  return { findings, steps, unknownSandboxes };
}

/**
 * Returns the recovery without a database. Records cannot be rebuilt from running sandboxes: only the
 * database had names, owners and connection secrets.
 */
function withoutDatabase(path: string, file: string, { nodeId, sandboxes }: DataDirFacts): Recovery {
  if (nodeId === null && sandboxes.length === 0) return { findings: [], steps: [], unknownSandboxes: [] };
  return {
    findings: [
      'The database is missing: functions, records of agents and jobs, and the secrets that open connections to agents were in it.',
      'A backup of it that is put back brings them back; agents that it knows and that still run are adopted.',
    ],
    steps: [
      {
        text: 'begin with an empty database: the next service knows no functions, agents and jobs, and ends every sandbox that is left',
        apply: async () => {
          for (const end of ['-wal', '-shm']) await rm(`${file}${end}`, { force: true });
          const database = await openDatabase(file);
          await database.destroy();
          await rm(join(path, RUNNING), { force: true });
        },
      },
    ],
    unknownSandboxes: sandboxes,
  };
}

/** Reads the database without applying migrations. */
async function rowsOf(file: string, { hasLog }: DataDirFacts) {
  const database = connect(file);
  try {
    const rows = { nodeIds: await listNodeIds(database), known: new Set(await listSandboxIds(database)) };
    await sql`pragma wal_checkpoint(truncate)`.execute(database);
    return rows;
  } finally {
    await database.destroy();
    // If opening the database created the log, the log would later hide that the original one is missing.
    if (!hasLog) for (const end of ['-wal', '-shm']) await rm(`${file}${end}`, { force: true });
  }
}
