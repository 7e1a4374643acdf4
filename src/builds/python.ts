import { stat } from 'node:fs/promises';
import { promisify } from 'node:util';
import type { MountSpec } from '../core/mount.ts';
import { execFile } from '../lib/child-process.ts';

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

/** An interpreter of this machine, as something in a sandbox needs it. */
export interface Python {
  /** `3.11.7` */
  readonly version: string;
  readonly path: string;
  /**
   * What a virtual environment is made with: itself, or that of which it is one. An environment may be where a sandbox sees something else (its
   * own `/tmp`), and another one that is made with it does not have what is in it anyway.
   */
  readonly basePath: string;
  /** Everything that belongs to it and is not seen anyway. */
  readonly mounts: readonly MountSpec[];
}

const asked = new Map<string, { readonly changedMs: number; readonly python: Python }>();

/** What it says of itself: once, as long as it is the same file. */
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
  return { version, path, basePath, mounts: isOfSystem ? [] : [{ source: prefix, target: prefix, readonly: true }] };
}

/**
 * A virtual environment, with everything that files ask for. `$1`: the interpreter, `$2`: the environment, `$3`: where the files are, `$4`: which
 * pip, `$5`: whether to check what is there afterwards, `$6`: uv, or nothing; the rest are options of whichever installs.
 */
export const VENV_SCRIPT = `set -e
python=$1 environment=$2 files=$3 version=$4 check=$5 uv=$6
shift 6
"$python" -m venv "$environment"
[ -z "$version" ] || "$environment/bin/python" -m pip install --disable-pip-version-check --no-cache-dir "pip$version"
if [ -f "$files/pyproject.toml" ]; then
  "$environment/bin/python" -I "$files/requirements_of.py" "$files" /tmp/requirements
  files=/tmp/requirements
  set -- "$@" -c "$files/constraints.txt"
fi
if [ -n "$uv" ]; then
  # Its cache is elsewhere, so nothing can be linked out of it; without this it warns.
  UV_LINK_MODE=copy "$uv" pip install --python "$environment/bin/python" --no-cache "$@" -r "$files/requirements.txt"
else
  "$environment/bin/python" -m pip install --disable-pip-version-check --no-cache-dir "$@" -r "$files/requirements.txt"
fi
[ "$check" = no ] || "$environment/bin/python" -m pip check --disable-pip-version-check`;
