import { readFile } from 'node:fs/promises';

/** How many files this process may open (Node has raised its limit to what it may have); null: there is no limit, or it is not known. */
export async function openFilesLimit(): Promise<number | null> {
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const found = /^Max open files +(\d+|unlimited)/m.exec(limits)?.[1];
  return found === undefined || found === 'unlimited' ? null : Number(found);
}
