import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './command.ts';

export interface Lockfile {
  readonly packages: Readonly<Record<string, LockedPackage>>;
}

interface LockedPackage {
  readonly optionalDependencies?: Readonly<Record<string, string>>;
  readonly resolved?: string;
  readonly integrity?: string;
  readonly link?: boolean;
}

/** Returns the problems of package-lock.json, one sentence per line, or `''` if there are none. */
export function lockfileProblems(): string {
  return problemsOf(JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Lockfile).join('\n');
}

/**
 * Returns a sentence for each problem of a lockfile.
 * npm may leave out the binary package of another platform, and `npm ci` then fails everywhere. A lockfile
 * that names a registry forces this registry on every user. A package without `integrity` is installed
 * without a check of its content.
 */
export function problemsOf({ packages }: Lockfile): readonly string[] {
  const problems: string[] = [];
  for (const [path, locked] of Object.entries(packages)) {
    if (locked.resolved?.startsWith('http')) problems.push(`${path} names a registry (see .npmrc)`);
    if (path !== '' && locked.link !== true && locked.integrity === undefined) {
      problems.push(`${path} has no integrity: npm could install anything for it`);
    }
    for (const [name, version] of Object.entries(locked.optionalDependencies ?? {})) {
      if (packages[`${path}/node_modules/${name}`] === undefined && packages[`node_modules/${name}`] === undefined) {
        problems.push(`${path} may need ${name} ${version} on another platform, and the lockfile does not have it`);
      }
    }
  }
  return problems;
}
