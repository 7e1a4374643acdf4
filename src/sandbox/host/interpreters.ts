import { constants } from 'node:fs';
import { access, readdir } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';
import { promisify } from 'node:util';
import type { Environment } from '../../core/environment.ts';
import { failedPrecondition } from '../../core/error.ts';
import { execFile } from '../../lib/child-process.ts';

const run = promisify(execFile);
const ASK_TIMEOUT_MS = 10_000;
const ASK = 'import sys; print(sys.executable); print("%d.%d" % sys.version_info[:2])';
const WELL_KNOWN = ['/usr/bin', '/usr/local/bin', '/opt/homebrew/bin', '/usr/local/sbin', '/bin'];
/** Versions for programs that need no particular Python, in the order of preference. */
const PREFERRED = ['3.12', '3.11', '3.13', '3.10', '3.9', '3.14', '3.8', '3.7', '3.6'];

export interface Interpreter {
  /** Minor version, for example `3.11`. */
  readonly version: string;
  /** `sys.executable`, which is never the shim of a version manager. */
  readonly path: string;
}

/** Finds the Python interpreters of this machine, and caches them. */
export class Interpreters {
  readonly #configured: Readonly<Record<string, string>>;
  readonly #environment: Environment;
  readonly #found = new Map<string, Promise<Interpreter>>();

  /**
   * Creates the finder. `configured` maps a version (`3.11`) to the path of its interpreter.
   * Other versions are searched where `environment` says (`PATH`, `PYENV_ROOT`).
   */
  constructor(configured: Readonly<Record<string, string>>, environment: Environment) {
    this.#configured = configured;
    this.#environment = environment;
  }

  /**
   * Returns the interpreter of exactly this version. Fails with `failed_precondition` (`invalid function:
   * …`).
   */
  find(version: string): Promise<Interpreter> {
    let finding = this.#found.get(version);
    if (finding === undefined) {
      finding = this.#search(version);
      this.#found.set(version, finding);
      // A missing interpreter may be installed later.
      finding.catch(() => this.#found.delete(version));
    }
    return finding;
  }

  /** Returns any interpreter. Fails with `failed_precondition`. */
  async findAny(): Promise<Interpreter> {
    const versions = [...Object.keys(this.#configured), ...PREFERRED];
    for (const version of versions) {
      try {
        return await this.find(version);
      } catch {
        // Tries the next version.
      }
    }
    throw failedPrecondition(`no Python of ${PREFERRED.join(', ')} was found; install python3`);
  }

  async #search(version: string): Promise<Interpreter> {
    const configured = this.#configured[version];
    const candidates = configured === undefined ? await candidatePaths(version, this.#environment) : [configured];
    const looked: string[] = [];
    for (const path of candidates) {
      if (!(await isExecutable(path))) {
        if (configured !== undefined) looked.push(`${path}: it cannot be executed`);
        continue;
      }
      const answer = await ask(path);
      if (typeof answer === 'string') looked.push(`${path}: ${answer}`);
      else if (answer.version !== version) looked.push(`${path}: it is Python ${answer.version}`);
      else return answer;
    }
    const why =
      looked.length > 0 ? looked.join('; ') : `looked for python${version} on PATH, in ${WELL_KNOWN[0]} and in pyenv`;
    throw failedPrecondition(`invalid function: runtime python${version} is not available: ${why}`);
  }
}

/**
 * Returns the possible paths of this version's interpreter, best first. A plain `python3` may be of any
 * version.
 */
async function candidatePaths(version: string, environment: Environment): Promise<readonly string[]> {
  const directories = (environment.PATH ?? '').split(delimiter).filter(entry => entry.startsWith('/'));
  const pyenv = await pyenvDirectories(version, environment);
  const named = [...directories, ...WELL_KNOWN].map(directory => join(directory, `python${version}`));
  const plain = [...directories, ...WELL_KNOWN].map(directory => join(directory, 'python3'));
  return [...new Set([...named, ...pyenv.map(directory => join(directory, `python${version}`)), ...plain])];
}

async function pyenvDirectories(version: string, environment: Environment): Promise<readonly string[]> {
  const root = join(environment.PYENV_ROOT ?? join(homedir(), '.pyenv'), 'versions');
  try {
    const entries = (await readdir(root)).filter(entry => entry === version || entry.startsWith(`${version}.`));
    entries.sort((a, b) => b.localeCompare(a, 'en', { numeric: true }));
    return entries.map(entry => join(root, entry, 'bin'));
  } catch {
    return [];
  }
}

async function isExecutable(path: string): Promise<boolean> {
  try {
    await access(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Runs an interpreter; returns its version and path, or the reason it failed. */
async function ask(path: string): Promise<Interpreter | string> {
  try {
    const { stdout } = await run(path, ['-I', '-c', ASK], { timeout: ASK_TIMEOUT_MS, cwd: '/' });
    const [executable, version] = stdout.trim().split('\n');
    if (executable === undefined || version === undefined) return 'it did not say what it is';
    return { version, path: executable };
  } catch (error) {
    const { stderr } = error as { stderr?: string };
    const [line] = (stderr ?? '').trim().split('\n');
    return line === undefined || line === '' ? 'it does not run' : line;
  }
}
