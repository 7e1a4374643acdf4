import { createHash, randomBytes, randomUUID } from 'node:crypto';
import { mkdir, readdir, rename, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { failedPrecondition } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import type { PipRequirements } from '../core/runtime-env.ts';
import type { Command } from '../instances/command.ts';
import type { Instances } from '../instances/instances.ts';
import type { Ledger } from '../instances/ledger.ts';
import type { SandboxRules } from '../instances/sandbox-spec.ts';
import { withDeadline } from '../lib/deadline.ts';
import type { Removals } from '../lib/removals.ts';
import { describeExit, type SandboxDriver, type SandboxSpec } from '../sandbox/driver.ts';
import type { PlacedEnvironment } from './job-sandbox.ts';
import { ENVIRONMENT, type JobPaths } from './paths.ts';
import type { JobPython } from './python.ts';

export interface PythonEnvironmentsOptions {
  readonly paths: JobPaths;
  readonly removals: Removals;
  readonly instances: Instances;
  readonly ledger: Ledger;
  readonly driver: () => Promise<SandboxDriver>;
  readonly rules: SandboxRules & {
    /** Of pip: what the installation needs to reach its index. */
    readonly environment: Readonly<Record<string, string>>;
    readonly memoryMb: number;
    readonly cpuMillis: number;
  };
  readonly timeoutMs: number;
  /** How long one that no job uses is kept. */
  readonly keepMs: number;
}

/** Takes what the making of an environment says, in order. */
export type SetupOutput = (text: Buffer | string) => Promise<void>;

interface Build {
  readonly done: Promise<void>;
  readonly listeners: Set<SetupOutput>;
  /** What has been said so far, for those who come later. */
  said: Buffer[];
}

const MAX_SAID_BYTES = 1024 * 1024;
const START_TIMEOUT_MS = 60_000;
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
/** `$1` is the interpreter, `$2` the environment, `$3` its requirements; the rest are options of pip. */
const SCRIPT = `set -e
python=$1 environment=$2 requirements=$3 version=$4 check=$5
shift 5
"$python" -m venv "$environment"
[ -z "$version" ] || "$environment/bin/python" -m pip install --disable-pip-version-check --no-cache-dir "pip$version"
"$environment/bin/python" -m pip install --disable-pip-version-check --no-cache-dir "$@" -r "$requirements"
[ "$check" = no ] || "$environment/bin/python" -m pip check --disable-pip-version-check`;

/**
 * Virtual environments of jobs: one per interpreter and set of requirements, made once for all who wait for it, in a sandbox of its own
 * (what is installed may run code), and mounted read-only into jobs.
 */
export class PythonEnvironments {
  readonly #options: PythonEnvironmentsOptions;
  readonly #builds = new Map<string, Build>();
  readonly #uses = new Map<string, number>();
  readonly #closing = new AbortController();

  constructor(options: PythonEnvironmentsOptions) {
    this.#options = options;
  }

  /** What a server that was killed left half made. */
  async start(): Promise<void> {
    const { environments } = this.#options.paths;
    for (const name of await readdir(environments).catch(() => [])) {
      if (name.includes('.')) await this.#options.removals.remove(join(environments, name));
    }
  }

  /** Gives up what is being made; the next server makes it again. */
  close(): void {
    this.#closing.abort();
  }

  /**
   * The environment with these requirements, made when it is not there. Fails with `failed_precondition` when it cannot be made. Each
   * success is undone by `release` with the same arguments.
   */
  async get(pip: PipRequirements, python: JobPython, output: SetupOutput): Promise<PlacedEnvironment> {
    const key = keyOf(pip, python);
    this.hold(pip, python);
    try {
      const path = join(this.#options.paths.environments, key);
      if (!(await touch(path))) await this.#built(key, pip, python, output);
      const inside = this.#options.paths.inside(path, ENVIRONMENT);
      return { path: inside, mount: { source: path, target: inside, readonly: true } };
    } catch (error) {
      this.release(pip, python);
      throw error;
    }
  }

  /** A job of before a restart lives on with it; undone by `release` too. */
  hold(pip: PipRequirements, python: JobPython): void {
    const key = keyOf(pip, python);
    this.#uses.set(key, (this.#uses.get(key) ?? 0) + 1);
  }

  release(pip: PipRequirements, python: JobPython): void {
    const key = keyOf(pip, python);
    const left = (this.#uses.get(key) ?? 1) - 1;
    if (left > 0) this.#uses.set(key, left);
    else this.#uses.delete(key);
  }

  /** Removes those that nobody uses and nobody has used for a while. */
  async collect(): Promise<void> {
    const { paths, keepMs } = this.#options;
    for (const key of await readdir(paths.environments).catch(() => [])) {
      if (key.includes('.') || this.#uses.has(key)) continue;
      const path = join(paths.environments, key);
      const found = await stat(path).catch(() => null);
      if (found && found.mtimeMs < Date.now() - keepMs) await this.#options.removals.remove(path);
    }
  }

  async #built(key: string, pip: PipRequirements, python: JobPython, output: SetupOutput): Promise<void> {
    let build = this.#builds.get(key);
    if (!build) {
      const listeners = new Set<SetupOutput>();
      const said: Buffer[] = [];
      const tell: SetupOutput = async text => {
        const chunk = Buffer.from(text);
        if (said.reduce((sum, part) => sum + part.length, 0) < MAX_SAID_BYTES) said.push(chunk);
        await Promise.all([...listeners].map(listener => listener(chunk)));
      };
      const done = this.#build(key, pip, python, tell).finally(() => this.#builds.delete(key));
      build = { done, listeners, said };
      this.#builds.set(key, build);
    }
    // One call of `output` at a time: what was said before, then what comes.
    let writing = Promise.resolve();
    const write: SetupOutput = text => {
      writing = writing.then(() => output(text));
      return writing;
    };
    const before = Buffer.concat(build.said);
    build.listeners.add(write);
    if (before.length > 0) await write(before);
    try {
      await build.done;
    } finally {
      build.listeners.delete(write);
      await writing;
    }
  }

  async #build(key: string, pip: PipRequirements, python: JobPython, tell: SetupOutput): Promise<void> {
    // Asynchronous from its first step, so that everybody hears all of it.
    const driver = await this.#options.driver();
    const { paths, timeoutMs } = this.#options;
    const instanceId = randomUUID();
    const work = join(paths.environments, `${key}.${instanceId}`);
    const path = join(paths.environments, key);
    const environment = join(work, 'environment');
    const { ledger, rules } = this.#options;
    const size = { ...rules, processes: rules.maxProcesses };
    const release = this.#options.instances.hold(instanceId);
    // The job that waits for it was let in: it is counted, and not refused.
    ledger.take('build', size);
    try {
      await mkdir(environment, { recursive: true, mode: 0o755 });
      await writeFile(join(work, 'requirements.txt'), `${pip.packages.join('\n')}\n`);
      const spec = this.#specOf(instanceId, work, environment, path, pip, python);
      const closing = this.#closing.signal;
      const { instances } = this.#options;
      const owner = { kind: 'build', key } as const;
      const intent = instances.draft({ owner, tenant: '', sandboxType: driver.name, sandbox: spec });
      await instances.intend(intent);
      const begin = (starting: AbortSignal) => instances.run(intent, { driver, sandbox: spec }, starting, closing);
      const command = await withDeadline(START_TIMEOUT_MS, begin, closing);
      if (command === null) throw failedPrecondition('another server has taken over');
      try {
        await withDeadline(timeoutMs, late => this.#install(command, late, tell), closing);
      } finally {
        await instances.remove(command);
      }
      await rename(environment, path);
    } finally {
      ledger.give('build', size);
      release();
      await this.#options.removals.remove(work);
    }
  }

  /** Passes on what pip says until it ends. Fails with `failed_precondition` unless it ended well, before `late` aborts. */
  async #install(command: Command, late: AbortSignal, tell: SetupOutput): Promise<void> {
    let lastLine = '';
    for await (const chunk of command.logs({ tail: null, sinceMs: null, follow: true }, late)) {
      lastLine = chunk.toString('utf8').trimEnd().split('\n').at(-1) ?? lastLine;
      await tell(chunk);
    }
    const exit = await command.exited(late);
    if (this.#closing.signal.aborted) throw failedPrecondition('the service ends');
    if (exit === null) throw failedPrecondition(`pip took longer than ${this.#options.timeoutMs / 1000} s`);
    if (exit.code !== 0) throw failedPrecondition(`pip ended with ${describeExit(exit)}: ${lastLine}`);
  }

  #specOf(
    instanceId: string,
    work: string,
    environment: string,
    path: string,
    pip: PipRequirements,
    python: JobPython,
  ): SandboxSpec {
    const { paths, rules } = this.#options;
    // Where it will be found: an environment knows its own path.
    const target = paths.inside(path, ENVIRONMENT);
    const isMoved = target !== path;
    const requirements = paths.inside(join(work, 'requirements.txt'), '/opt/rookery/requirements.txt');
    return {
      instanceId,
      tenant: '',
      command: {
        kind: 'exec',
        argv: [
          ...['/bin/sh', '-c', SCRIPT, 'sh', python.path, isMoved ? target : environment, requirements],
          ...[pip.pipVersion, pip.check ? 'yes' : 'no', ...pip.options],
        ],
      },
      secret: randomBytes(24).toString('base64url'),
      rootfs: { type: 'host', imageUrl: '', user: '' },
      env: {
        PATH: [...python.binDirs, PATH].join(':'),
        LANG: 'C.UTF-8',
        HOME: '/tmp',
        PYTHONUNBUFFERED: '1',
        ...rules.environment,
      },
      workingDir: '/tmp',
      mounts: [],
      platformMounts: [
        ...python.mounts,
        { source: environment, target: isMoved ? target : environment, readonly: false },
        { source: join(work, 'requirements.txt'), target: requirements, readonly: true },
      ],
      ports: [],
      cpuMillis: rules.cpuMillis,
      memoryMb: rules.memoryMb,
      maxProcesses: rules.maxProcesses,
      maxOpenFiles: LIMITS.openFiles,
      network: rules.network,
      requireIsolation: rules.requireIsolation,
    };
  }
}

function keyOf(pip: PipRequirements, python: JobPython): string {
  const { packages, check, pipVersion, options } = pip;
  const all = JSON.stringify([python.path, python.version, [...packages].sort(), check, pipVersion, options]);
  return createHash('sha256').update(all).digest('hex').slice(0, 40);
}

/** False when it is not there. */
async function touch(path: string): Promise<boolean> {
  const now = new Date();
  return await utimes(path, now, now).then(
    () => true,
    () => false,
  );
}
