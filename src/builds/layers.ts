import { randomUUID } from 'node:crypto';
import { renameSync } from 'node:fs';
import { mkdir, readdir, rename, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { failedPrecondition, ServiceError, unavailable } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import type { MountSpec } from '../core/mount.ts';
import type { Command } from '../instances/command.ts';
import type { Instances } from '../instances/instances.ts';
import type { Ledger } from '../instances/ledger.ts';
import type { SandboxRules } from '../instances/sandbox-spec.ts';
import { execFile } from '../lib/child-process.ts';
import { withDeadline } from '../lib/deadline.ts';
import { flushDirectory, flushFileSystem } from '../lib/flush.ts';
import { sharedController } from '../lib/linked-signal.ts';
import { newSecret } from '../lib/new-secret.ts';
import type { Removals } from '../lib/removals.ts';
import { describeExit, type SandboxDriver, type SandboxSpec } from '../sandbox/driver.ts';

/** How a layer is made. What the same `key` makes is the same. */
export interface Recipe {
  readonly key: string;
  /** What it runs may be foreign code: a layer is of one tenant, and `key` says of which. */
  readonly tenant: string;
  /** The program that installs, for errors. */
  readonly tool: string;
  /** Where the layer stands inside: it may know its own path. */
  readonly target: string;
  /** Files that `argv` finds beside each other, by their names. */
  readonly files: Readonly<Record<string, string>>;
  /** What it needs to see of this machine. */
  readonly mounts: readonly MountSpec[];
  /** Directories inside, for `PATH`. */
  readonly binDirs: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** The command, with the places of the layer and of the files inside. */
  argv(layer: string, files: string): readonly string[];
  /** How many of the last lines an error has. */
  readonly errorLines: number;
}

export interface LayersOptions {
  /** Nothing else is in it. */
  readonly directory: string;
  readonly removals: Removals;
  readonly instances: Instances;
  readonly ledger: Ledger;
  readonly driver: () => Promise<SandboxDriver>;
  readonly rules: SandboxRules & {
    readonly memoryMb: number;
    readonly cpuMillis: number;
  };
  readonly timeoutMs: number;
  /** The largest layer; null: no bound beside that of a sandbox. */
  readonly maxBytes: number | null;
  /** How long one is kept that nobody uses. */
  readonly keepMs: number;
  /** How much those that nobody uses may have together; the oldest go first. null: no bound. */
  readonly maxUnusedBytes: number | null;
  /** Where what stands at `source` on the host, and is mounted at `target`, is found inside. Without mounts: where it is. */
  readonly inside: (source: string, target: string) => string;
  /** Tests bring their own. */
  readonly flush?: (path: string) => Promise<void>;
}

/** Takes what a build says, in order. */
export type BuildOutput = (text: Buffer | string) => Promise<void>;

interface Build {
  readonly done: Promise<void>;
  readonly listeners: Set<BuildOutput>;
  /** The output so far, for those who come later. */
  said: Buffer[];
}

const MAX_SAID_BYTES = 1024 * 1024;
const START_TIMEOUT_MS = 60_000;
const MEASURE_TIMEOUT_MS = 120_000;
const MAX_LAST_CHARS = 4000;
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/** Directories that are made once by a command in a sandbox of its own, for all who wait for the same, and mounted read-only after that. */
export class Layers {
  readonly #options: LayersOptions;
  readonly #builds = new Map<string, Build>();
  readonly #uses = new Map<string, number>();
  readonly #closing = sharedController();

  constructor(options: LayersOptions) {
    this.#options = options;
  }

  /** Removes what a killed server left half made. */
  async start(): Promise<void> {
    const { directory, removals } = this.#options;
    for (const name of await readdir(directory).catch(() => [])) {
      if (name.includes('.')) await removals.remove(join(directory, name));
    }
  }

  /** Gives up what is being made; the next server makes it again. */
  close(): void {
    this.#closing.abort();
  }

  pathOf(key: string): string {
    return join(this.#options.directory, key);
  }

  /** Whether it is made already. It counts as used then. */
  async has(key: string): Promise<boolean> {
    const now = new Date();
    return await utimes(this.pathOf(key), now, now).then(
      () => true,
      () => false,
    );
  }

  /** As `has`, for who only looks: it does not count as used. */
  async isKept(key: string): Promise<boolean> {
    return (await stat(this.pathOf(key)).catch(() => null)) !== null;
  }

  /**
   * The directory on the host, made when it is not there. Fails with `failed_precondition` when it cannot be made, and as `output` does, which
   * is nobody else's failure. Whoever asks holds it before, and as long as it uses it.
   */
  async get(recipe: Recipe, output: BuildOutput): Promise<string> {
    if (!(await this.has(recipe.key))) await this.#built(recipe, output);
    return this.pathOf(recipe.key);
  }

  /** It is not removed until `release`. */
  hold(key: string): void {
    this.#uses.set(key, (this.#uses.get(key) ?? 0) + 1);
  }

  release(key: string): void {
    const left = (this.#uses.get(key) ?? 1) - 1;
    if (left > 0) this.#uses.set(key, left);
    else this.#uses.delete(key);
  }

  /** Removes those that nobody uses: when nobody has for a while, and the oldest when all have too much. */
  async collect(): Promise<void> {
    const { directory, keepMs, maxUnusedBytes, removals } = this.#options;
    const unused: { key: string; usedAtMs: number }[] = [];
    for (const key of await readdir(directory).catch(() => [])) {
      if (key.includes('.') || this.#uses.has(key)) continue;
      const found = await stat(this.pathOf(key)).catch(() => null);
      if (found !== null) unused.push({ key, usedAtMs: found.mtimeMs });
    }
    unused.sort((a, b) => b.usedAtMs - a.usedAtMs);
    let bytes = 0;
    for (const { key, usedAtMs } of unused) {
      const isOld = usedAtMs < Date.now() - keepMs;
      if (!isOld && maxUnusedBytes !== null) bytes += await diskUsage(this.pathOf(key)).catch(() => 0);
      if (!isOld && (maxUnusedBytes === null || bytes <= maxUnusedBytes)) continue;
      const away = join(directory, `${key}.${randomUUID()}`);
      // Nothing is awaited between the look and the move: who asks from here on makes it anew.
      if (this.#uses.has(key)) continue;
      renameSync(this.pathOf(key), away);
      await removals.remove(away);
    }
  }

  async #built(recipe: Recipe, output: BuildOutput): Promise<void> {
    const { key } = recipe;
    let build = this.#builds.get(key);
    if (!build) {
      const listeners = new Set<BuildOutput>();
      const said: Buffer[] = [];
      const tell: BuildOutput = async text => {
        const chunk = Buffer.from(text);
        if (said.reduce((sum, part) => sum + part.length, 0) < MAX_SAID_BYTES) said.push(chunk);
        await Promise.all([...listeners].map(listener => listener(chunk)));
      };
      const done = this.#build(recipe, tell).finally(() => this.#builds.delete(key));
      build = { done, listeners, said };
      this.#builds.set(key, build);
    }
    // One call of `output` at a time: what was said before, then what comes. The build goes on without one that fails.
    let writing = Promise.resolve();
    const write: BuildOutput = text => {
      writing = writing.then(() => output(text));
      return writing;
    };
    const { done, listeners } = build;
    const listen: BuildOutput = text => write(text).catch(() => void listeners.delete(listen));
    const before = Buffer.concat(build.said);
    listeners.add(listen);
    if (before.length > 0) await listen(before);
    try {
      await done;
    } finally {
      listeners.delete(listen);
      await writing;
    }
  }

  async #build(recipe: Recipe, tell: BuildOutput): Promise<void> {
    // Asynchronous from its first step, so that everybody hears all of it.
    const driver = await this.#options.driver();
    const { directory, timeoutMs, ledger, rules, instances } = this.#options;
    const instanceId = randomUUID();
    const work = join(directory, `${recipe.key}.${instanceId}`);
    const layer = join(work, 'layer');
    const files = join(work, 'files');
    const size = { ...rules, processes: rules.maxProcesses };
    const release = instances.hold(instanceId);
    // Whoever waits for it was let in: it is counted, and not refused.
    ledger.take('build', size);
    try {
      for (const path of [layer, files]) await mkdir(path, { recursive: true, mode: 0o755 });
      for (const [name, text] of Object.entries(recipe.files)) {
        await mkdir(join(files, name, '..'), { recursive: true, mode: 0o755 });
        await writeFile(join(files, name), text);
      }
      const spec = this.#specOf(instanceId, recipe, layer, files);
      const closing = this.#closing.signal;
      const owner = { kind: 'build', key: recipe.key } as const;
      const intent = instances.draft({ owner, tenant: recipe.tenant, sandboxType: driver.name, sandbox: spec });
      await instances.intend(intent);
      const begin = (starting: AbortSignal) => instances.run(intent, { driver, sandbox: spec }, starting, closing);
      const command = await withDeadline(START_TIMEOUT_MS, begin, closing);
      if (command === null) throw failedPrecondition('another server has taken over');
      try {
        await withDeadline(timeoutMs, late => this.#install(recipe, command, late, tell), closing);
      } finally {
        await instances.remove(command);
      }
      await this.#assertSize(layer);
      await this.#keep(layer, recipe.key);
    } finally {
      ledger.give('build', size);
      release();
      await this.#options.removals.remove(work);
    }
  }

  /** Passes on what the tool says until it ends. Fails with `failed_precondition` unless it ended well, before `late` aborts. */
  async #install({ tool, errorLines }: Recipe, command: Command, late: AbortSignal, tell: BuildOutput): Promise<void> {
    let last: readonly string[] = [];
    for await (const chunk of command.logs({ tail: null, sinceMs: null, follow: true }, late)) {
      const lines = chunk.toString('utf8').trimEnd().split('\n');
      last = [...last, ...lines].slice(-errorLines);
      await tell(chunk);
    }
    const exit = await command.exited(late);
    if (this.#closing.signal.aborted) throw failedPrecondition('the service ends');
    if (exit === null) throw failedPrecondition(`${tool} took longer than ${this.#options.timeoutMs / 1000} s`);
    if (exit.code === 0) return;
    const lines = last.join('\n').slice(-MAX_LAST_CHARS);
    throw failedPrecondition(`${tool} ended with ${describeExit(exit)}:${errorLines > 1 ? '\n' : ' '}${lines}`);
  }

  async #assertSize(layer: string): Promise<void> {
    const { maxBytes } = this.#options;
    if (maxBytes === null) return;
    const bytes = await diskUsage(layer);
    if (bytes > maxBytes) throw failedPrecondition(`what it installed has ${bytes} bytes, the most is ${maxBytes}`);
  }

  /** What is there under its key is whole, also after a power cut: nobody looks at it again. */
  async #keep(layer: string, key: string): Promise<void> {
    const { directory, flush = flushFileSystem } = this.#options;
    await flush(layer).catch((error: unknown) => {
      throw unavailable('what was installed could not be brought to the disk', { cause: error });
    });
    await rename(layer, this.pathOf(key));
    await flushDirectory(directory);
  }

  #specOf(instanceId: string, recipe: Recipe, layer: string, files: string): SandboxSpec {
    const { inside, rules } = this.#options;
    // Where it will be found: it may know its own path.
    const isMoved = inside(this.pathOf(recipe.key), recipe.target) === recipe.target;
    const layerInside = isMoved ? recipe.target : layer;
    const filesInside = inside(files, FILES);
    return {
      instanceId,
      tenant: recipe.tenant,
      command: { kind: 'exec', argv: recipe.argv(layerInside, filesInside) },
      secret: newSecret(),
      rootfs: { type: 'host', imageUrl: '', user: '' },
      env: {
        PATH: [...recipe.binDirs, PATH].join(':'),
        LANG: 'C.UTF-8',
        HOME: '/tmp',
        PYTHONUNBUFFERED: '1',
        ...recipe.env,
      },
      workingDir: '/tmp',
      mounts: [],
      platformMounts: [
        ...recipe.mounts,
        { source: layer, target: layerInside, readonly: false },
        { source: files, target: filesInside, readonly: true },
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

const FILES = '/opt/rookery/files';

/** What a directory takes on the disk. By a program of its own: it goes to any depth, and follows nothing. */
function diskUsage(path: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const env = { PATH: '/usr/bin:/bin', LC_ALL: 'C' };
    execFile('du', ['-s', '-x', '-B1', '--', path], { timeout: MEASURE_TIMEOUT_MS, env }, (error, stdout) => {
      const bytes = /^(\d+)\t/.exec(stdout)?.[1];
      if (bytes !== undefined) resolve(Number(bytes));
      else reject(error ?? new ServiceError('internal', 'du has said nothing'));
    });
  });
}
