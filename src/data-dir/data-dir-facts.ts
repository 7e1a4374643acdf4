import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isAlive, type ProcessName } from '../lib/process-name.ts';
import { isAbsent } from '../lib/system-errors.ts';

export const DATABASE = 'rookery.db';
export const LOCK = 'lock';
export const NODE_ID = 'node-id';
/**
 * Names the process of the running service. The file exists while a service runs, and after a service was
 * killed.
 */
export const RUNNING = 'running';
/** The key of secrets, unless a setting names another file. */
export const SECRETS_KEY = 'secrets.key';

/** Facts about earlier services, from the files of a data directory. */
export interface DataDirFacts {
  /** Null: missing or empty. */
  readonly nodeId: string | null;
  readonly hasDatabase: boolean;
  /** The write-ahead log exists. Without the log, a database that was not closed lacks the last writes. */
  readonly hasLog: boolean;
  /** The last service did not end by itself. */
  readonly wasKilled: boolean;
  /** Pid of a running service other than this process; null without one. */
  readonly runningPid: number | null;
  /** Ids of sandboxes with files in this directory, running or not. */
  readonly sandboxes: readonly string[];
}

export async function readFacts(path: string): Promise<DataDirFacts> {
  const database = join(path, DATABASE);
  const running = await textOf(join(path, RUNNING));
  const name = running === null ? null : nameIn(running);
  const isOther = name !== null && name.pid !== process.pid && isAlive(name);
  return {
    nodeId: (await textOf(join(path, NODE_ID)))?.trim() || null,
    hasDatabase: (await sizeOf(database)) > 0,
    hasLog: (await sizeOf(`${database}-wal`)) >= 0,
    wasKilled: running !== null,
    runningPid: isOther ? name.pid : null,
    sandboxes: await entriesOf(join(path, 'run', 'instances')),
  };
}

/**
 * Returns why a service must not start on this directory; null when it may. With files missing, it would
 * treat lost data as data that never existed.
 */
export function whyNotBegin(path: string, facts: DataDirFacts): string | null {
  const { nodeId, hasDatabase, hasLog, wasKilled, sandboxes } = facts;
  const count = sandboxes.length;
  const left =
    count === 0
      ? ''
      : ` while ${count} ${count === 1 ? 'sandbox' : 'sandboxes'} of an earlier service ${count === 1 ? 'is' : 'are'} left`;
  const remedy = `put a backup back, or let \`rookery recover --data-dir ${path}\` say what can be done`;
  if (!hasDatabase && (nodeId !== null || count > 0)) {
    return `the database ${DATABASE} of the data directory ${path} is missing${left}: ${remedy}`;
  }
  if (hasDatabase && wasKilled && !hasLog) {
    return `the last service was killed and the write-ahead log ${DATABASE}-wal of the data directory ${path} is missing${left}; unless another program has written it into the database, the last writes are lost: ${remedy}`;
  }
  return null;
}

/**
 * Returns why a service with PostgreSQL must not start on this directory; null when it may. With PostgreSQL,
 * only the node's identity matters in the directory.
 */
export function whyNotGoOn(path: string, { nodeId, hasDatabase, sandboxes }: DataDirFacts): string | null {
  if (hasDatabase) {
    return `the data directory ${path} has a database of its own, ${DATABASE}, and storage.url names another, which does not know what is in it: move it away when nothing of it is needed, choose another directory with --data-dir, or start the service without storage.url`;
  }
  return nodeId === null && sandboxes.length > 0
    ? `${NODE_ID} of the data directory ${path} is missing or empty while sandboxes of an earlier service are left: put the file back, or choose another directory with --data-dir`
    : null;
}

/** Returns the text of a file; null when the file does not exist. */
async function textOf(path: string): Promise<string | null> {
  return await readFile(path, 'utf8').catch(orAbsent(null));
}

async function sizeOf(path: string): Promise<number> {
  return await stat(path).then(({ size }) => size, orAbsent(-1));
}

async function entriesOf(path: string): Promise<readonly string[]> {
  return await readdir(path).catch(orAbsent([]));
}

function orAbsent<T>(value: T): (error: unknown) => T {
  return error => {
    if (isAbsent(error)) return value;
    throw error;
  };
}

function nameIn(text: string): ProcessName | null {
  try {
    const { pid, startTime, bootId } = JSON.parse(text) as Partial<ProcessName>;
    return pid === undefined || startTime === undefined || bootId === undefined ? null : { pid, startTime, bootId };
  } catch {
    // A full disk truncated the file.
    return null;
  }
}
