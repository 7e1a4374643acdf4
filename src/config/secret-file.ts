import { readFile, stat } from 'node:fs/promises';
import { messageOf } from '../core/error.ts';

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
