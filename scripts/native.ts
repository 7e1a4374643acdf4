/** Builds and checks the native parts of sandboxes (`runtimes/native`). */
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { machine, tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT, run } from './command.ts';

const NATIVE = join(ROOT, 'runtimes/native');
const BUILD = join(NATIVE, 'build.sh');
const BIN = join(ROOT, 'runtimes/python/rookery_zygote/bin');
/** Machines whose binaries are in the repository. */
const MACHINES = ['x86_64', 'aarch64'];
const SOURCES = ['src', 'fork'];
/** Source that both parts share: the program is a sandbox's first process, and the library forks it. */
const SHARED = join(NATIVE, 'src/kernel.c');
const OPTIONS = ['-std=c11', '-D_GNU_SOURCE', '-Os', '-s'];

/** Returns the hash of the sources, in the format that `build.sh` writes. */
function fingerprint(): string {
  const hash = createHash('sha256');
  for (const path of SOURCES.flatMap(directory => ['.c', '.h'].flatMap(ending => filesOf(directory, ending))))
    hash.update(readFileSync(path));
  return hash.update(readFileSync(BUILD)).digest('hex');
}

/** Returns the paths of a directory's files with this ending, sorted by name. */
function filesOf(directory: string, ending: string): readonly string[] {
  const names = readdirSync(join(NATIVE, directory)).filter(name => name.endsWith(ending));
  return names.sort().map(name => join(NATIVE, directory, name));
}

function namesFor(machineName: string): readonly string[] {
  return [`init-${machineName}`, `fork-${machineName}.so`];
}

/** Returns the problem as text, or `''` if the binaries were built from the current sources. */
export function findStaleNative(): string {
  const isFresh = readFileSync(join(BIN, 'SOURCES'), 'utf8').trim() === fingerprint();
  return isFresh ? '' : 'the sources of runtimes/native have changed since it was built: run runtimes/native/build.sh';
}

/** Returns the reason why the binaries cannot be built here, or `''`. */
export async function missingCompiler(): Promise<string> {
  const { code } = await run('python3', ['-m', 'ziglang', 'version'], { capture: true });
  return code === 0
    ? ''
    : 'its compiler is not installed (pip install ziglang, the version that runtimes/native/build.sh names)';
}

/** Builds the binaries and returns a line for each that differs from the repository, or `''`. */
export async function findOtherNative(): Promise<string> {
  const built = mkdtempSync(join(tmpdir(), 'rookery-native-'));
  try {
    const { code, output } = await run('sh', [BUILD], { capture: true, env: { OUT: built } });
    if (code !== 0) return output;
    const other = MACHINES.flatMap(namesFor).filter(
      name => !readFileSync(join(built, name)).equals(readFileSync(join(BIN, name))),
    );
    return other.map(name => `${name} is not what the sources of runtimes/native give\n`).join('');
  } finally {
    rmSync(built, { recursive: true, force: true });
  }
}

/**
 * Builds the native parts on a machine whose binaries are not in the repository.
 * Without a C compiler it prints how to get one; everything else of the product works.
 */
export async function buildMissingNative(): Promise<void> {
  if (process.platform !== 'linux') return;
  const [program = '', library = ''] = namesFor(machine()).map(name => join(BIN, name));
  const isBuilt =
    (await build(program, ['-static'], filesOf('src', '.c'))) &&
    (await build(library, ['-shared', '-fPIC'], [...filesOf('fork', '.c'), SHARED]));
  if (isBuilt) return;
  console.log(
    `the program that starts sandboxes is missing for ${machine()} yet: install a C compiler (gcc), and build again`,
  );
}

/** Compiles a file unless it exists. Returns false if the compiler fails. */
async function build(path: string, options: readonly string[], sources: readonly string[]): Promise<boolean> {
  return existsSync(path) || (await run('cc', [...OPTIONS, ...options, '-o', path, ...sources])).code === 0;
}
