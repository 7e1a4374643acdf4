import { spawn, spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { KEPT_DIR } from '../parts/kept.ts';

/** Kept from run to run, since installing takes longer than the test; `.ci/run` makes the same one. */
const TOOLS = join(KEPT_DIR, 'rookery-test-tools');
const PROGRAM = join(TOOLS, 'bin/schemathesis');
const REQUIREMENT = 'schemathesis>=4.32,<5';
const INSTALL_TIMEOUT_MS = 120_000;
const RUN_TIMEOUT_MS = 240_000;
/** Bounds the time; the phase `coverage` tries each rule of a document whatever this says. */
const MAX_EXAMPLES = 8;

/** Makes the virtual environment unless it is there. null: it is there; else why it is not. */
export function installSchemathesis(): string | null {
  if (succeeds(PROGRAM, ['--version'])) return null;
  rmSync(TOOLS, { recursive: true, force: true });
  if (!succeeds('python3', ['-c', 'import sys; sys.exit(sys.version_info < (3, 10))'])) {
    return 'it needs a python3 of 3.10 or newer';
  }
  if (!succeeds('python3', ['-m', 'venv', TOOLS])) return 'python3 cannot make a virtual environment';
  const pip = join(TOOLS, 'bin/pip');
  if (!succeeds(pip, ['install', '-q', '--disable-pip-version-check', REQUIREMENT])) {
    rmSync(TOOLS, { recursive: true, force: true });
    return 'pip could not install it';
  }
  return null;
}

function succeeds(program: string, args: readonly string[]): boolean {
  return spawnSync(program, args, { stdio: 'ignore', timeout: INSTALL_TIMEOUT_MS }).status === 0;
}

export interface Findings {
  /** 0: it found nothing. */
  readonly code: number | null;
  readonly output: string;
  /** Everything that was asked and answered, as HAR. */
  readonly traffic: string;
}

/**
 * Asks the server behind `url` what its own document says, with `<name>.toml` beside this file, which says what is relaxed and why.
 * The seed is fixed so that the verdict is the code's and not luck's; `ROOKERY_TEST_SEED` asks other questions.
 */
export async function askEverything(name: string, url: string, scratch: string): Promise<Findings> {
  const config = fileURLToPath(new URL(`${name}.toml`, import.meta.url));
  const traffic = join(scratch, `${name}.har`);
  const child = spawn(
    PROGRAM,
    [
      ...['--config-file', config, 'run', `${url}/openapi.json`],
      ...['--max-examples', String(MAX_EXAMPLES), '--seed', process.env.ROOKERY_TEST_SEED ?? '1'],
      ...['--continue-on-failure', '--no-color', '--report-har-path', traffic],
    ],
    // Its database of examples goes to the working directory, and would make runs differ.
    { cwd: scratch, stdio: ['ignore', 'pipe', 'pipe'], timeout: RUN_TIMEOUT_MS },
  );
  let output = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', chunk => {
      output += String(chunk);
    });
  }
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  return { code, output, traffic };
}
