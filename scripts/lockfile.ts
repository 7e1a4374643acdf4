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
    if (path !== '' && locked.link !== true && locked.integrity === undefined && !mayLackIntegrity(path, locked)) {
      problems.push(`${path} has no integrity: npm could install anything for it`);
    }
    if (locked.integrity !== undefined && WITHOUT_INTEGRITY.has(path)) {
      problems.push(`${path} has its integrity now: take it from the list of those that may lack it`);
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
 * Binaries of development tools for platforms that continuous integration does not run on, of which the registry that the lockfile was written
 * with had none, so that npm had no integrity to write. A name goes from this list when a registry has it; none of these is part of what users install.
 */
const WITHOUT_INTEGRITY: ReadonlySet<string> = new Set([
  ...['android-arm64', 'android-x64', 'darwin-arm64', 'darwin-x64', 'linux-arm64-musl', 'linux-x64-musl'].map(biome),
  ...['win32-arm64', 'win32-x64'].map(biome),
  ...['android-arm-eabi', 'android-arm64', 'darwin-arm64', 'darwin-x64', 'freebsd-x64'].map(oxcParser),
  ...['linux-arm-gnueabihf', 'linux-arm-musleabihf', 'linux-ppc64-gnu', 'linux-riscv64-gnu'].map(oxcParser),
  ...['linux-riscv64-musl', 'linux-s390x-gnu', 'openharmony-arm64'].map(oxcParser),
  ...['win32-arm64-msvc', 'win32-ia32-msvc', 'win32-x64-msvc'].map(oxcParser),
]);

function biome(platform: string): string {
  return `node_modules/@biomejs/cli-${platform}`;
}

function oxcParser(platform: string): string {
  return `node_modules/@oxc-parser/binding-${platform}`;
}

/** Only as the optional part of a tool: npm installs none of them elsewhere. */
function mayLackIntegrity(path: string, { dev, optional }: LockedPackage): boolean {
  return WITHOUT_INTEGRITY.has(path) && dev === true && optional === true;
}
