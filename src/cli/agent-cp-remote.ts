import { basename } from 'node:path';
import type { Client } from './client.ts';
import { CliError } from './exit.ts';

/** The files of one sandbox. */
export interface Remote {
  readonly client: Client;
  /** `/api/agent/<id>/files` */
  readonly base: string;
}

export interface RemoteEntry {
  readonly name: string;
  readonly type: 'file' | 'directory' | 'symlink' | 'other';
  readonly mode: number;
}

/** The files of a directory of the sandbox. */
export async function listRemote({ client, base }: Remote, path: string): Promise<RemoteEntry[]> {
  const { files, truncated } = await client.json('GET', `${base}/list?${new URLSearchParams({ path })}`);
  if (truncated === true) throw new CliError(`There are too many files in ${path} to be copied: pack them first.`);
  return (files as { name: string; type: RemoteEntry['type']; mode: string }[]).map(({ name, type, mode }) => ({
    // Names come from the sandbox: one that could lead elsewhere here is none.
    name: checkName(name),
    type,
    mode: Number.parseInt(mode, 8) & 0o777,
  }));
}

export async function isRemoteDirectory(remote: Remote, path: string): Promise<boolean> {
  try {
    await listRemote(remote, path);
    return true;
  } catch (error) {
    if (error instanceof CliError && (error.status === 400 || error.status === 404)) return false;
    throw error;
  }
}

export function joinRemote(directory: string, name: string): string {
  return directory.endsWith('/') ? directory + name : `${directory}/${name}`;
}

function checkName(name: string): string {
  if (name === '' || name === '.' || name === '..' || /[/\0]/.test(name)) {
    throw new CliError(`The sandbox has a file with a name that cannot be used here: ${JSON.stringify(name)}.`);
  }
  return name;
}

/** The name of a copy of `source`; `''` for a path that means the content of a directory (`dir/.`). */
export function copyName(source: string): string {
  const name = basename(source);
  return name === '.' || name === '..' ? '' : name;
}
