import { readFile, stat } from 'node:fs/promises';
import { promisify } from 'node:util';
import { messageOf } from '../core/error.ts';
import { readSecretKeys, SECRET_KEY_RULE } from '../core/secret.ts';
import { execFile } from '../lib/child-process.ts';
import type { Values } from './settings.ts';

const SETTINGS = ['secrets.key', 'secrets.keyFile', 'secrets.keyCommand'] as const;
const COMMAND_MS = 30_000;
const MAX_OUTPUT_BYTES = 64 * 1024;

interface ReadKeys {
  /** Null: no setting names keys, or the settings have problems. */
  readonly keys: readonly Uint8Array[] | null;
  readonly problems: readonly string[];
}

/**
 * Reads the keys of secrets from the setting that names them. Problems contain neither keys nor the output of
 * a command.
 */
export async function readSecretKeySettings(values: Values): Promise<ReadKeys> {
  const given = SETTINGS.filter(path => values[path] !== null);
  const [name] = given;
  if (name === undefined) return { keys: null, problems: [] };
  if (given.length > 1) {
    return wrong(`${given.join(' and ')} are set: the keys of secrets come from one place, so set only one of them.`);
  }
  const value = values[name] as string;
  const text = await textOf(name, value);
  if ('problem' in text) return wrong(text.problem);
  const keys = readSecretKeys(text.value);
  return keys === null ? wrong(`${text.where} must hold ${SECRET_KEY_RULE}.`) : { keys, problems: [] };
}

async function textOf(
  name: (typeof SETTINGS)[number],
  value: string,
): Promise<{ readonly value: string; readonly where: string } | { readonly problem: string }> {
  if (name === 'secrets.key') return { value, where: name };
  if (name === 'secrets.keyFile') {
    const checked = await checkPrivate(name, value);
    if ('problem' in checked) return checked;
    const read = await readWhole(name, value);
    return 'problem' in read ? read : { value: read.value.toString('utf8'), where: `${name}: ${value}` };
  }
  try {
    const { stdout } = await promisify(execFile)('/bin/sh', ['-c', value], {
      timeout: COMMAND_MS,
      killSignal: 'SIGKILL',
      maxBuffer: MAX_OUTPUT_BYTES,
    });
    return { value: stdout, where: `${name}: what the command prints` };
  } catch (error) {
    const { code, signal } = error as { code?: unknown; signal?: unknown };
    return { problem: `${name}: the command failed (${signal ? `ended by ${signal}` : `exit code ${code}`}).` };
  }
}

function wrong(problem: string): ReadKeys {
  return { keys: null, problems: [problem] };
}

const MIN_SECRET_BYTES = 32;
const OTHERS_MAY = 0o077;

/** A value or a problem. A problem is a whole sentence that begins with the name of the setting. */
export type Result<T> = { readonly value: T } | { readonly problem: string };

/** Reads the shared secret in `file`, without a newline at its end. */
export async function readSecretFile(name: string, file: string): Promise<Result<Uint8Array>> {
  const read = await readWhole(name, file);
  if ('problem' in read) return read;
  const bytes = read.value;
  const newlineBytes = bytes.at(-1) !== 0x0a ? 0 : bytes.at(-2) === 0x0d ? 2 : 1;
  return checkSecret(`${name}: ${file}`, bytes.subarray(0, bytes.length - newlineBytes));
}

export function checkSecret(name: string, secret: Uint8Array): Result<Uint8Array> {
  if (secret.length >= MIN_SECRET_BYTES) return { value: secret };
  const hint = 'A good one: openssl rand -base64 48';
  return { problem: `${name} has ${secret.length} bytes, and a secret needs at least ${MIN_SECRET_BYTES}. ${hint}` };
}

/** Checks that only the owner can read and write a file. A missing file is a problem too. */
export async function checkPrivate(name: string, file: string): Promise<Result<null>> {
  try {
    const mode = (await stat(file)).mode & 0o777;
    if ((mode & OTHERS_MAY) === 0) return { value: null };
    return {
      problem: `${name}: ${file} has the mode 0${mode.toString(8)}, so others than its owner get at it: chmod 600 ${file}`,
    };
  } catch (error) {
    return { problem: `${name}: cannot read ${file} (${messageOf(error)}).` };
  }
}

export async function readWhole(name: string, file: string): Promise<Result<Buffer>> {
  try {
    return { value: await readFile(file) };
  } catch (error) {
    return { problem: `${name}: cannot read ${file} (${messageOf(error)}).` };
  }
}
