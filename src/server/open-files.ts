import { failedPrecondition } from '../core/error.ts';
import { openFilesLimit } from '../lib/open-files-limit.ts';

/** Descriptors of the service itself and of a few clients. */
const OWN_FILES = 128;
/** Two connections to the runtime, and one descriptor that reports the exit. */
const FILES_PER_SANDBOX = 3;

/**
 * Fails with `failed_precondition` if the limit of open files is too low to adopt the sandboxes of an earlier
 * server.
 */
export async function checkOpenFiles(sandboxes: number): Promise<void> {
  const limit = await openFilesLimit();
  const needed = OWN_FILES + FILES_PER_SANDBOX * sandboxes;
  if (limit === null || needed <= limit) return;
  throw failedPrecondition(
    `this process may open ${limit} files, and looking after the ${sandboxes} sandboxes of an earlier service takes about ${needed}: raise the limit (ulimit -n, LimitNOFILE= of systemd) and start again; nothing has been touched`,
  );
}
