import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import {
  deadlineExceeded,
  type ErrorCode,
  failedPrecondition,
  messageOf,
  ServiceError,
  unavailable,
} from '../../core/error.ts';
import type { PortMapping, SandboxType } from '../../core/instance.ts';
import { withDeadline, within } from '../../lib/deadline.ts';
import { onAbort } from '../../lib/linked-signal.ts';
import { OpenedLog } from '../../lib/opened-log.ts';
import { outputText } from '../../lib/output-text.ts';
import { forEachOf } from '../../lib/parallel.ts';
import type { Removals } from '../../lib/removals.ts';
import { isAbsent } from '../../lib/system-errors.ts';
import type { Logger } from '../../telemetry/logger.ts';
import type { SandboxAccess } from '../access.ts';
import {
  type ExecRequest,
  type ExecResult,
  type ExitResult,
  type ListedSandbox,
  type LogChunks,
  type LogRequest,
  type ProbeResult,
  type SandboxDriver,
  type SandboxHandle,
  type SandboxSpec,
  type SandboxState,
  type SandboxStats,
  type StartedSandbox,
  sandboxEnded,
} from '../driver.ts';
import { InitAccess } from './access.ts';
import { readStats, removeGroups } from './control-groups.ts';
import { type DiskOptions, DiskWatch } from './disk-watch.ts';
import type { FrameSocket } from './frame-socket.ts';
import { freeze, isFrozen, thaw } from './freezer.ts';
import {
  makeHandle,
  type ProcessSandbox,
  readExit,
  readHandle,
  readState,
  removeOwnFiles,
  removeState,
  type SandboxStateFile,
} from './handle.ts';
import { askStats, askToEnd, connectInit, endSandbox, recordKilled, type Told, type Watch, watchInit } from './init.ts';
import { isAlive, waitForEnd } from './kernel.ts';
import { readLogs } from './logs.ts';
import { CHOSEN_NETWORK_SENTENCE, type NetworkOptions, sharedNetworkSentence } from './network.ts';
import { SandboxPorts } from './ports.ts';
import { type HostFacts, isAlone } from './start-request.ts';

/** Time after a command's own timeout until its outputs must have arrived. */
const EXEC_MARGIN_MS = 15_000;
const DYING_MS = 2_000;
const LISTED_AT_ONCE = 32;

/** A sandbox whose exit this process awaits or knows. */
interface WatchedSandbox {
  readonly ended: Promise<ExitResult>;
  /** Connection to the init of the running sandbox. */
  watch?: Watch | undefined;
  /** True if the sandbox has its own pid namespace: an exit that its init reports is complete. */
  readonly isEnclosed: boolean;
  /** Exit of a stopped sandbox whose init has reported the end and may still be exiting itself. */
  leaving?: Told | undefined;
}

export interface HostDriverOptions {
  /** The parent of `instances`, which contains the sandboxes' directories. */
  readonly runDir: string;
  readonly network: NetworkOptions;
  readonly removals: Removals;
  readonly disk: DiskOptions;
  readonly logger: Logger;
}

/**
 * A driver whose sandboxes use the host's own files. Subclasses start the sandboxes.
 * After the start each sandbox is served by its own init. All operations here need only that process and its
 * files. See docs/internals/process-sandbox.md.
 */
export abstract class HostDriver implements SandboxDriver {
  abstract readonly name: SandboxType;
  /** The parent of all sandbox directories. */
  readonly #instancesDir: string;
  readonly #network: NetworkOptions;
  /** Sandboxes whose exits are awaited or known, by instance id. */
  readonly #watched = new Map<string, WatchedSandbox>();
  readonly #closing = new AbortController();
  readonly #ports: SandboxPorts;
  readonly #removals: Removals;
  readonly #disk: DiskWatch;
  readonly #logger: Logger;
  #hasTold = false;

