import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import {
  deadlineExceeded,
  type ErrorCode,
  failedPrecondition,
  messageOf,
  ServiceError,
  unavailable,
} from '../../core/error.ts';
import type { PortMapping } from '../../core/instance.ts';
import type { MountPolicy } from '../../core/mount.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { SandboxAccess } from '../access.ts';
import type {
  ExecRequest,
  ExecResult,
  ExitResult,
  ListedSandbox,
  LogRequest,
  ProbeResult,
  SandboxDriver,
  SandboxHandle,
  SandboxSpec,
  SandboxState,
  SandboxStats,
  StartedSandbox,
} from '../driver.ts';
import { FirstProcessAccess } from './access.ts';
import { bounded } from './bounded.ts';
import { readStats, removeGroups } from './control-groups.ts';
import { awaitExit, connectFirstProcess, endSandbox, recordKilled } from './first-process.ts';
import { FrameSocket } from './frame-socket.ts';
import { makeHandle, type ProcessSandbox, readExit, readHandle, readState, type SandboxStateFile } from './handle.ts';
import { isAlive, waitForEnd } from './kernel.ts';
import { findPythonDir, type Launcher, Launchers } from './launchers.ts';
import { readLogs } from './logs.ts';
import { type NetworkOptions, SHARED_NETWORK, sharedNetworkSentence } from './network.ts';
import { SandboxPorts } from './sandbox-ports.ts';
import {
  isolationOf,
  ownerWarnings,
  portWarnings,
  refuseWithoutIsolation,
  sourceOwners,
  startRequest,
} from './start-request.ts';

const PROBE_TIMEOUT_MS = 5_000;
const START_TIMEOUT_MS = 30_000;
const START_TRIES = 3;
/** How long a start that was given up may take to notice it. */
const GIVE_UP_TIMEOUT_MS = 5_000;
/** What a command may take beyond its own time until its outputs are here. */
const EXEC_MARGIN_MS = 15_000;
const STATS_TIMEOUT_MS = 5_000;
const DYING_MS = 2_000;
const DEFAULT_SPARES = 4;
const DEFAULT_IDLE_EXIT_MS = 300_000;

export interface ProcessDriverOptions {
  /** The server's data directory (resolved): sockets, logs and state of sandboxes are in `run` below it. */
  readonly dataDir: string;
  /** Instead of that `run`. */
  readonly runDir?: string;
  /** What may not be mounted, checked again when it is. */
  readonly mountPolicy: MountPolicy;
  readonly logger: Logger;
  /** Sandboxes without code that are kept ready per interpreter in use. */
  readonly spares?: number;
  /** A Python version (`3.11`) → the path of its interpreter. */
  readonly pythons?: Readonly<Record<string, string>>;
  /** Versions whose launcher `warm` starts. */
  readonly warm?: readonly string[];
  /** Layers of isolation to do without (`mount`, `cgroup.cpu`, …; `namespaces`, `cgroup`: all of that kind). */
  readonly disable?: readonly string[];
  /** How long a launcher without instances outlives a server that was killed. */
  readonly launcherIdleExitMs?: number;
  /** The host's network, but for sandboxes that cannot share it, when absent. */
  readonly network?: NetworkOptions;
  /** The directory of `rookery_launcher` and `rookery_runtime`; this installation's when absent. */
  readonly pythonDir?: string;
}

const NAMESPACES = ['mount', 'pid', 'ipc', 'uts', 'user', 'net'];

/**
 * Instances as processes of this machine, each in namespaces, a root and control groups of its own.
 *
 * A launcher per Python version forks them; from then on each is served by its own first process, which is all that the
 * other methods need: they work with any launcher dead. See docs/process-sandbox.md.
 */
export class ProcessDriver implements SandboxDriver {
  readonly name = 'process';
  readonly #options: ProcessDriverOptions;
  readonly #network: NetworkOptions;
  readonly #launchers: Launchers;
  readonly #exits = new Map<string, Promise<ExitResult>>();
  readonly #connections = new Set<FrameSocket>();
  readonly #ports: SandboxPorts;

