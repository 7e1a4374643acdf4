import { randomBytes } from 'node:crypto';
import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/** In the data directory, which nobody but its owner may enter and which no sandbox sees or may mount. */
const FILE = 'local-token';
const TOKEN_BYTES = 32;

/** A new token of a service that takes no other, readable for its user only. It replaces that of an earlier start. */
export async function writeLocalToken(dataDir: string): Promise<string> {
  const token = randomBytes(TOKEN_BYTES).toString('base64url');
  const file = join(dataDir, FILE);
  await rm(`${file}.new`, { force: true });
  await writeFile(`${file}.new`, `${token}\n`, { mode: 0o600, flag: 'wx' });
  await rename(`${file}.new`, file);
  return token;
}

export async function removeLocalToken(dataDir: string): Promise<void> {
  await rm(join(dataDir, FILE), { force: true });
}

/** null where no service asks for one, or the directory is another user's. */
export async function readLocalToken(dataDir: string): Promise<string | null> {
  const text = await readFile(join(dataDir, FILE), 'utf8').catch(() => '');
  return text.trim() || null;
}
