import { readFileSync } from 'node:fs';
import { trackedFiles } from './tracked.ts';

/** What a clone must not carry: where it was written, and whose package registry it was installed from. */
const LEAKS: readonly { readonly pattern: RegExp; readonly what: string }[] = [
  { pattern: /\bregistry\.[a-z0-9-]+\.(?:org|com)\b/, what: 'a registry host' },
  {
    pattern: /(?:^|[\s"'`=(:])\/(?:work|root|Users|home\/[a-z][a-z0-9_-]*)\/[a-z.]+\/[a-z]/,
    what: 'a path of one machine',
  },
];

/** A line that shows such a path on purpose has this word on it. */
const ALLOWED = /example/i;

/** Every line of a tracked file that carries one of the leaks; `''` when there is none. */
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