  constructor(options: ProcessDriverOptions) {
    this.#options = options;
    this.#network = options.network ?? SHARED_NETWORK;
    this.#ports = new SandboxPorts(
      {
        dial: (handle, port, signal) => this.access(handle).dial(port, signal),
        ended: handle => this.#exitOf(handle),
      },
      options.logger,
    );
    this.#launchers = new Launchers({
      dataDir: options.dataDir,
      runDir: options.runDir ?? null,
      spares: options.spares ?? DEFAULT_SPARES,
      pythons: options.pythons ?? {},
      disable: expandLayers(options.disable ?? []),
      idleExitMs: options.launcherIdleExitMs ?? DEFAULT_IDLE_EXIT_MS,
      network: this.#network,
      pythonDir: options.pythonDir ?? findPythonDir(),
      logger: options.logger,
    });
  }

  get #instancesDir(): string {
    return join(this.#launchers.runDir, 'instances');
  }

  async probe(): Promise<ProbeResult> {
    try {
      const launcher = await bounded(
        this.#launchers.get(null),
        PROBE_TIMEOUT_MS,
        `the launcher did not answer within ${PROBE_TIMEOUT_MS / 1000} s`,
      );
      const { isolation, privileged, networkMissing } = launcher.hello;
      const has = (layer: string) => isolation.includes(layer);
      return {
        available: true,
        capabilities: {
          images: false,
          mounts: has('mount'),
          ports: networkMissing === null,
          users: privileged,
          cpuLimit: has('cgroup.cpu'),
          memoryLimit: has('cgroup.memory'),
          pidsLimit: has('cgroup.pids'),
          exec: true,
          isolation,
        },
        degraded: this.#degraded(launcher),
      };
    } catch (error) {
      return { available: false, reason: messageOf(error) };
    }
  }

  async warm(): Promise<void> {
    // Those of an earlier server that serve still are found now, and not by the first create.
    for (const version of new Set([...(this.#options.warm ?? []), ...(await this.#launchers.versionsLeft())])) {
      try {
        await this.#launchers.get(version);
      } catch (error) {
        this.#options.logger.warn({ version, error: messageOf(error) }, 'a launcher could not be warmed');
      }
    }
  }

  async start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox> {
    const tooLate = 'the sandbox did not start in time';
    const version = spec.command.kind === 'python' ? spec.command.version : null;
    const launcher = await bounded(this.#launchers.get(version), START_TIMEOUT_MS, tooLate, signal);
    refuseWithoutIsolation(spec, launcher);
    const warnings = sourceOwners(spec);
    const state = await this.#tryStarts(spec, version, launcher, signal);
    const { handle, portMappings } = await this.#ports.publish(state.handle, spec).catch(async error => {
      await this.remove(state.handle);
      throw error;
    });
    return {
      handle,
      endpoint: handle.endpoint,
      facts: {
        sandboxId: String(state.file.pid),
        nodeIp: '127.0.0.1',
        sandboxIp: state.file.address ?? '',
        portMappings,
        isolation: isolationOf(spec, launcher, state.file.address),
        warnings: [
          ...this.#degraded(launcher),
          ...state.warnings,
          ...ownerWarnings(await warnings, spec, launcher, state.uid),
          ...portWarnings(spec, portMappings, launcher),
        ],
      },
    };
  }

  async wait(handle: SandboxHandle, signal?: AbortSignal): Promise<ExitResult> {
    const ended = this.#exitOf(handle);
    if (signal === undefined) return await ended;
    return await bounded(ended, 2 ** 31 - 1, 'the sandbox has not ended', signal);
  }

  async stop(handle: SandboxHandle, graceMs: number): Promise<void> {
    const sandbox = await this.#complete(readHandle(handle));
    await endSandbox(sandbox, graceMs);
  }

  async remove(handle: SandboxHandle): Promise<void> {
    const sandbox = await this.#complete(readHandle(handle));
    this.#ports.close(handle.instanceId);
    await endSandbox(sandbox, 0);
    const groupsGone = await removeGroups(sandbox.groups);
    // Whoever waits for its end may be writing down how it ended at this moment: then once more.
    await rm(sandbox.directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 10 });
    this.#exits.delete(handle.instanceId);
    if (!groupsGone) {
      throw unavailable(
        `control groups of ${handle.instanceId} are still in use: ${Object.values(sandbox.groups.paths).join(', ')}`,
      );
    }
  }

  async inspect(handle: SandboxHandle): Promise<SandboxState> {
    const sandbox = readHandle(handle);
    const { firstProcess } = sandbox;
    if (firstProcess !== null && (await isAlive(firstProcess))) {
      await this.#ports.reopen(handle);
      return { state: 'running' };
    }
    const exit = await readExit(sandbox.directory);
    if (exit !== null) return { state: 'exited', exit };
    if (!(await exists(sandbox.directory))) return { state: 'gone' };
    return { state: 'exited', exit: await recordKilled(sandbox) };
  }

  async list(): Promise<readonly ListedSandbox[]> {
    const ids = await readdir(this.#instancesDir).catch(() => []);
    return await Promise.all(
      ids.map(async instanceId => {
        const directory = join(this.#instancesDir, instanceId);
        const handle = makeHandle(instanceId, directory, await readState(directory));
        const { firstProcess } = readHandle(handle);
        return { instanceId, handle, running: firstProcess !== null && (await isAlive(firstProcess)) };
      }),
    );
  }

  async exec(handle: SandboxHandle, request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    const connection = await this.#connectRunning(handle);
    const abort = () => connection.close();
    signal.addEventListener('abort', abort, { once: true });
    const timer = setTimeout(abort, request.timeoutMs + EXEC_MARGIN_MS);
    try {
      if (signal.aborted) throw deadlineExceeded('the command was given up before it began');
      connection.send({ op: 'exec' });
      connection.send(request);
      const header = await connection.nextMessage();
      if (typeof header?.error === 'string') throw unavailable(header.error);
      const stdout = header === null ? null : await connection.next();
      const stderr = header === null ? null : await connection.next();
      if (signal.aborted) throw deadlineExceeded('the command was given up by its caller');
      if (header === null || stdout === null || stderr === null) {
        throw unavailable('the sandbox ended before the command did');
      }
      return {
        returncode: header.returncode as number,
        stdout: stdout.toString('utf8'),
        stderr: stderr.toString('utf8'),
        truncated: header.truncated === true,
      };
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      connection.close();
    }
  }

  async stats(handle: SandboxHandle): Promise<SandboxStats> {
    const sandbox = readHandle(handle);
    const counted = await readStats(sandbox.groups);
    if (counted !== null) return counted;
    const connection = await this.#connectRunning(handle);
    try {
      connection.send({ op: 'stats' });
      const answer = await bounded(connection.nextMessage(), STATS_TIMEOUT_MS, 'the sandbox did not answer in time');
      if (answer === null) throw unavailable('the sandbox ended before it told what it uses');
      return answer as unknown as SandboxStats;
    } finally {
      connection.close();
    }
  }

  async *logs(handle: SandboxHandle, request: LogRequest, signal: AbortSignal): AsyncIterable<Buffer> {
    const sandbox = readHandle(handle);
    const ended = request.follow ? this.#exitOf(handle) : Promise.resolve();
    yield* readLogs(sandbox.directory, request, ended, signal);
  }

  /** Opens the ports of a sandbox that another driver has started; from here on they are this one's. Fails as a start does. */
  publish(
    handle: SandboxHandle,
    spec: SandboxSpec,
  ): Promise<{ handle: SandboxHandle; portMappings: readonly PortMapping[] }> {
    return this.#ports.publish(handle, spec);
  }

  access(handle: SandboxHandle): SandboxAccess {
    return new FirstProcessAccess(readHandle(handle), () => this.inspect(handle));
  }

  async close(): Promise<void> {
    for (const connection of this.#connections) connection.close();
    this.#connections.clear();
    this.#exits.clear();
    this.#ports.closeAll();
    await this.#launchers.close();
  }

  #degraded({ hello }: Launcher): readonly string[] {
    const missing = this.#network.use === 'own' ? (hello.networkMissing ?? null) : null;
    return missing === null ? hello.degraded : [...hello.degraded, sharedNetworkSentence(missing)];
  }

  /** A launcher that ends, or a spare that dies, in the very moment of a start is worth another try: nothing has begun then. */
  async #tryStarts(
    spec: SandboxSpec,
    version: string | null,
    launcher: Launcher,
    signal: AbortSignal,
  ): Promise<Started> {
    let serving = launcher;
    for (let attempt = 0; attempt < START_TRIES; attempt++) {
      const started = await this.#tryStart(spec, serving, signal);
      if (started !== null) return started;
      serving = await this.#launchers.getOther(version, serving);
    }
    throw unavailable('the launcher ended the start without a word; its log is in run/ of the data directory');
  }

  /** One start over one connection; null when it ended without an answer. Leaves nothing when it fails. */
  async #tryStart(spec: SandboxSpec, launcher: Launcher, signal: AbortSignal): Promise<Started | null> {
    if (signal.aborted) throw deadlineExceeded('the sandbox did not start in time');
    const connection = await FrameSocket.connect(launcher.startSocket).catch(() => null);
    if (connection === null) return null;
    this.#connections.add(connection);
    connection.send(startRequest(spec, this.#options.mountPolicy, this.#network.use));
    const reply = connection.nextMessage();
    let answer: Record<string, unknown> | null;
    try {
      answer = await bounded(reply, START_TIMEOUT_MS, 'the sandbox did not start in time', signal);
    } catch (error) {
      await this.#giveUp(connection, reply, spec.instanceId);
      throw error;
    }
    if (answer?.ok !== true) {
      this.#drop(connection);
      if (answer === null) return null;
      throw new ServiceError(answer.code as ErrorCode, String(answer.message));
    }
    const file = answer.data as SandboxStateFile;
    const handle = makeHandle(spec.instanceId, join(this.#instancesDir, spec.instanceId), file);
    // The connection of the start goes on as the one that tells the end.
    connection.unref();
    this.#keepExit(handle, connection);
    return { handle, file, uid: answer.uid as number, warnings: answer.warnings as string[] };
  }

  /** Ends a start whose caller does not wait for it: it sees the half-closed connection, or has succeeded and is removed. */
  async #giveUp(connection: FrameSocket, reply: Promise<unknown>, instanceId: string): Promise<void> {
    connection.endSending();
    await bounded(reply, GIVE_UP_TIMEOUT_MS, 'the start was given up').catch(() => undefined);
    this.#drop(connection);
    const directory = join(this.#instancesDir, instanceId);
    if (!(await exists(directory))) return;
    await this.remove(makeHandle(instanceId, directory, await readState(directory)));
  }

  #drop(connection: FrameSocket): void {
    this.#connections.delete(connection);
    connection.close();
  }

  #keepExit(handle: SandboxHandle, connection: FrameSocket): Promise<ExitResult> {
    const exit = awaitExit(connection, readHandle(handle)).finally(() => this.#drop(connection));
    exit.catch(() => this.#exits.delete(handle.instanceId));
    this.#exits.set(handle.instanceId, exit);
    return exit;
  }

  /** One shared wait per sandbox. */
  async #exitOf(handle: SandboxHandle): Promise<ExitResult> {
    const known = this.#exits.get(handle.instanceId);
    if (known !== undefined) return await known;
    const state = await this.inspect(handle);
    if (state.state === 'gone') return { code: null, signal: null, oomKilled: false, atMs: Date.now() };
    if (state.state === 'exited') return state.exit;
    const connection = await connectFirstProcess(readHandle(handle)).catch(() => null);
    const meanwhile = this.#exits.get(handle.instanceId);
    if (meanwhile !== undefined) {
      connection?.close();
      return await meanwhile;
    }
    if (connection === null) {
      // One that is being killed closes its socket a moment before it is gone.
      const { firstProcess } = readHandle(handle);
      if (firstProcess !== null && !(await waitForEnd(firstProcess, DYING_MS))) {
        throw unavailable(`the first process of ${handle.instanceId} does not answer`);
      }
      return await this.#exitOf(handle);
    }
    this.#connections.add(connection);
    connection.unref();
    connection.send({ op: 'watch' });
    return await this.#keepExit(handle, connection);
  }

  /** A handle of a start that was just beginning tells less than its directory by now. */
  async #complete(sandbox: ProcessSandbox): Promise<ProcessSandbox> {
    if (sandbox.firstProcess !== null) return sandbox;
    const state = await readState(sandbox.directory);
    return state === null ? sandbox : readHandle(makeHandle(sandbox.instanceId, sandbox.directory, state));
  }

  async #connectRunning(handle: SandboxHandle): Promise<FrameSocket> {
    const { state } = await this.inspect(handle);
    if (state !== 'running') throw failedPrecondition(`the sandbox of ${handle.instanceId} does not run`);
    return await connectFirstProcess(readHandle(handle));
  }
}

interface Started {
  readonly handle: SandboxHandle;
  readonly file: SandboxStateFile;
  readonly uid: number;
  readonly warnings: readonly string[];
}

function expandLayers(names: readonly string[]): readonly string[] {
  return names.flatMap(name => (name === 'namespaces' ? NAMESPACES : [name]));
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch {
    return false;
  }
}
