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
  readonly dev?: boolean;
  readonly optional?: boolean;
  readonly os?: readonly string[];
  readonly cpu?: readonly string[];
  readonly libc?: readonly string[];
}

/** What is wrong with package-lock.json, a sentence per line; `''` when nothing is. */
export function lockfileProblems(): string {
  return problemsOf(JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Lockfile).join('\n');
}

/**
 * npm leaves a platform's binary package out when it could not see it as it wrote the lockfile, and `npm ci` then fails everywhere. A lockfile
 * that names a registry forces that one on everybody. And what has no `integrity` is installed as whoever answers sends it.
 */
export function problemsOf({ packages }: Lockfile): readonly string[] {
  const problems: string[] = [];
  for (const [path, locked] of Object.entries(packages)) {
    if (locked.resolved?.startsWith('http')) problems.push(`${path} names a registry (see .npmrc)`);
    if (path !== '' && locked.link !== true && locked.integrity === undefined && !isToolOfElsewhere(locked)) {
      problems.push(`${path} has no integrity: what is installed could be anything`);
    }
    for (const [name, version] of Object.entries(locked.optionalDependencies ?? {})) {
      if (packages[`${path}/node_modules/${name}`] === undefined && packages[`node_modules/${name}`] === undefined) {
        problems.push(`${path} may need ${name} ${version} on another platform, and the lockfile does not have it`);
      }
    }
  }
  return problems;
}

/**
 * The binary of a development tool for a platform that continuous integration does not run on. npm takes its integrity from the registry that
 * the lockfile is written with, which may not have all of them; none of these is part of what users install.
 */
function isToolOfElsewhere({ dev, optional, os = [], cpu = [], libc = ['glibc'] }: LockedPackage): boolean {
  if (dev !== true || optional !== true || os.length + cpu.length === 0) return false;
  return !(os.includes('linux') && cpu.includes('x64') && libc.includes('glibc'));
}
