/** What is native of the sandboxes (`runtimes/native`): whether it is there, and whether it is what its sources say. */
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { machine, tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT, run } from './command.ts';

const NATIVE = join(ROOT, 'runtimes/native');
const BUILD = join(NATIVE, 'build.sh');
const BIN = join(ROOT, 'runtimes/python/rookery_zygote/bin');
/** Those that are in the repository. */
const MACHINES = ['x86_64', 'aarch64'];
const SOURCES = ['src', 'fork'];
/** Of both: the first process of a sandbox, and the library that forks it. */
/** What the program and the library share. */
const SHARED = join(NATIVE, 'src/kernel.c');
const OPTIONS = ['-std=c11', '-D_GNU_SOURCE', '-Os', '-s'];

/** What the sources say now, as `build.sh` writes it. */
function fingerprint(): string {
  const hash = createHash('sha256');
  for (const path of SOURCES.flatMap(directory => ['.c', '.h'].flatMap(ending => filesOf(directory, ending))))
    hash.update(readFileSync(path));
  return hash.update(readFileSync(BUILD)).digest('hex');
}

/** Paths, in the order of their names. */
function filesOf(directory: string, ending: string): readonly string[] {
  const names = readdirSync(join(NATIVE, directory)).filter(name => name.endsWith(ending));
  return names.sort().map(name => join(NATIVE, directory, name));
}

function namesFor(machineName: string): readonly string[] {
  return [`init-${machineName}`, `fork-${machineName}.so`];
}

/** What is wrong, as text; `''` when nothing is. */
export function findStaleNative(): string {
  const isFresh = readFileSync(join(BIN, 'SOURCES'), 'utf8').trim() === fingerprint();
  return isFresh ? '' : 'the sources of runtimes/native have changed since it was built: run runtimes/native/build.sh';
}

/** Why it cannot be built here; `''` when it can. */
export async function missingCompiler(): Promise<string> {
  const { code } = await run('python3', ['-m', 'ziglang', 'version'], { capture: true });
  return code === 0
    ? ''
    : 'its compiler is not installed (pip install ziglang, the version that runtimes/native/build.sh names)';
}

/** Whether the sources give the bytes that are in the repository. */
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

/** On a machine for which none comes along. Says how to get one where there is no compiler; everything else works without it. */
export async function buildMissingNative(): Promise<void> {
  if (process.platform !== 'linux') return;
  const [program = '', library = ''] = namesFor(machine()).map(name => join(BIN, name));
  const isBuilt =
    (await build(program, ['-static'], filesOf('src', '.c'))) &&
    (await build(library, ['-shared', '-fPIC'], [...filesOf('fork', '.c'), SHARED]));
  if (isBuilt) return;
  console.log(`what starts sandboxes is not there for ${machine()} yet: install a C compiler (gcc), and build again`);
}

/** Nothing where the file is there. */
async function build(path: string, options: readonly string[], sources: readonly string[]): Promise<boolean> {
  return existsSync(path) || (await run('cc', [...OPTIONS, ...options, '-o', path, ...sources])).code === 0;
}
