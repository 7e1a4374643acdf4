import { constants } from 'node:fs';
import { chmod, type FileHandle, open, readdir, realpath, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { failedPrecondition, messageOf } from '../core/error.ts';
import { isAbsent } from '../lib/system-errors.ts';
import { DATABASE, LOCK, NODE_ID, RUNNING, SECRETS_KEY } from './data-dir-facts.ts';

const OWN_FILES: readonly string[] = [DATABASE, LOCK, NODE_ID, RUNNING, SECRETS_KEY];
const OTHERS_WRITE = 0o002;
const STICKY = 0o1000;

/**
 * Removes the rights of group and others, since the database has environments of instances in clear text.
 * Returns notices for the operator, one sentence each. Fails with `failed_precondition` when the directory
 * belongs to another user, or others could change or replace it.
 */
export async function closeToOthers(path: string): Promise<string[]> {
  const notices: string[] = [];
  const place = await realpath(path);
  const [found, above] = await Promise.all([stat(place), stat(dirname(place))]);
  const own = process.geteuid?.() ?? found.uid;
  if (found.uid !== own) {
    throw failedPrecondition(
      `the data directory ${path} belongs to uid ${found.uid} and this service runs as uid ${own}: give it to this user (chown), or choose another with --data-dir`,
    );
  }
  if ((above.mode & OTHERS_WRITE) !== 0 && (above.mode & STICKY) === 0) {
    throw failedPrecondition(
      `the data directory ${path} is in ${dirname(place)}, in which every user may replace it: remove that right (chmod o-w), or choose another directory with --data-dir`,
    );
  }
  const names = await readdir(place);
  const mode = (found.mode & 0o7777).toString(8);
  if ((found.mode & 0o077) !== 0) {
    if (!names.every(name => name === 'lost+found') && !OWN_FILES.some(name => names.includes(name))) {
      throw failedPrecondition(
        `the data directory ${path} is open to other users (mode ${mode}) and holds what is not this service's: choose an empty one with --data-dir, or close it (chmod 700)`,
      );
    }
    await chmod(place, 0o700);
    notices.push(`the data directory ${path} was open to other users (mode ${mode}): it is closed to them now`);
  }
  // The lock is created here, so that only its owner can read it from the start.
  await makeOwnFile(join(place, LOCK));
  for (const name of names) {
    const isOwn = OWN_FILES.includes(name) || name.startsWith(`${DATABASE}-`);
    if (isOwn) await closeFile(join(place, name), 0);
  }
  return notices;
}

/** Creates a file with mode 600, or sets the mode of an existing one. Never follows a link. */
export async function makeOwnFile(path: string): Promise<void> {
  await closeFile(path, constants.O_CREAT);
}

async function closeFile(path: string, create: number): Promise<void> {
  let file: FileHandle;
  try {
    file = await open(path, constants.O_RDWR | constants.O_NOFOLLOW | constants.O_NONBLOCK | create, 0o600);
  } catch (error) {
    if (isAbsent(error)) return;
    throw failedPrecondition(`the file ${path} cannot be used: ${messageOf(error)}`, { cause: error });
  }
  try {
    await file.chmod(0o600);
  } finally {
    await file.close();
  }
}
