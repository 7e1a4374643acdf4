import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { internal } from '../../core/error.ts';

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
