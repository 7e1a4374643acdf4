import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import type { Log } from '../lib/log.ts';
import { isAbsent } from '../lib/system-errors.ts';

/**
 * Ends of the logs of earlier sandboxes, for the last few of each agent. The logs are kept until the agent is
 * deleted.
 */
export class PreviousLogs {
  readonly #directory: string;
  readonly #log: Log;

  constructor(directory: string, log: Log) {
    this.#directory = directory;
    this.#log = log;
  }

  /**
   * Stores the end of the log of a sandbox that is about to be removed. `open` returns that log. Never
   * rejects, because a missing log must not prevent a restart.
   */
  async store(id: string, open: () => Promise<AsyncIterable<Buffer>>): Promise<void> {
    try {
      const text = await lastOf(await open());
      const own = join(this.#directory, id);
      await mkdir(own, { recursive: true, mode: 0o700 });
      await writeFile(join(own, 'new'), text, { mode: 0o600 });
      for (let run = LIMITS.previousLogs.runs - 1; run >= 1; run--) {
        await rename(join(own, String(run)), join(own, String(run + 1))).catch(orAbsent);
      }
      await rename(join(own, 'new'), join(own, '1'));
    } catch (error) {
      this.#log.warn({ instanceId: id, reason: messageOf(error) }, 'cannot keep log of previous run');
    }
  }

  /**
   * Returns the log of an earlier run: 1 is the run before the current one. null: it is not kept. `tail`
   * null: the whole kept part.
   */
  async read(id: string, run: number, tail: number | null): Promise<string | null> {
    let text: string;
    try {
      text = await readFile(join(this.#directory, id, String(run)), 'utf8');
    } catch (error) {
      orAbsent(error);
      return null;
    }
    if (tail === null) return text;
    const lines = text.split('\n');
    // The text after a final newline is not a line.
    const end = lines.at(-1) === '' ? 1 : 0;
    return lines.slice(Math.max(0, lines.length - end - tail)).join('\n');
  }

  /** Removes the logs of a deleted agent. Never rejects. */
  async remove(id: string): Promise<void> {
    await rm(join(this.#directory, id), { recursive: true, force: true }).catch((error: unknown) => {
      this.#log.warn({ instanceId: id, reason: messageOf(error) }, 'cannot remove logs of deleted agent');
    });
  }

  /**
   * Removes the logs of unknown agents, whose delete was interrupted. `known` returns which of these ids
   * belong to agents.
   */
  async sweep(known: (ids: readonly string[]) => Promise<ReadonlySet<string>>): Promise<void> {
    const names = await readdir(this.#directory).catch((error: unknown) => {
      orAbsent(error);
      return [];
    });
    const agents = await known(names);
    for (const name of names) if (!agents.has(name)) await this.remove(name);
  }
}

async function lastOf(chunks: AsyncIterable<Buffer>): Promise<Buffer> {
  const kept: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    kept.push(Buffer.from(chunk));
    bytes += chunk.length;
    while (kept[0] !== undefined && bytes - kept[0].length >= LIMITS.previousLogs.bytes) {
      bytes -= kept.shift()?.length ?? 0;
    }
  }
  return Buffer.concat(kept);
}

function orAbsent(error: unknown): void {
  if (!isAbsent(error)) throw error;
}

/** Yields a kept log, as drivers yield the log of a sandbox. */
export async function* logOf(text: string): AsyncGenerator<Buffer> {
  if (text !== '') yield Buffer.from(text);
}
