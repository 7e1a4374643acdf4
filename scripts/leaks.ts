import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, run } from './command.ts';

/** What a clone must not carry: where it was written, and whose package registry it was installed from. */
const LEAKS: readonly { readonly pattern: RegExp; readonly what: string }[] = [
  { pattern: /\bregistry\.[a-z0-9-]+\.(?:org|com)\b/, what: 'a registry host' },
  {
    pattern: /(?:^|[\s"'`=(:])\/(?:work|root|Users|home\/[a-z][a-z0-9_-]*)\/[a-z.]+\/[a-z]/,
    what: 'a path of one machine',
  },
];

/** Text files that may show such a path as an example say so with this word on the line. */
const ALLOWED = /example/i;

/** Every line of a tracked file that carries one of the leaks; `''` when there is none. */
export async function findLeaks(): Promise<string> {
  const { code, output } = await run('git', ['-c', 'safe.directory=*', 'ls-files', '-z'], { capture: true });
  if (code !== 0) return `git ls-files failed: ${output}`;
  const found: string[] = [];
  for (const file of output.split('\0')) {
    if (file === '' || file === 'scripts/leaks.ts') continue;
    let text: string;
    try {
      text = readFileSync(join(ROOT, file), 'utf8');
    } catch {
      continue; // deleted in the work tree
    }
    text.split('\n').forEach((line, index) => {
      for (const leak of LEAKS) {
        if (leak.pattern.test(line) && !ALLOWED.test(line)) found.push(`${file}:${index + 1}: ${leak.what}`);
      }
    });
  }
  return found.join('\n');
}
