import type { SandboxSpec } from '../driver.ts';
import { INSIDE_ORDERS, INSIDE_SOCKET } from './sandbox-directory.ts';

/** Path of the Python runtime in a container. Only the program that starts it learns this path. */
export const INSIDE_RUNTIME = '/opt/rookery/rookery_runtime';
const STARTER = `${INSIDE_RUNTIME}/image.py`;
/** Exit code of the starter for an interpreter of another version. */
export const EXIT_OTHER_PYTHON = 79;
/** Exit code of the starter when its program is missing or cannot be executed. */
export const EXIT_NO_PROGRAM = 80;

/** Directories in which images have their interpreters and libraries. */
const SYSTEM_PATH = /^\/*((usr|usr\/local)(\/(s?bin|lib\w*))?|s?bin|lib\w*|opt)\/*$/;

/** Instructions for the starter. */
export interface PythonOrders {
  readonly secret: string;
  readonly socket: string;
  /** Version such as `3.11`; null accepts any. */
  readonly version: string | null;
  /**
   * `python`: the starter runs the user's Python code. `http`: it runs a program that serves HTTP. `program`:
   * it runs a program that may serve HTTP.
   */
  readonly mode: 'python' | 'http' | 'program';
  /** Command line of the program. */
  readonly argv: readonly string[];
  /** Variables that the daemon has added and the starter removes. */
  readonly unset: readonly string[];
}

/** Need of a command for the image's Python: required (`must`), optional (`may`), or absent (`none`). */
export type PythonNeed =
  | { readonly need: 'must' | 'may'; readonly orders: PythonOrders }
  | { readonly need: 'none'; readonly orders: null };

export const NO_PYTHON: PythonNeed = { need: 'none', orders: null };

export function pythonNeed({ command, secret, env }: SandboxSpec): PythonNeed {
  const unset = 'HOSTNAME' in env ? [] : ['HOSTNAME'];
  const base = { secret, socket: INSIDE_SOCKET, unset, version: null, argv: [] };
  switch (command.kind) {
    case 'python':
      return { need: 'must', orders: { ...base, version: command.version, mode: 'python' } };
    case 'http':
      return { need: 'must', orders: { ...base, mode: 'http', argv: command.argv } };
    case 'exec':
      // The Python runtime answers each call with the error that there is no program.
      if (command.argv.length === 0) return { need: 'must', orders: { ...base, mode: 'python' } };
      if (command.orServesHttp === true) {
        return { need: 'may', orders: { ...base, mode: 'program', argv: command.argv } };
      }
      return NO_PYTHON;
    case 'image':
      return NO_PYTHON;
  }
}

/** Returns names that the interpreter of a version may have in an image, the likeliest first. */
export function interpreterNames(version: string | null): readonly string[] {
  return version === null ? ['python3', 'python'] : [`python${version}`, 'python3', 'python'];
}

export function interpreterArgv(interpreter: string): readonly string[] {
  return [interpreter, STARTER, INSIDE_ORDERS];
}

/** Returns the reason why an image without a fitting Python cannot run a command. */
export function missingPython(
  { command, rootfs, mounts }: Pick<SandboxSpec, 'command' | 'rootfs' | 'mounts'>,
  looked: readonly string[],
): string {
  const hiding = mounts.map(({ target }) => target).filter(target => SYSTEM_PATH.test(target));
  const tried =
    looked.join('; ') + (hiding.length === 0 ? '' : `; a mount hides what the image has at ${hiding.join(', ')}`);
  const image = rootfs.imageUrl;
  if (command.kind === 'python') {
    const runtime = `python${command.version}`;
    return `invalid function: runtime ${runtime} is not available: image ${image} has no Python ${command.version} (${tried})`;
  }
  const what = command.kind === 'http' ? 'what speaks HTTP to its server' : 'what answers calls without a handler';
  return `invalid function: image ${image} has no Python 3, which ${what} needs (${tried})`;
}
