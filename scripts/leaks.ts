import { readFileSync } from 'node:fs';
import { trackedFiles } from './tracked.ts';

/**
 * Patterns that no tracked file may contain: paths of the author's machine, and hosts of package registries.
 */
const LEAKS: readonly { readonly pattern: RegExp; readonly what: string }[] = [
  { pattern: /\bregistry\.[a-z0-9-]+\.(?:org|com)\b/, what: 'a registry host' },
  {
    // `/home/user` is the home directory inside of sandboxes.
    pattern: /(?:^|[\s"'`=(:])\/(?:work|root|Users|home\/(?!user\/)[a-z][a-z0-9_-]*)\/[a-z.]+\/[a-z]/,
    what: 'a path of one machine',
  },
];

/** Word on a line that shows such a path on purpose. */
const ALLOWED = /example/i;

/** Returns one line for each match in a tracked file, or `''` if there is none. */
export async function findLeaks(): Promise<string> {
  const found: string[] = [];
  for (const { file, path } of await trackedFiles()) {
    if (file === 'scripts/leaks.ts') continue;
    readFileSync(path, 'utf8')
      .split('\n')
      .forEach((line, index) => {
        for (const leak of LEAKS) {
          if (leak.pattern.test(line) && !ALLOWED.test(line)) found.push(`${file}:${index + 1}: ${leak.what}`);
        }
      });
  }
  return found.join('\n');
}
