import { readFile } from 'node:fs/promises';
import { failedPrecondition } from './core/error.ts';

/** What the service itself holds, and a few callers. */
const OWN_FILES = 128;
/** Two connections to the runtime, one that tells the end. */
const FILES_PER_SANDBOX = 3;

/**
 * Fails with `failed_precondition` when this process may open fewer files than it takes to look after what an earlier server left. (Node
 * itself has raised its limit to what it may have.)
 */
export async function checkOpenFiles(sandboxes: number): Promise<void> {
  const limit = openFilesLimit(await readFile('/proc/self/limits', 'utf8').catch(() => ''));
  const needed = OWN_FILES + FILES_PER_SANDBOX * sandboxes;
  if (limit === null || needed <= limit) return;
  throw failedPrecondition(
    `this process may open ${limit} files, and looking after the ${sandboxes} sandboxes of an earlier service takes about ${needed}: raise the limit (ulimit -n, LimitNOFILE= of systemd) and start again; nothing has been touched`,
  );
}

/** Null: there is none, or it is not known. */
export function openFilesLimit(limits: string): number | null {
  const found = /^Max open files +(\d+|unlimited)/m.exec(limits)?.[1];
  return found === undefined || found === 'unlimited' ? null : Number(found);
}
