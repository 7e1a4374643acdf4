import type { SandboxSpec } from '../driver.ts';
import { INSIDE_ORDERS, INSIDE_SOCKET } from './directory.ts';

/** Where our runtime stands in a container; only the program that starts it learns its path. */
export const INSIDE_RUNTIME = '/opt/rookery/rookery_runtime';
const STARTER = `${INSIDE_RUNTIME}/image.py`;
/** Exit code of the starter for an interpreter of another version. */
export const EXIT_OTHER_PYTHON = 79;
/** When the program that it is to start is not there or cannot be executed. */
export const EXIT_NO_PROGRAM = 80;

/** Where images have their interpreters and libraries. */
const SYSTEM_PATH = /^\/*((usr|usr\/local)(\/(s?bin|lib\w*))?|s?bin|lib\w*|opt)\/*$/;

/** The orders of the starter. */
export interface PythonOrders {
  readonly secret: string;
  readonly socket: string;
  /** `3.11`; null: any will do. */
  readonly version: string | null;
  /** `python`: the user's code is. `http`, `program`: it is a program that serves HTTP, or perhaps does. */
  readonly mode: 'python' | 'http' | 'program';
  /** Of the program. */
  readonly argv: readonly string[];
  /** Variables that the daemon has added. */
  readonly unset: readonly string[];
}

/** How a command needs the image's Python: `must`, only the better for it (`may`), or not at all (`none`). */
export type PythonNeed =
  | { readonly need: 'must' | 'may'; readonly orders: PythonOrders }
  | { readonly need: 'none'; readonly orders: null };

export function pythonNeed({ command, secret, env }: SandboxSpec): PythonNeed {
  const unset = 'HOSTNAME' in env ? [] : ['HOSTNAME'];
  const base = { secret, socket: INSIDE_SOCKET, unset, version: null, argv: [] };
  switch (command.kind) {
    case 'python':
      return { need: 'must', orders: { ...base, version: command.version, mode: 'python' } };
    case 'http':
      return { need: 'must', orders: { ...base, mode: 'http', argv: command.argv } };
    case 'exec':
      // Without a program each call learns that there is none, which the Python runtime does.
      if (command.argv.length === 0) return { need: 'must', orders: { ...base, mode: 'python' } };
      if (command.orServesHttp === true) {
        return { need: 'may', orders: { ...base, mode: 'program', argv: command.argv } };
      }
      return { need: 'none', orders: null };
    case 'image':
      return { need: 'none', orders: null };
  }
}

/** Names under which the interpreter of a version may be in an image, the likeliest first. */
export function interpreterNames(version: string | null): readonly string[] {
  return version === null ? ['python3', 'python'] : [`python${version}`, 'python3', 'python'];
}

export function interpreterArgv(interpreter: string): readonly string[] {
  return [interpreter, STARTER, INSIDE_ORDERS];
}

/** Why an image without a fitting Python cannot run a command. */
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
