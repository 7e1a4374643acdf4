import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT, run } from './command.ts';

/** Returns the files that git tracks and that exist in the work tree. Throws if this is not a git clone. */
export async function trackedFiles(): Promise<readonly { readonly file: string; readonly path: string }[]> {
  // Continuous integration often runs as another user than the owner of the clone.
  const { code, output } = await run('git', ['-c', 'safe.directory=*', 'ls-files', '-z'], { capture: true });
  if (code !== 0) throw new Error(`git ls-files failed: ${output}`);
  return output
    .split('\0')
    .filter(file => file !== '')
    .map(file => ({ file, path: join(ROOT, file) }))
    .filter(({ path }) => existsSync(path));
}
