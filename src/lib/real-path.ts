import { realpathSync } from 'node:fs';

/**
 * Returns a path with its symbolic links resolved, or unchanged when nothing exists there. Only for paths
 * that the operator or this machine chose, as drivers refuse links in sources of the platform's own mounts.
 */
export function realPathOf(path: string): string {
  try {
    return realpathSync.native(path);
  } catch {
    return path;
  }
}