  constructor({ runDir, network, removals, disk, logger }: HostDriverOptions) {
    const instancesDir = join(runDir, 'instances');
    this.#instancesDir = instancesDir;
    this.#network = network;
    this.#removals = removals;
    this.#disk = new DiskWatch({ ...disk, instancesDir, end: (id, cause) => this.#end(id, cause), logger });
    this.#logger = logger;
    this.#ports = new SandboxPorts(
      {
        dial: (handle, port, signal) => this.access(handle).dial(port, signal),
        ended: handle => this.#exitOf(handle),
      },
      logger,
    );
  }

  abstract probe(): Promise<ProbeResult>;

  abstract start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox>;

  async wait(handle: SandboxHandle, signal?: AbortSignal): Promise<ExitResult> {
    const ended = this.#exitOf(handle);
    if (signal === undefined) return await ended;
    return await within(ended, 2 ** 31 - 1, 'the sandbox has not ended', signal);
  }

  async pause(handle: SandboxHandle): Promise<void> {
    await freeze(readHandle(handle));
    // Otherwise their connections would wait for the resume; the next inspection opens them again.
    this.#ports.close(handle.instanceId);
  }

  async resume(handle: SandboxHandle): Promise<void> {
    await thaw(readHandle(handle));
  }

  async stop(handle: SandboxHandle, graceMs: number): Promise<void> {
    const sandbox = await this.#complete(readHandle(handle));
    await thaw(sandbox);
    const watched = this.#watched.get(handle.instanceId);
    const watch = watched?.watch;
    if (watched === undefined || watch === undefined || !watched.isEnclosed)
      return await endSandbox(sandbox, graceMs, watch ?? null);
    const told = await askToEnd(watch, graceMs);
    if (told === null) return await endSandbox(sandbox, 0, watched.watch ?? null);
    if (watched.watch === watch) watched.leaving = told;
  }

  async remove(handle: SandboxHandle, cleared?: () => void): Promise<void> {
    const sandbox = await this.#complete(readHandle(handle));
    await thaw(sandbox);
    this.#ports.close(handle.instanceId);
    this.#disk.drop(handle.instanceId);
    const groupsGone = await this.#clear(sandbox);
    if (groupsGone) cleared?.();
    await removeState(sandbox.directory);
    // `Removals` removes the rest, because a program could write to a subdirectory.
    await this.#removals.remove(sandbox.directory);
    // A process that has left its groups exits a few instructions later.
    if (sandbox.init !== null) await waitForEnd(sandbox.init, DYING_MS);
    this.#watched.delete(handle.instanceId);
    if (!groupsGone) {
      throw unavailable(
        `control groups of ${handle.instanceId} are still in use: ${Object.values(sandbox.groups.paths).join(', ')}`,
      );
    }
  }

  /**
   * Ends remaining processes and removes the groups and the known files. Returns false if groups are left.
   */
  async #clear(sandbox: ProcessSandbox): Promise<boolean> {
    const { instanceId, groups, directory } = sandbox;
    const { watch = null, leaving } = this.#watched.get(instanceId) ?? {};
    if (leaving === undefined) await endSandbox(sandbox, 0, watch);
    // Init writes nothing after it has reported the end. Its namespaces take as long to end as the files take
    // to be removed.
    const emptied = leaving?.closed ?? Promise.resolve();
    const [groupsGone] = await Promise.all([emptied.then(() => removeGroups(groups)), removeOwnFiles(directory)]);
    // A removed group was empty, so init has ended too.
    const isGone = leaving === undefined || (groupsGone && Object.keys(groups.paths).length > 0);
    if (!isGone) await endSandbox(sandbox, 0, watch);
    return groupsGone;
  }

  async inspect(handle: SandboxHandle): Promise<SandboxState> {
    const sandbox = readHandle(handle);
    // Init records the exit, reports it, and stays alive for a moment after that.
    const exit = await readExit(sandbox.directory);
    if (exit !== null) return { state: 'exited', exit };
    const { init } = sandbox;
    if (init !== null && isAlive(init)) {
      if (isFrozen(sandbox)) return { state: 'paused' };
      await this.#ports.reopen(handle);
      return { state: 'running' };
    }
    const late = await readExit(sandbox.directory);
    if (late !== null) return { state: 'exited', exit: late };
    if (!(await exists(sandbox.directory))) return { state: 'gone' };
    return { state: 'exited', exit: await recordKilled(sandbox) };
  }

  async list(): Promise<readonly ListedSandbox[]> {
    const ids = await readdir(this.#instancesDir).catch(orAbsent([]));
    const listed: ListedSandbox[] = [];
    // Bounded, because each check holds files open.
    await forEachOf(ids, LISTED_AT_ONCE, async id => void listed.push(await this.#inspect(id)));
    return listed;
  }

  async #inspect(instanceId: string): Promise<ListedSandbox> {
    // Lets calls proceed between the checks of hundreds of sandboxes.
    await setImmediate();
    const directory = this.directoryOf(instanceId);
    const handle = this.handleOf(instanceId, await readState(directory));
    const { init } = readHandle(handle);
    const isRunning = init !== null && isAlive(init) && (await readExit(directory)) === null;
    return { instanceId, handle, running: isRunning };
  }

  async exec(handle: SandboxHandle, request: ExecRequest, signal: AbortSignal): Promise<ExecResult> {
    const connection = await this.#connectRunning(handle);
    const run = async (late: AbortSignal): Promise<ExecResult> => {
      if (signal.aborted) throw deadlineExceeded('the command was cancelled before it started');
      onAbort(late, () => connection.close());
      connection.send({ op: 'exec' }, request);
      const header = await connection.nextMessage();
      if (header !== null && header.ok !== true) throw refusalOf(header);
      const stdout = header === null ? null : await connection.next();
      const stderr = header === null ? null : await connection.next();
      if (signal.aborted) throw deadlineExceeded('the caller cancelled the command');
      if (header === null || stdout === null || stderr === null) throw await this.#lostCommand(handle);
      return {
        returncode: header.returncode as number,
        stdout: outputText(stdout, request.maxOutputBytes),
        stderr: outputText(stderr, request.maxOutputBytes),
        truncated: header.truncated === true,
      };
    };
    try {
      return await withDeadline(request.timeoutMs + EXEC_MARGIN_MS, run, signal);
    } finally {
      connection.close();
    }
  }

  /** Returns why a command ended without an answer: its sandbox ended, or the process that served it. */
  async #lostCommand(handle: SandboxHandle): Promise<ServiceError> {
    const ended = this.#exitOf(handle).then(sandboxEnded);
    // The sandbox records its end a moment after its processes have ended.
    return await within(ended, DYING_MS, 'the sandbox has not ended').catch(() => {
      return unavailable(
        'the process inside that served the command ended before the command did; the sandbox runs on',
      );
    });
  }

  async stats(handle: SandboxHandle): Promise<SandboxStats> {
    const sandbox = readHandle(handle);
    const counted = await readStats(sandbox.groups);
    if (counted !== null) return counted;
    return await askStats(await this.#connectRunning(handle));
  }

  logs(handle: SandboxHandle, request: LogRequest, signal: AbortSignal): LogChunks {
    const ended = () => (request.follow ? this.#exitOf(handle) : Promise.resolve());
    return new OpenedLog(() => readLogs(readHandle(handle).directory, request, ended(), signal));
  }

  access(handle: SandboxHandle): SandboxAccess {
    return new InitAccess(readHandle(handle), () => this.inspect(handle));
  }

  async close(): Promise<void> {
    this.#closing.abort();
    for (const { watch } of this.#watched.values()) watch?.connection.close();
    this.#watched.clear();
    this.#ports.closeAll();
    this.#disk.close();
  }

  /**
   * Returns the handle of a sandbox. `state` is null for one that has not started, or has not reported its
   * start.
   */
  protected handleOf(instanceId: string, state: SandboxStateFile | null): SandboxHandle {
    return makeHandle(this.name, instanceId, this.directoryOf(instanceId), state);
  }

  protected directoryOf(instanceId: string): string {
    return join(this.#instancesDir, instanceId);
  }

  /** Opens the ports that the spec requests, and adds them to the handle. Removes the sandbox on failure. */
  protected async publish(
    handle: SandboxHandle,
    spec: SandboxSpec,
  ): Promise<{ readonly handle: SandboxHandle; readonly portMappings: readonly PortMapping[] }> {
    try {
      await this.#disk.add(spec);
      return await this.#ports.publish(handle, spec);
    } catch (error) {
      await this.remove(handle);
      throw error;
    }
  }

  /** Removes the residue of an abandoned start. Returns false if there is none. */
  protected async removeStarted(instanceId: string): Promise<boolean> {
    const directory = this.directoryOf(instanceId);
    if (!(await exists(directory))) return false;
    await this.remove(this.handleOf(instanceId, await readState(directory)));
    return true;
  }

  /**
   * Waits for the end of a sandbox that init will report over `connection`, which this driver closes from now
   * on.
   * `isEnclosed`: the sandbox has its own pid namespace.
   */
  protected watch(handle: SandboxHandle, connection: FrameSocket, isEnclosed = false): Promise<ExitResult> {
    connection.unref();
    const { instanceId } = handle;
    const { told, ended: seen } = watchInit(connection, readHandle(handle), this.#closing.signal);
    const ended = seen.finally(() => {
      watched.watch = undefined;
      watched.leaving = undefined;
      this.#disk.drop(instanceId);
      connection.close();
    });
    const watched: WatchedSandbox = { ended, watch: { connection, told, ended }, isEnclosed };
    ended.catch(() => {
      if (this.#watched.get(instanceId) === watched) this.#watched.delete(instanceId);
    });
    this.#watched.set(instanceId, watched);
    return ended;
  }

  protected probed(facts: HostFacts): ProbeResult {
    const has = (layer: string) => facts.isolation.includes(layer);
    return {
      available: true,
      capabilities: {
        images: false,
        mounts: has('mount'),
        ports: facts.networkMissing === null,
        users: facts.privileged,
        cpuLimit: has('cgroup.cpu'),
        memoryLimit: has('cgroup.memory'),
        pidsLimit: has('cgroup.pids'),
        exec: true,
        isolation: facts.isolation,
      },
      degraded: this.degraded(facts),
    };
  }

  protected degraded({ degraded, networkMissing }: HostFacts): readonly string[] {
    const missing = this.#network.use === 'own' ? (networkMissing ?? null) : null;
    const sentences = missing === null ? degraded : [...degraded, sharedNetworkSentence(missing)];
    const all = this.#network.use === 'shared' ? [...sentences, CHOSEN_NETWORK_SENTENCE] : sentences;
    if (!this.#hasTold && all.length > 0) {
      this.#hasTold = true;
      this.#logger.warn({ degraded: all }, `${this.name} sandboxes are less isolated here than they could be`);
    }
    return sentences;
  }

  /** Returns the features that are degraded in a sandbox. */
  protected degradedIn(spec: SandboxSpec, facts: HostFacts, file: SandboxStateFile): readonly string[] {
    const sentences = this.degraded(facts);
    return this.#network.use === 'shared' && !isAlone(spec, file) ? [...sentences, CHOSEN_NETWORK_SENTENCE] : sentences;
  }

  /** Returns the exit; all waits for one sandbox share one promise. */
  async #exitOf(handle: SandboxHandle): Promise<ExitResult> {
    const known = this.#watched.get(handle.instanceId);
    if (known !== undefined) return await known.ended;
    // Callers have mostly inspected the sandbox already, so a sandbox that answers is not inspected again.
    const connection = await connectInit(readHandle(handle)).catch(() => null);
    const meanwhile = this.#watched.get(handle.instanceId);
    if (meanwhile !== undefined) {
      connection?.close();
      return await meanwhile.ended;
    }
    if (connection !== null) {
      connection.send({ op: 'watch' });
      const ended = this.watch(handle, connection);
      await this.#ports.reopen(handle);
      return await ended;
    }
    const state = await this.inspect(handle);
    if (state.state === 'gone') return { code: null, signal: null, oomKilled: false, atMs: Date.now() };
    if (state.state === 'exited') return state.exit;
    // An init that is being killed closes its socket a moment before it disappears.
    const { init } = readHandle(handle);
    if (init !== null && !(await waitForEnd(init, DYING_MS))) {
      throw unavailable(`the init of ${handle.instanceId} does not answer`);
    }
    return await this.#exitOf(handle);
  }

  async #end(instanceId: string, cause: string): Promise<void> {
    const state = await readState(this.directoryOf(instanceId));
    if (state === null) return;
    const sandbox = readHandle(this.handleOf(instanceId, state));
    await thaw(sandbox);
    await endSandbox(sandbox, 0, this.#watched.get(instanceId)?.watch ?? null, cause);
  }

  /** Adds the facts that a handle from the beginning of a start lacks, from the sandbox's directory. */
  async #complete(sandbox: ProcessSandbox): Promise<ProcessSandbox> {
    if (sandbox.init !== null) return sandbox;
    const state = await readState(sandbox.directory);
    return state === null ? sandbox : readHandle(this.handleOf(sandbox.instanceId, state));
  }

  async #connectRunning(handle: SandboxHandle): Promise<FrameSocket> {
    const { state } = await this.inspect(handle);
    if (state !== 'running') throw failedPrecondition(`the sandbox of ${handle.instanceId} does not run`);
    return await connectInit(readHandle(handle));
  }
}

/** Converts a refusal to an error. Sandboxes from older versions send a reason without a code. */
function refusalOf({ code, message, error }: Record<string, unknown>): ServiceError {
  if (typeof error === 'string') return unavailable(error);
  return new ServiceError(code as ErrorCode, String(message));
}

async function exists(path: string): Promise<boolean> {
  return await stat(path).then(() => true, orAbsent(false));
}

/**
 * Returns a handler that maps a missing file to `value`. Any other error proves nothing, and fails with
 * `unavailable`.
 */
function orAbsent<T>(value: T): (error: unknown) => T {
  return error => {
    if (isAbsent(error)) return value;
    throw unavailable(`the sandboxes cannot be looked at: ${messageOf(error)}`, { cause: error });
  };
}
