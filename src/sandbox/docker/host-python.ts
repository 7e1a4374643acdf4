import type { Readable, Writable } from 'node:stream';
import type { Environment } from '../../core/environment.ts';
import { unavailable } from '../../core/error.ts';
import { type ChildProcess, spawn } from '../../lib/child-process.ts';
import { within } from '../../lib/deadline.ts';
import { readChildOutput } from '../host/child-output.ts';
import { Interpreters } from '../host/interpreters.ts';

const BOOT = 'import sys; sys.path.insert(0, sys.argv[1]); from rookery_zygote import {module}; {module}.main()';
const READY_TIMEOUT_MS = 15_000;
/** Space in the command line for the title that the program writes over it. */
const TITLE_SPACE = ' '.repeat(64);

/** Runs the driver's Python helper programs on the host, with any Python that is installed. */
export class HostPython {
  readonly #interpreters: Interpreters;
  readonly #pythonDir: string;
  #found: Promise<string> | undefined;

  /** `pythonDir`: the directory of `rookery_zygote` and `rookery_runtime`. */
  constructor(pythonDir: string, environment: Environment) {
    this.#interpreters = new Interpreters({}, environment);
    this.#pythonDir = pythonDir;
  }

  /** Starts a helper program. Fails with `failed_precondition` when the host has no Python. */
  async start(
    module: 'bridge' | 'bridge_rules' | 'entrance',
    { isDetached }: { readonly isDetached: boolean },
  ): Promise<HostProgram> {
    this.#found ??= this.#interpreters.findAny().then(({ path }) => path);
    // Search again at the next start: Python may have been installed meanwhile.
    this.#found.catch(() => {
      this.#found = undefined;
    });
    const boot = BOOT.replaceAll('{module}', module);
    const child = spawn(await this.#found, ['-I', '-c', boot, this.#pythonDir, TITLE_SPACE], {
      cwd: '/',
      // Variables of the server, which may be secret, are not passed on.
      env: { PATH: '/usr/local/bin:/usr/bin:/bin', LANG: 'C.UTF-8' },
      detached: isDetached,
      stdio: ['pipe', 'ignore', 'ignore', 'pipe'],
    });
    return new HostProgram(child, module);
  }
}

export class HostProgram {
  readonly #child: ChildProcess;
  readonly #module: string;
  readonly #said: Promise<string>;

  constructor(child: ChildProcess, module: string) {
    this.#child = child;
    this.#module = module;
    child.stdin?.on('error', () => undefined);
    this.#said = readChildOutput(child, 'the Python of this host');
    this.#said.catch(() => undefined);
    // The program ends with its standard input or with its container, so it must not keep the server alive.
    child.unref();
    (child.stdin as unknown as { unref(): void } | null)?.unref();
  }

  /** Resolves when the program has ended. */
  get ended(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return Promise.resolve();
    return new Promise(resolve => this.#child.once('exit', () => resolve()));
  }

  /**
   * Sends the orders and resolves when the program reports that it serves. Fails with `unavailable`, with the
   * program's own message when there is one, or with `deadline_exceeded` after 15 s or when `signal` aborts.
   */
  async order(orders: object, signal?: AbortSignal): Promise<void> {
    (this.#child.stdin as Writable).write(`${JSON.stringify(orders)}\n`);
    const late = `the ${this.#module} did not start in time`;
    const text = await within(this.#said, READY_TIMEOUT_MS, late, signal);
    const answer = parse(text);
    if (answer?.ok === true) return;
    throw unavailable(answer?.message ?? `the ${this.#module} did not start: it ended without an answer`);
  }

  /** Closes the program's standard input and stops reading its reports. */
  release(): void {
    this.#child.stdin?.end();
    (this.#child.stdio[3] as Readable).destroy();
  }

  kill(): void {
    this.#child.kill('SIGKILL');
    this.release();
  }
}

function parse(text: string): { readonly ok?: boolean; readonly message?: string } | null {
  try {
    return JSON.parse(text) as { ok?: boolean; message?: string };
  } catch {
    return null;
  }
}
