import type { Kind } from './kind.ts';
import { oneOf } from './kind.ts';

/** What is installed for code from the files beside it: `auto`: what they ask for; `''`: nothing. */
export type DependencyMode = '' | 'auto';

/** `none` says what its absence means. */
export const dependencyMode: Kind<DependencyMode> = {
  describe: () => ({ enum: ['', 'none', 'auto'] }),
  read(value, path, problem) {
    const read = oneOf(['', 'none', 'auto']).read(value, path, problem);
    return read === undefined ? undefined : read === 'auto' ? 'auto' : '';
  },
};

export const DEPENDENCIES_DOC =
  '`auto`: what the files beside the code ask for (`requirements.txt`, `pyproject.toml`, `package.json` with its lock) is installed once, kept, and mounted. Empty or `none`: nothing.';

/** The tool that installs what code of this runtime needs; null: nothing is installed for it. */
export function installerOf(runtime: string): 'pip' | 'npm' | null {
  if (/^python3\.\d+$/.test(runtime)) return 'pip';
  return /^nodejs\d*$/.test(runtime) ? 'npm' : null;
}

/** Files beside the code that ask for something, for each tool. */
export const DEPENDENCY_FILES = {
  pip: ['requirements.txt', 'pyproject.toml', 'uv.lock', 'poetry.lock'],
  npm: ['package.json', 'package-lock.json', 'npm-shrinkwrap.json'],
} as const;
