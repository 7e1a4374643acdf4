import { randomBytes } from 'node:crypto';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** In the data directory: only its owner may enter it, and no sandbox sees it. */
const FILE = 'local-token';
const TOKEN_BYTES = 32;

/** Makes the token of this start and writes it where only the service's user can read it. Replaces that of an earlier start. */
export async function writeLocalToken(dataDir: string): Promise<string> {
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  const file = join(dataDir, FILE);
  await rm(`${file}.new`, { force: true });
  await writeFile(`${file}.new`, `${token}\n`, { mode: 0o600, flag: 'wx' });
  await rename(`${file}.new`, file);
  return token;
}

/** So that the command line does not send it to a later service. */
export async function removeLocalToken(dataDir: string): Promise<void> {
  await rm(join(dataDir, FILE), { force: true });
}

/** Null when no service asks for one, and when the directory is another user's. */
export async function readLocalToken(dataDir: string): Promise<string | null> {
  const text = await readFile(join(dataDir, FILE), 'utf8').catch(() => '');
  return text.trim() || null;
}
