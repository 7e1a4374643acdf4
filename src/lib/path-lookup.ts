import { realpathSync } from 'node:fs';

/** Returns true when a path of this host exists and may be used. */
export type PathExists = (path: string) => Promise<boolean>;

/**
 * Calls `look` at most once per path and event loop turn, for all callers. Each call costs a switch to
 * another thread, since a dead network mount must not block the loop. A result is never older than its
 * request.
 */
export function createPathExists(look: PathExists): PathExists {
  let asked = new Map<string, Promise<boolean>>();

  const ask = (path: string) =>
    new Promise<boolean>((resolve, reject) => {
      setImmediate(() => {
        // The first callback ends the turn, so later requests look again.
        asked = new Map();
        look(path).then(resolve, reject);
      });
    });

  return path => {
    let answer = asked.get(path);
    if (answer === undefined) {
      answer = ask(path);
      asked.set(path, answer);
    }
    return answer;
  };
}

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
