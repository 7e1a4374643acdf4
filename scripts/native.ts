/** The native program of the sandboxes (`runtimes/native`): whether it is there, and whether it is what its source says. */
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

/** What the sources say now, as `build.sh` writes it. */
function fingerprint(): string {
  const hash = createHash('sha256');
  const source = join(NATIVE, 'src');
  const files = readdirSync(source);
  for (const ending of ['.c', '.h']) {
    for (const name of files.filter(file => file.endsWith(ending)).sort())
      hash.update(readFileSync(join(source, name)));
  }
  return hash.update(readFileSync(BUILD)).digest('hex');
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
    const other = MACHINES.filter(name => {
      const file = `init-${name}`;
      return !readFileSync(join(built, file)).equals(readFileSync(join(BIN, file)));
    });
    return other.map(name => `init-${name} is not what the sources of runtimes/native give\n`).join('');
  } finally {
    rmSync(built, { recursive: true, force: true });
  }
}

/** On a machine for which none comes along. Says how to get one where there is no compiler; everything else works without it. */
export async function buildMissingNative(): Promise<void> {
  const program = join(BIN, `init-${machine()}`);
  if (process.platform !== 'linux' || existsSync(program)) return;
  const source = join(NATIVE, 'src');
  const files = readdirSync(source).filter(file => file.endsWith('.c'));
  const options = ['-std=c11', '-D_GNU_SOURCE', '-Os', '-static', '-s', '-o', program];
  const { code } = await run('cc', [...options, ...files.map(file => join(source, file))]);
  if (code === 0) return;
  console.log(
    `there is no first process of sandboxes for ${machine()} yet: install a C compiler (gcc), and build again`,
  );
}
