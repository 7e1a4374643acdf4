import { spawn, spawnSync } from 'node:child_process';
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { KEPT_DIR } from '../parts/kept.ts';

/**
 * Directory that is kept between runs, because installing takes longer than the test. `.ci/run` makes the
 * same one.
 */
const TOOLS = join(KEPT_DIR, 'rookery-test-tools');
const PROGRAM = join(TOOLS, 'bin/schemathesis');
const REQUIREMENT = 'schemathesis==4.32.5';
const INSTALL_TIMEOUT_MS = 120_000;
const RUN_TIMEOUT_MS = 480_000;
/**
 * Number of examples per operation, which bounds the time. The phase `coverage` tests each rule of a document
 * regardless.
 */
const MAX_EXAMPLES = 8;

/**
 * Makes the virtual environment unless it exists. Returns null on success, else the reason for the failure.
 */
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
  /** Exit code: 0 when no fault was found. */
  readonly code: number | null;
  readonly output: string;
  /** All requests and answers, as HAR. */
  readonly traffic: string;
}

/**
 * Tests the server at `url` against its own document. `<name>.toml` in this folder lists the relaxed rules
 * with their reasons. The seed is fixed so that runs are reproducible; `ROOKERY_TEST_SEED` selects another
 * one.
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
      // A busy machine answers late. The default of 10 s would report that as a network error.
      ...['--request-timeout', '60'],
    ],
    // The database of examples is written to the working directory, and would make runs differ.
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
