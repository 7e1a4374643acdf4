import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, run } from './command.ts';

/** What git tracks here and the work tree still has. Fails when this is not a clone. */
export async function trackedFiles(): Promise<readonly { readonly file: string; readonly path: string }[]> {
  // Continuous integration often runs as another user than the one who cloned.
  const { code, output } = await run('git', ['-c', 'safe.directory=*', 'ls-files', '-z'], { capture: true });
  if (code !== 0) throw new Error(`git ls-files failed: ${output}`);
  return output
    .split('\0')
    .filter(file => file !== '')
    .map(file => ({ file, path: join(ROOT, file) }))
    .filter(({ path }) => existsSync(path));
}
