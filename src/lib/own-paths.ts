import { existsSync } from 'node:fs';
import { realpath } from 'node:fs/promises';
import { dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { failedPrecondition, internal } from '../core/error.ts';

/**
 * Finds `runtimes/python` of this installation, for the sources and the built program. Fails with `internal`.
 */
export function findPythonDir(): string {
  let directory = dirname(fileURLToPath(import.meta.url));
  for (;;) {
    const candidate = join(directory, 'runtimes', 'python');
    if (existsSync(join(candidate, 'rookery_zygote', '__main__.py'))) return candidate;
    const parent = dirname(directory);
    if (parent === directory)
      throw internal('runtimes/python was not found beside the program: the installation is broken');
    directory = parent;
  }
}

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
