import { readFile } from 'node:fs/promises';

/**
 * Returns the number of files that this process may open; null: unlimited or unknown. Node has raised its
 * soft limit to the hard limit.
 */
export async function openFilesLimit(): Promise<number | null> {
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const found = /^Max open files +(\d+|unlimited)/m.exec(limits)?.[1];
  return found === undefined || found === 'unlimited' ? null : Number(found);
}
