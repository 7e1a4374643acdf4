import { stat } from 'node:fs/promises';
import { promisify } from 'node:util';
import type { MountSpec } from '../core/instance.ts';
import { execFile } from '../lib/child-process.ts';
import { realPathOf } from '../lib/path-lookup.ts';

const run = promisify(execFile);
const ASK_TIMEOUT_MS = 10_000;
const ASK = `
import os, sys
print(sys.base_prefix)
print("%d.%d.%d" % sys.version_info[:3])
base = os.path.join(sys.base_prefix, "bin", "python%d.%d" % sys.version_info[:2])
alone = sys.prefix == sys.base_prefix
print(sys.executable if alone else base if os.access(base, os.X_OK) else os.path.realpath(sys.executable))
`;

/** Interpreter of this machine, for use in a sandbox. */
export interface Python {
  /** Version such as `3.11.7`. */
  readonly version: string;
  readonly path: string;
  /**
   * Interpreter to make a virtual environment with: the base interpreter if this one is itself in an
   * environment. The path of an environment may be hidden in a sandbox (for example by its own `/tmp`).
   * Packages of the environment are not inherited anyway.
   */
  readonly basePath: string;
  /** Mounts of the interpreter's files that a sandbox does not show by default. */
  readonly mounts: readonly MountSpec[];
}

const asked = new Map<string, { readonly changedMs: number; readonly python: Python }>();

/** Returns the properties of an interpreter, which is run once until its file changes. */
export async function askPython(path: string): Promise<Python> {
  const { mtimeMs: changedMs } = await stat(path);
  const known = asked.get(path);
  if (known?.changedMs === changedMs) return known.python;
  const python = await ask(path);
  asked.set(path, { changedMs, python });
  return python;
}

async function ask(path: string): Promise<Python> {
  const { stdout } = await run(path, ['-I', '-c', ASK], { timeout: ASK_TIMEOUT_MS, cwd: '/' });
  const [prefix = '', version = '', basePath = ''] = stdout.trim().split('\n');
  const isOfSystem = prefix === '/usr' || prefix.startsWith('/usr/');
  const mounts = isOfSystem ? [] : [{ source: realPathOf(prefix), target: prefix, readonly: true }];
  return { version, path, basePath, mounts };
}

/**
 * Script that makes a virtual environment with the requested packages. Arguments:
 * - `$1`: the interpreter
 * - `$2`: the environment
 * - `$3`: the directory of the files
 * - `$4`: the version of pip, or empty
 * - `$5`: `no` skips the check of the result
 * - `$6`: the path of uv, or empty
 * - `$7`: the name of the requirements file
 * - the rest: options for pip or uv
 */
export const VENV_SCRIPT = `set -e
python=$1 environment=$2 files=$3 version=$4 check=$5 uv=$6 list=$7
shift 7
"$python" -m venv "$environment"
[ -z "$version" ] || "$environment/bin/python" -m pip install --disable-pip-version-check --no-cache-dir "pip$version"
if [ -f "$files/pyproject.toml" ]; then
  "$environment/bin/python" -I "$files/requirements_of.py" "$files" /tmp/requirements
  files=/tmp/requirements
  set -- "$@" -c "$files/constraints.txt"
fi
if [ -n "$uv" ]; then
  # Its cache is elsewhere, so nothing can be linked out of it; without this it warns.
  UV_LINK_MODE=copy "$uv" pip install --python "$environment/bin/python" --no-cache "$@" -r "$files/$list"
else
  "$environment/bin/python" -m pip install --disable-pip-version-check --no-cache-dir "$@" -r "$files/$list"
fi
[ "$check" = no ] || "$environment/bin/python" -m pip check --disable-pip-version-check`;
