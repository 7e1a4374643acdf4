/** Makes THIRD-PARTY-NOTICES: the works of others in the packages, and their licences. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './command.ts';

/** Pattern for the names of files with licence terms. Every package keeps these files. */
export const LICENCE_FILE = /^(licen[cs]es?|copying|copyright|notices?|unlicense|patents)\b/i;

interface Locked {
  readonly version?: string;
  readonly license?: string;
  readonly dev?: boolean;
  readonly devOptional?: boolean;
  readonly optional?: boolean;
  readonly dependencies?: Readonly<Record<string, string>>;
}

type Packages = Readonly<Record<string, Locked>>;

interface PackageManifest {
  readonly license?: string;
  /** Licences in an older form of `license`. */
  readonly licenses?: readonly { readonly type: string }[];
}

const RULE = '-'.repeat(80);

/** Returns the notices. Reads only files: the lockfile and the packages that npm has installed from it. */
export function thirdPartyNotices(): string {
  const packages = lockedPackages();
  return [
    'THIRD-PARTY NOTICES',
    '',
    'Rookery is under the Apache License 2.0 (the file LICENSE, or /usr/share/common-licenses/Apache-2.0 on Debian).',
    'Its packages contain the works of others below. `npm run generate` makes this file from package-lock.json.',
    '',
    heading('1. Packages in node_modules, also compiled into dist/*.js'),
    'Each line: name, version, licence (SPDX), files with its terms. The files are in the directory of the package.',
    'Where no file is named, the author states the licence in package.json only, and README.md is kept where it has the terms.',
    '',
    ...shippedPackages(packages).map(path => packageLine(path, packages)),
    '',
    heading('2. Compiled into the dashboard (dist/dashboard)'),
    ...dashboardPackages(packages).flatMap(path => fullText(path, packages)),
    heading('3. Linked into the programs runtimes/python/rookery_zygote/init-*'),
    ...['musl', 'zig'].flatMap(name => [`${NATIVE[name]}`, '', readText(join('scripts/notices', `${name}.txt`)), '']),
    heading('4. Node.js'),
    'The Debian package and the image contain Node.js. Its terms, and those of its parts, are in the file LICENSE.node',
    'beside package.json.',
    '',
  ].join('\n');
}

const NATIVE: Readonly<Record<string, string>> = {
  musl: 'musl libc (MIT)',
  zig: 'The compiler runtime of Zig (MIT)',
};

/** Returns the packages of package-lock.json by path. */
export function lockedPackages(): Packages {
  return (JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as { packages: Packages }).packages;
}

/**
 * Returns the paths of the dependencies that a package of Rookery contains.
 * Types are left out, because they are not used at run time. Optional dependencies are left out too: their
 * installation compiles them, so they exist on some machines only.
 */
export function shippedPackages(packages: Packages): readonly string[] {
  return Object.entries(packages)
    .filter(([path, { dev, devOptional, optional }]) => path !== '' && !dev && !devOptional && !optional)
    .filter(([path]) => !path.includes('/@types/') && !path.startsWith('node_modules/@types/'))
    .map(([path]) => path)
    .sort();
}

/** Returns the paths of the packages that the dashboard imports, and of their dependencies. */
function dashboardPackages(packages: Packages): readonly string[] {
  const found = new Set<string>();
  const add = (name: string): void => {
    const path = `node_modules/${name}`;
    const locked = packages[path];
    if (locked === undefined || found.has(path)) return;
    found.add(path);
    for (const dependency of Object.keys(locked.dependencies ?? {})) add(dependency);
  };
  const directory = join(ROOT, 'dashboard/src');
  for (const file of readdirSync(directory, { recursive: true, encoding: 'utf8' })) {
    if (!/\.tsx?$/.test(file) || file.includes('.test.')) continue;
    const source = readFileSync(join(directory, file), 'utf8');
    for (const [, name] of source.matchAll(/(?:from|import) '((?:@[^/']+\/)?[^./'][^/']*)/g)) {
      if (name !== undefined && !name.startsWith('node:')) add(name);
    }
  }
  return [...found].sort();
}

/** Returns the names of a package's files with licence terms, relative to the package. */
function licenceFiles(path: string): readonly string[] {
  const directory = join(ROOT, path);
  if (!existsSync(directory)) return [];
  return readdirSync(directory)
    .filter(name => LICENCE_FILE.test(name))
    .sort();
}

function packageLine(path: string, packages: Packages): string {
  const files = licenceFiles(path);
  const name = path.replace(/^node_modules\//, '');
  return `${name} ${packages[path]?.version} | ${licenceOf(path, packages)} | ${files.join(', ') || 'no file'}`;
}

function licenceOf(path: string, packages: Packages): string {
  const locked = packages[path]?.license;
  if (locked !== undefined) return locked;
  const { license, licenses = [] } = JSON.parse(readText(join(path, 'package.json'))) as PackageManifest;
  const named = license ?? licenses.map(({ type }) => type).join(' OR ');
  if (named === '') throw new Error(`${path} states no licence`);
  return named;
}

function fullText(path: string, packages: Packages): readonly string[] {
  const files = licenceFiles(path);
  if (files.length === 0) throw new Error(`${path} is compiled into the dashboard and has no licence file`);
  const title = `${path.replace('node_modules/', '')} ${packages[path]?.version} (${licenceOf(path, packages)})`;
  return [title, '', ...files.map(file => readText(join(path, file))), ''];
}

function heading(text: string): string {
  return `${RULE}\n${text}\n${RULE}\n`;
}

function readText(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8').replace(/\r/g, '').trimEnd();
}
