import { realpath } from 'node:fs/promises';
import { posix } from 'node:path';
import { failedPrecondition } from '../../core/error.ts';

/**
 * Refuses a source of the platform's own mounts that leads through a symbolic link. Fails with
 * `failed_precondition`.
 * Foreign code may have created the link.
 */
export async function assertNoLinks(source: string): Promise<void> {
  const resolved = await realpath(source).catch(() => null);
  if (resolved === null) throw failedPrecondition(`mount source does not exist: ${source}`);
  if (resolved === posix.normalize(source).replace(/(.)\/$/, '$1')) return;
  throw failedPrecondition(`mount source leads through a symbolic link: ${source}`);
}
