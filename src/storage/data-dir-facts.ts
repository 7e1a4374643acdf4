import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isAlive, type ProcessName } from '../lib/process-name.ts';
import { isAbsent } from '../lib/system-errors.ts';

export const DATABASE = 'rookery.db';
export const LOCK = 'lock';
export const NODE_ID = 'node-id';
/** There while a service runs, and after one that was killed: which process it is. */
export const RUNNING = 'running';
/** The key of secrets, where no setting names another. */
export const SECRETS_KEY = 'secrets.key';

/** What a data directory says of the services that it had. */
export interface DataDirFacts {
  /** Null: missing or empty. */
  readonly nodeId: string | null;
  readonly hasDatabase: boolean;
  /** The write-ahead log, without which a database that was not closed lacks what was written last. */
  readonly hasLog: boolean;
  /** The last service did not end by itself. */
  readonly wasKilled: boolean;
  /** A service that runs now, this process aside. */
  readonly runningPid: number | null;
  /** Ids of sandboxes that have their files here, running or not. */
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

/** Why a service must not begin with what is there: it would take what is lost for what never was. Null when it may. */
export function whyNotBegin(path: string, facts: DataDirFacts): string | null {
  const { nodeId, hasDatabase, hasLog, wasKilled, sandboxes } = facts;
  const count = sandboxes.length;
  const left =
    count === 0
      ? ''
      : ` while ${count} ${count === 1 ? 'sandbox' : 'sandboxes'} of an earlier service ${count === 1 ? 'is' : 'are'} left`;
  const ways = `put a backup back, or let \`rookery recover --data-dir ${path}\` say what can be done`;
  if (!hasDatabase && (nodeId !== null || count > 0)) {
    return `the database ${DATABASE} of the data directory ${path} is missing${left}: ${ways}`;
  }
  if (hasDatabase && wasKilled && !hasLog) {
    return `the last service was killed and the write-ahead log ${DATABASE}-wal of the data directory ${path} is missing${left}; unless another program has written it into the database, what was written last is lost: ${ways}`;
  }
  return null;
}

/** The same where the records are in a PostgreSQL: only which node it is stands here. */
export function whyNotGoOn(path: string, { nodeId, hasDatabase, sandboxes }: DataDirFacts): string | null {
  if (hasDatabase) {
    return `the data directory ${path} has a database of its own, ${DATABASE}, and storage.url names another, which does not know what is in it: move it away when nothing of it is needed, choose another directory with --data-dir, or start the service without storage.url`;
  }
  return nodeId === null && sandboxes.length > 0
    ? `${NODE_ID} of the data directory ${path} is missing or empty while sandboxes of an earlier service are left: put the file back, or choose another directory with --data-dir`
    : null;
}

/** Null when there is none. */
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
    // A disk that was full has cut it off.
    return null;
  }
}
