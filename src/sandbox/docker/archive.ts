import type { Readable } from 'node:stream';
import { type Engine, statusOf } from './engine.ts';

/** File or directory at a path in a container, with links followed. The container need not run. */
export interface InsideStat {
  readonly isDirectory: boolean;
  readonly isFile: boolean;
  /** Permission bits only. */
  readonly mode: number;
}

/** Bits in the daemon's file modes that describe the type of a file, as Go's `os.FileMode` defines them. */
const TYPE_BITS = 0x8f28_0000;
const DIRECTORY_BIT = 0x8000_0000;
const LINK_BIT = 0x0800_0000;
const MOST_LINKS = 8;
const BLOCK_BYTES = 512;
const STAT_HEADER = 'x-docker-container-path-stat';

/** Returns the status of a path in a container, or null when the path does not exist. */
export async function statInside(engine: Engine, container: string, path: string): Promise<InsideStat | null> {
  let at = path;
  for (let links = 0; links < MOST_LINKS; links++) {
    const asked = at;
    let headers: Record<string, string | undefined>;
    try {
      const answer = (await engine.request('look at a file of a container', docker =>
        docker.getContainer(container).infoArchive({ path: asked }),
      )) as { headers: Record<string, string | undefined>; destroy?(): void };
      headers = answer.headers;
      answer.destroy?.();
    } catch (error) {
      const status = statusOf(error);
      if (status === 404 || status === 400) return null;
      throw error;
    }
    const text = Buffer.from(headers[STAT_HEADER] ?? '', 'base64').toString();
    const { mode, linkTarget } = JSON.parse(text) as { mode: number; linkTarget: string };
    if ((mode & LINK_BIT) === 0) {
      const type = (mode & TYPE_BITS) >>> 0;
      return { isDirectory: type === DIRECTORY_BIT, isFile: type === 0, mode: mode & 0o777 };
    }
    at = linkTarget;
  }
  return null;
}

/** Returns true when a directory in a container has at least one entry. */
export async function hasEntries(engine: Engine, container: string, directory: string): Promise<boolean> {
  const archive = (await engine.request('look at a directory of a container', docker =>
    docker.getContainer(container).getArchive({ path: `${directory.replace(/\/+$/, '')}/.` }),
  )) as Readable;
  let bytes = Buffer.alloc(0);
  try {
    for await (const chunk of archive) {
      bytes = Buffer.concat([bytes, chunk as Buffer]);
      // The directory itself is the first entry. An archive ends with blocks of zeros.
      if (bytes.length >= 2 * BLOCK_BYTES) return bytes[BLOCK_BYTES] !== 0;
    }
    return false;
  } finally {
    archive.destroy();
  }
}
