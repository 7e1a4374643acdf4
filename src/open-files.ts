import { failedPrecondition } from './core/error.ts';
import { openFilesLimit } from './lib/open-files-limit.ts';

/** Descriptors of the service itself and of a few callers. */
const OWN_FILES = 128;
/** Two connections to the runtime, one that tells the end. */
const FILES_PER_SANDBOX = 3;

/**
 * Fails with `failed_precondition` when this process may open fewer files than it takes to look after what an earlier server left.
 */
export async function checkOpenFiles(sandboxes: number): Promise<void> {
  const limit = await openFilesLimit();
  const needed = OWN_FILES + FILES_PER_SANDBOX * sandboxes;
  if (limit === null || needed <= limit) return;
  throw failedPrecondition(
    `this process may open ${limit} files, and looking after the ${sandboxes} sandboxes of an earlier service takes about ${needed}: raise the limit (ulimit -n, LimitNOFILE= of systemd) and start again; nothing has been touched`,
  );
}
