import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../../scripts/command.ts';

const NOTICES = 'THIRD-PARTY-NOTICES';
const LICENCE = 'LICENSE';
/** Line of section 1: name, version, licence, files with the terms. */
const PACKAGE = /^(\S+) (\d\S*) \| ([^|]+) \| (.+)$/gm;

export interface Terms {
  /** Directory of the package that contains `dist` and `node_modules`. */
  readonly library: string;
  /** Directory of the package's licence and notices; default: `library`. Debian has the licence elsewhere. */
  readonly documents?: string;
  readonly hasLicence?: boolean;
  /** True if the package contains Node.js. */
  readonly hasNode: boolean;
}

/** Returns a sentence for each licence that an unpacked package does not contain. */
export function missingTerms({ library, documents = library, hasLicence = true, hasNode }: Terms): readonly string[] {
  const missing = [...(hasLicence ? [LICENCE] : []), NOTICES].filter(name => !isSame(join(documents, name), name));
  const notices = readFileSync(join(ROOT, NOTICES), 'utf8');
  const stated = new Map<string, string>();
  for (const [, name = '', version = '', , files = ''] of notices.matchAll(PACKAGE)) {
    const directory = join(library, 'node_modules', name);
    stated.set(name, version);
    // npm leaves out type packages that only the types of another package need.
    if (!existsSync(directory)) continue;
    if (versionIn(directory) !== version) missing.push(`${name} is not of the version ${version} of the notices`);
    for (const file of files === 'no file' ? [] : files.split(', '))
      if (!existsSync(join(directory, file))) missing.push(`${name} has no ${file}`);
  }
  for (const name of packagesBelow(join(library, 'node_modules')))
    if (!stated.has(name)) missing.push(`${name} is not in the notices`);
  const node = join(library, 'LICENSE.node');
  if (hasNode && !(existsSync(node) && readFileSync(node, 'utf8').includes('Node.js'))) missing.push('LICENSE.node');
  return missing.map(what => `missing: ${what}`);
}

function isSame(file: string, name: string): boolean {
  return existsSync(file) && readFileSync(file).equals(readFileSync(join(ROOT, name)));
}

function versionIn(directory: string): string | null {
  const file = join(directory, 'package.json');
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version : null;
}

/**
 * Returns packages as the notices write them: `@scope/name`, and `name/node_modules/other` for a nested one.
 */
function packagesBelow(modules: string, prefix = ''): readonly string[] {
  if (!existsSync(modules)) return [];
  return readdirSync(modules)
    .flatMap(name => (name.startsWith('@') ? readdirSync(join(modules, name)).map(own => `${name}/${own}`) : [name]))
    .filter(name => !name.startsWith('.'))
    .flatMap(name => [
      `${prefix}${name}`,
      ...packagesBelow(join(modules, name, 'node_modules'), `${prefix}${name}/node_modules/`),
    ]);
}
