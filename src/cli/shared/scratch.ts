import { randomUUID } from 'node:crypto';
import { mkdirSync, rmSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CliError } from './exit.ts';

const ENDING = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
const paths = new Set<string>();

/** Creates a temporary directory for `work` and removes it afterwards. */
export async function withScratch<T>(name: string, work: (directory: string) => Promise<T>): Promise<T> {
  const directory = join(tmpdir(), `rookery-${name}-${randomUUID()}`);
  return await notLeft(directory, async () => {
    try {
      mkdirSync(directory, { mode: 0o700 });
    } catch (error) {
      const why = (error as Error).message;
      throw new CliError(`There is no temporary directory to be had (${why}): set TMPDIR to one.`);
    }
    return await work(directory).finally(() => rm(directory, { recursive: true, force: true }));
  });
}

/** Removes `path` if a signal such as Ctrl-C ends the command while `work` runs. */
export async function notLeft<T>(path: string, work: () => Promise<T>): Promise<T> {
  if (paths.size === 0) for (const signal of ENDING) process.on(signal, end);
  paths.add(path);
  try {
    return await work();
  } finally {
    paths.delete(path);
    if (paths.size === 0) stopListening();
  }
}

function end(signal: NodeJS.Signals): void {
  for (const path of paths) rmSync(path, { recursive: true, force: true });
  stopListening();
  // Ends the process with the signal's default effect.
  process.kill(process.pid, signal);
}

function stopListening(): void {
  for (const signal of ENDING) process.off(signal, end);
}
