import { randomUUID } from 'node:crypto';
import { renameSync } from 'node:fs';
import { mkdir, readdir, rename, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { failedPrecondition, unavailable } from '../core/error.ts';
import type { MountSpec } from '../core/instance.ts';
import { LIMITS } from '../core/limits.ts';
import type { Command } from '../instances/command.ts';
import type { Instances } from '../instances/instances.ts';
import type { Ledger } from '../instances/ledger.ts';
import type { SandboxRules } from '../instances/sandbox-spec.ts';
import { Counter } from '../lib/counter.ts';
import { withDeadline } from '../lib/deadline.ts';
import { flushDirectory, flushFileSystem } from '../lib/file-writes.ts';
import { sharedController } from '../lib/linked-signal.ts';
import { newSecret } from '../lib/random-ids.ts';
import type { Removals } from '../lib/removals.ts';
import type { TenantDisk } from '../lib/tenant-disk.ts';
import { diskUsage } from '../lib/tenant-disk.ts';
import { describeExit, type SandboxDriver, type SandboxSpec } from '../sandbox/driver.ts';

/** Instructions to make a layer. Recipes with the same `key` make the same layer. */
export interface Recipe {
  readonly key: string;
  /** Tenant of the layer; `key` depends on it, because the commands may run foreign code. */
  readonly tenant: string;
  /** Program that installs, for errors. */
  readonly tool: string;
  /** Path of the layer inside the sandbox, which the layer's files may contain. */
  readonly target: string;
  /** Texts of files by name, all in one directory that `argv` receives. */
  readonly files: Readonly<Record<string, string>>;
  /** Mounts of host files that the installation needs. */
  readonly mounts: readonly MountSpec[];
  /** Directories inside the sandbox, for `PATH`. */
  readonly binDirs: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Returns the command. `layer` and `files` are paths inside the sandbox. */
  argv(layer: string, files: string): readonly string[];
  /** Number of last output lines that an error contains. */
  readonly errorLines: number;
}

export interface LayersOptions {
  /** Directory of the layers, with no other content. */
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
  /** Size limit of one layer. */
  readonly maxBytes: number;
  /** Time for which an unused layer is kept. */
  readonly keepMs: number;
  /** Size limit of all unused layers together; the oldest are removed first. */
  readonly maxUnusedBytes: number;
  readonly disk: TenantDisk;
  /**
   * Returns the path inside the sandbox of the file or directory at `source` on the host that is mounted at
   * `target`. A sandbox without mounts uses the host's path.
   */
  readonly inside: (source: string, target: string) => string;
  /** Replaced in tests. */
  readonly flush?: (path: string) => Promise<void>;
}

/** Receives the output of a build, in order. */
export type BuildOutput = (text: Buffer | string) => Promise<void>;

interface Build {
  readonly done: Promise<void>;
  readonly listeners: Set<BuildOutput>;
  /** Output so far, for listeners that join later. */
  said: Buffer[];
}

const MAX_SAID_BYTES = 1024 * 1024;
const START_TIMEOUT_MS = 60_000;
const MAX_LAST_CHARS = 4000;
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

/**
 * Directories that a command in its own sandbox makes once, for all concurrent requests with the same key.
 * Afterwards they are mounted read-only.
 */
export class Layers {
  readonly #options: LayersOptions;
  readonly #builds = new Map<string, Build>();
  readonly #uses = new Counter();
  /** Sizes by key, measured once because layers do not change. */
  readonly #bytes = new Map<string, number>();
  readonly #closing = sharedController();

  constructor(options: LayersOptions) {
    this.#options = options;
  }

  /** Removes unfinished layers of a killed server. */
  async start(): Promise<void> {
    const { directory, removals } = this.#options;
    for (const name of await readdir(directory).catch(() => [])) {
      if (name.includes('.')) await removals.remove(join(directory, name));
    }
  }

  /** Aborts running builds; a later request builds the layer again. */
  close(): void {
    this.#closing.abort();
  }

  pathOf(key: string): string {
    return join(this.#options.directory, key);
  }

  /** Returns true if the layer exists, and records a use of it. */
  async has(key: string): Promise<boolean> {
    const now = new Date();
    return await utimes(this.pathOf(key), now, now).then(
      () => true,
      () => false,
    );
  }

  /** Returns true if the layer exists, without recording a use. */
  async isKept(key: string): Promise<boolean> {
    return (await stat(this.pathOf(key)).catch(() => null)) !== null;
  }

  /**
   * Returns the host directory of the layer, and builds a missing one. Fails with `failed_precondition` if
   * the build fails. Fails as `output` does, without failing the build for other callers. The caller must
   * call `protect` before and `release` after its use.
   */
  async get(recipe: Recipe, output: BuildOutput): Promise<string> {
    const { key, tenant } = recipe;
    if (!(await this.has(key))) await this.#built(recipe, output);
    await this.#options.disk.acquire(tenant, key, HOLDER, () => this.#sizeOf(key));
    return this.pathOf(key);
  }

  /** Protects a layer from removal until `release`. */
  protect(key: string): void {
    this.#uses.add(key);
  }

  release(key: string): void {
    if (this.#uses.add(key, -1) === 0) this.#options.disk.release(key, HOLDER);
  }

  /**
   * Removes the unused layers for which `isObsolete` is true. Returns the keys of these, and of those that
   * are in use.
   */
  async discard(isObsolete: (path: string) => Promise<boolean>) {
    const { directory, removals } = this.#options;
    const removed: string[] = [];
    const used: string[] = [];
    for (const key of await readdir(directory).catch(() => [])) {
      if (key.includes('.') || !(await isObsolete(this.pathOf(key)))) continue;
      if (this.#uses.has(key)) {
        used.push(key);
        continue;
      }
      await removals.remove(this.#setAside(key));
      removed.push(key);
    }
    return { removed, used };
  }

  /** Renames a layer, so that the next build makes a new one. */
  #setAside(key: string): string {
    const away = join(this.#options.directory, `${key}.${randomUUID()}`);
    renameSync(this.pathOf(key), away);
    this.#bytes.delete(key);
    return away;
  }

  /**
   * Removes unused layers: all that are older than `keepMs`, then the oldest until the rest fits
   * `maxUnusedBytes`.
   */
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
      if (!isOld) bytes += await this.#sizeOf(key).catch(() => 0);
      if (!isOld && bytes <= maxUnusedBytes) continue;
      // Nothing is awaited between this check and the rename, so a later request builds a new layer.
      if (this.#uses.has(key)) continue;
      await removals.remove(this.#setAside(key));
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
    // Calls `output` one at a time: first the earlier output, then the new. A failing `output` is removed,
    // and the build continues.
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
    // Asynchronous before the first output, so that the caller's listener receives all of it.
    const driver = await this.#options.driver();
    // Refuse before the installation if the tenant's disk is full.
    await this.#options.disk.assertFits(recipe.tenant, 1);
    const { directory, timeoutMs, ledger, rules, instances } = this.#options;
    const instanceId = randomUUID();
    const work = join(directory, `${recipe.key}.${instanceId}`);
    const layer = join(work, 'layer');
    const files = join(work, 'files');
    const size = { ...rules, processes: rules.maxProcesses };
    const release = instances.lock(instanceId);
    // Callers were admitted before, so the build is counted but not refused.
    ledger.reserve('build', size);
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
      const begin = (starting: AbortSignal) =>
        instances.commands.run(intent, { driver, sandbox: spec }, starting, closing);
      const command = await withDeadline(START_TIMEOUT_MS, begin, closing);
      if (command === null) throw failedPrecondition('another server has taken over');
      try {
        await withDeadline(timeoutMs, late => this.#install(recipe, command, late, tell), closing);
      } finally {
        await instances.commands.remove(command);
      }
      await this.#reserve(layer, recipe);
      try {
        await this.#store(layer, recipe.key);
      } catch (error) {
        this.#options.disk.release(recipe.key, HOLDER);
        throw error;
      }
      // All callers may have released the layer meanwhile.
      if (!this.#uses.has(recipe.key)) this.#options.disk.release(recipe.key, HOLDER);
    } finally {
      ledger.release('build', size);
      release();
      await this.#options.removals.remove(work);
    }
  }

  /**
   * Passes the tool's output on until it ends. Fails with `failed_precondition` unless it exits with 0 before
   * `late` aborts.
   */
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

  /**
   * Counts the layer for its tenant before storing it, so that concurrent builds cannot both use the last
   * capacity.
   */
  async #reserve(layer: string, { key, tenant }: Recipe): Promise<void> {
    const { maxBytes, disk } = this.#options;
    const bytes = await diskUsage(layer);
    if (bytes > maxBytes)
      throw failedPrecondition(`the installed packages have ${bytes} bytes; the limit is ${maxBytes}`);
    await disk.acquire(tenant, key, HOLDER, async () => bytes);
    this.#bytes.set(key, bytes);
  }

  async #sizeOf(key: string): Promise<number> {
    const known = this.#bytes.get(key);
    if (known !== undefined) return known;
    const bytes = await diskUsage(this.pathOf(key));
    this.#bytes.set(key, bytes);
    return bytes;
  }

  /** Stores the layer under its key, complete even after a power cut: nothing checks it later. */
  async #store(layer: string, key: string): Promise<void> {
    const { directory, flush = flushFileSystem } = this.#options;
    await flush(layer).catch((error: unknown) => {
      throw unavailable('cannot flush the installed packages to the disk', { cause: error });
    });
    await rename(layer, this.pathOf(key));
    await flushDirectory(directory);
  }

  #specOf(instanceId: string, recipe: Recipe, layer: string, files: string): SandboxSpec {
    const { inside, rules } = this.#options;
    // The layer's files may contain its path, so build it at the path of its later use.
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

/** Single holder of a layer's disk space; `Layers` counts the uses behind it. */
const HOLDER = 'layer';
const FILES = '/opt/rookery/files';
