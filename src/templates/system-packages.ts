import { readFile } from 'node:fs/promises';

/** Database of Debian's packages on the host. */
const STATUS_FILE = '/var/lib/dpkg/status';
const PROGRAM = /^(?:\S*\/)?(?:apt|apt-get)$/;
const PACKAGE = /^[a-z0-9][a-z0-9+.-]+$/;
/** Commands of apt that install nothing. */
const HARMLESS = new Set(['update', 'clean', 'autoclean']);
/** Options without a value. An option with a value may choose another release. */
const OPTION = /^(-y|-q+|-yq+|-qqy|--yes|--quiet|--no-install-recommends|--fix-missing)$/;

/**
 * Returns the packages of a command that only installs packages with apt, such as
 * `apt-get update && apt-get install -y git`. Empty for every other command.
 */
export function systemPackagesOf(script: string): readonly string[] {
  const packages: string[] = [];
  for (const part of script.split(/&&|;|\n/)) {
    const command = part.trim().replace(/^(sudo\s+)?(\w+=\S*\s+)*/, '');
    if (command === '' || /^rm -rf \/var\/lib\/apt\/lists\/?\*?$/.test(command)) continue;
    const [program = '', ...words] = command.split(/\s+/);
    const [verb = '', ...names] = words.filter(word => !OPTION.test(word));
    if (!PROGRAM.test(program)) return [];
    if (HARMLESS.has(verb) && names.length === 0) continue;
    if (verb !== 'install' || !names.every(name => PACKAGE.test(name))) return [];
    packages.push(...names);
  }
  return packages;
}

/** Returns those of the packages that the host lacks; all of them if it has no packages of Debian. */
export async function missingOnHost(
  packages: readonly string[],
  statusFile: string = STATUS_FILE,
): Promise<readonly string[]> {
  const text = await readFile(statusFile, 'utf8').catch(() => '');
  const installed = new Set<string>();
  for (const entry of text.split('\n\n')) {
    if (!/^Status: \S+ ok installed$/m.test(entry)) continue;
    const [, name = ''] = /^Package: (.*)$/m.exec(entry) ?? [];
    const [, provided = ''] = /^Provides: (.*)$/m.exec(entry) ?? [];
    installed.add(name);
    for (const each of provided.split(',')) installed.add(each.trim().replace(/\s.*$/, ''));
  }
  return packages.filter(name => !installed.has(name));
}
