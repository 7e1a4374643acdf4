/** Which files of dist/ are of which build. Their names tell nothing: a part of the program has another one as soon as it changes. */
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, sep } from 'node:path';

/** In dist/: the names of what the last build wrote of src/. */
const LIST = 'built.json';

/**
 * After a build that wrote these: removes what neither it nor the one before it wrote. `dist` is not emptied instead: a server that runs from
 * it imports some of its files late.
 */
export function keepTwoBuilds(dist: string, written: readonly string[]): void {
  const list = join(dist, LIST);
  removeOthers(dist, [...written, ...(existsSync(list) ? listed(list) : [])]);
  writeFileSync(list, `${JSON.stringify(written)}\n`);
}

/** For a copy that is passed on: it has the last build alone. */
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
