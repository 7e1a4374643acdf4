import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './command.ts';

interface Lockfile {
  readonly packages: Readonly<
    Record<string, { readonly optionalDependencies?: Readonly<Record<string, string>>; readonly resolved?: string }>
  >;
}

/**
 * What is wrong with package-lock.json, a sentence per line; `''` when nothing is. npm leaves a platform's binary package out
 * when it could not see it as it wrote the lockfile, and `npm ci` then fails everywhere. And a lockfile that names a registry forces
 * that one on everybody.
 */
export function lockfileProblems(): string {
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Lockfile;
  const problems: string[] = [];
  for (const [path, { optionalDependencies, resolved }] of Object.entries(packages)) {
    if (resolved?.startsWith('http')) problems.push(`${path} names a registry (see .npmrc)`);
    for (const [name, version] of Object.entries(optionalDependencies ?? {})) {
      if (packages[`${path}/node_modules/${name}`] === undefined && packages[`node_modules/${name}`] === undefined) {
        problems.push(`${path} may need ${name} ${version} on another platform, and the lockfile does not have it`);
      }
    }
  }
  return problems.join('\n');
}
