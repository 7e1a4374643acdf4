import { randomBytes } from 'node:crypto';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** A file in the data directory, which only its owner may enter and no sandbox sees. */
const FILE = 'local-token';
const TOKEN_BYTES = 32;

/**
 * Creates the token of this start and writes it where only the service's user can read it. Replaces the token
 * of an earlier start.
 */
export async function writeLocalToken(dataDir: string): Promise<string> {
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  const file = join(dataDir, FILE);
  await rm(`${file}.new`, { force: true });
  await writeFile(`${file}.new`, `${token}\n`, { mode: 0o600, flag: 'wx' });
  await rename(`${file}.new`, file);
  return token;
}

/** Removes the token, so that the command line does not send it to a later service. */
export async function removeLocalToken(dataDir: string): Promise<void> {
  await rm(join(dataDir, FILE), { force: true });
}

/** Returns the token, or null when no service uses one or another user owns the directory. */
export async function readLocalToken(dataDir: string): Promise<string | null> {
  const text = await readFile(join(dataDir, FILE), 'utf8').catch(() => '');
  return text.trim() || null;
}
