/**
 * Removes files of old builds from dist/. A file's name contains a hash, so the name does not tell its build.
 */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, sep } from 'node:path';

/** File in dist/ with the names of all files that the last build wrote from src/. */
const LIST = 'built.json';

/**
 * Removes the files in `dist` that neither this build nor the one before it wrote. Call it after a build that
 * wrote `written`.
 * A running server still imports files of the build before, so `dist` is not emptied.
 */
export function keepTwoBuilds(dist: string, written: readonly string[]): void {
  const list = join(dist, LIST);
  removeOthers(dist, [...written, ...(existsSync(list) ? listed(list) : [])]);
  writeFileSync(list, `${JSON.stringify(written)}\n`);
}

/** Removes the files of all builds except the last one, from a copy of dist/ for a package. */
export function keepLastBuild(dist: string): void {
  const list = join(dist, LIST);
  removeOthers(dist, listed(list));
  rmSync(list);
}

function removeOthers(dist: string, names: readonly string[]): void {
  const kept = new Set(names);
  for (const file of readdirSync(dist, { recursive: true, encoding: 'utf8' })) {
    if (file.endsWith('.js') && !file.startsWith(`dashboard${sep}`) && !kept.has(file)) rmSync(join(dist, file));
  }
}

function listed(list: string): readonly string[] {
  return JSON.parse(readFileSync(list, 'utf8')) as readonly string[];
}
