import type { Kind } from './kind.ts';
import { oneOf } from './kind.ts';

/**
 * Selects the dependencies that are installed. `auto`: those that the files beside the code declare; `''`:
 * none.
 */
export type DependencyMode = '' | 'auto';

/** Reads `none` as `''`, the value of an absent field. */
export const dependencyMode: Kind<DependencyMode> = {
  describe: () => ({ enum: ['', 'none', 'auto'] }),
  read(value, path, problem) {
    const read = oneOf(['', 'none', 'auto']).read(value, path, problem);
    return read === undefined ? undefined : read === 'auto' ? 'auto' : '';
  },
};

export const DEPENDENCIES_DOC =
  '`auto`: what the files beside the code ask for (`requirements.txt`, `pyproject.toml`, `package.json` with its lock) is installed once, kept, and mounted. Empty or `none`: nothing.';

/** Returns the tool that installs dependencies for this runtime, or null if none exists. */
export function installerOf(runtime: string): 'pip' | 'npm' | null {
  if (/^python3\.\d+$/.test(runtime)) return 'pip';
  return /^nodejs\d*$/.test(runtime) ? 'npm' : null;
}

/** Files beside the code that declare dependencies, by tool. */
export const DEPENDENCY_FILES = {
  pip: ['requirements.txt', 'pyproject.toml', 'uv.lock', 'poetry.lock'],
  npm: ['package.json', 'package-lock.json', 'npm-shrinkwrap.json'],
} as const;
