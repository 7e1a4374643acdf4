import { join } from 'node:path';
import { deadlineExceeded, type ErrorCode, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { within } from '../../lib/deadline.ts';
import { findPythonDir } from '../../lib/own-paths.ts';
import type { ProbeResult, SandboxHandle, SandboxSpec, StartedSandbox } from '../driver.ts';
import { UNBOUNDED_DISK } from '../host/disk-watch.ts';
import type { FrameSocket } from '../host/frame-socket.ts';
import type { SandboxStateFile } from '../host/handle.ts';
import { HostDriver } from '../host/host-driver.ts';
import { type NetworkOptions, networkKindOf, SHARED_NETWORK } from '../host/network.ts';
import type { PythonHostOptions } from '../host/settings.ts';
import {
  isolationOf,
  ownerWarnings,
  portWarnings,
  refuseWithoutIsolation,
  sourceOwners,
  startRequest,
} from '../host/start-request.ts';
import { StartConnections } from './start-connections.ts';
import { type Zygote, type ZygoteNeed, Zygotes } from './zygotes.ts';

const PROBE_TIMEOUT_MS = 5_000;
const START_TIMEOUT_MS = 30_000;
const START_TRIES = 3;
/** Time limit for an abandoned start to end. */
const GIVE_UP_TIMEOUT_MS = 5_000;
const DEFAULT_SPARES = 4;
/** The locale with which `runtimes/python/rookery_zygote/resident.py` starts the resident program. */
const RESIDENT_LANG = 'C.UTF-8';
/**
 * Variables that a program reads at its start. A program that needs one of them cannot be started in advance.
 */
const READ_AT_START = /^(DYLD_|ICU_|LC_|LD_|MALLOC_|NODE_|OPENSSL_|SSL_|UV_)/;
const DEFAULT_IDLE_EXIT_MS = 300_000;

export interface ProcessDriverOptions extends PythonHostOptions {
  /** Time that a zygote without instances outlives a killed server. */
  readonly zygoteIdleExitMs?: number;
}

const NAMESPACES = ['mount', 'pid', 'ipc', 'uts', 'user', 'user_limits', 'net'];

/**
 * Runs instances as processes of this machine, each with its own namespaces, root and control groups.
 *
 * A zygote per Python version forks them. Later operations do not need the zygote.
 * See docs/internals/process-sandbox.md.
 */
export class ProcessDriver extends HostDriver {
  readonly name = 'process';
  readonly #options: ProcessDriverOptions;
  readonly #network: NetworkOptions;
  readonly #zygotes: Zygotes;
  readonly #connections = new StartConnections();
  /** Connections of starts in progress. */
  readonly #starting = new Set<FrameSocket>();
  readonly #starts = new Set<Promise<unknown>>();
  #isClosed = false;

  constructor(options: ProcessDriverOptions) {
    const network = options.network ?? SHARED_NETWORK;
    const { dataDir, removals, logger } = options;
    super({ runDir: join(dataDir, 'run'), network, removals, disk: options.disk ?? UNBOUNDED_DISK, logger });
    this.#options = options;
    this.#network = network;
    this.#zygotes = new Zygotes({
      dataDir: options.dataDir,
      spares: options.spares ?? DEFAULT_SPARES,
      pythons: options.pythons ?? {},
      environment: options.environment,
      disable: expandLayers(options.disable ?? []),
      idleExitMs: options.zygoteIdleExitMs ?? DEFAULT_IDLE_EXIT_MS,
      network: this.#network,
      pythonDir: options.pythonDir ?? findPythonDir(),
      logger: options.logger,
    });
  }

  async probe(): Promise<ProbeResult> {
    try {
      const zygote = await within(
        this.#zygotes.get({ version: null, resident: [], tenant: '' }),
        PROBE_TIMEOUT_MS,
        `the zygote did not answer within ${PROBE_TIMEOUT_MS / 1000} s`,
      );
      return this.probed(zygote.hello);
    } catch (error) {
      const mayPass = !(error instanceof ServiceError && error.code === 'failed_precondition');
      return { available: false, reason: messageOf(error), mayPass };
    }
  }

  async warm(): Promise<void> {
    // Zygotes of an earlier server that still run are found now, instead of by the first create.
    for (const version of new Set([...(this.#options.warm ?? []), ...(await this.#zygotes.versionsLeft())])) {
      try {
        await this.#zygotes.get({ version, resident: [], tenant: '' });
      } catch (error) {
        this.#options.logger.warn({ version, error: messageOf(error) }, 'zygote warm-up failed');
      }
    }
  }

  async start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox> {
    if (this.#isClosed) throw closed();
    const started = this.#start(spec, signal);
    this.#starts.add(started);
    try {
      return await started;
    } finally {
      this.#starts.delete(started);
    }
  }

  async #start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox> {
    const need = needOf(spec, this.#options.zygotePerTenant === true);
    const zygote = await this.#zygote(need, null, signal);
    refuseWithoutIsolation(spec, zygote, this.#network.use);
    const warnings = sourceOwners(spec);
    const state = await this.#tryStarts(spec, need, zygote, signal);
    const { handle, portMappings } = await this.publish(state.handle, spec);
    return {
      handle,
      endpoint: handle.endpoint,
      stages: state.stages,
      facts: {
        sandboxId: String(state.file.pid),
        nodeIp: '127.0.0.1',
        sandboxIp: state.file.address ?? '',
        portMappings,
        isolation: isolationOf(spec, zygote, state.file),
        warnings: [
          ...this.degradedIn(spec, zygote.hello, state.file),
          ...state.warnings,
          ...ownerWarnings(await warnings, spec, zygote, state.uid),
          ...portWarnings(spec, portMappings, zygote),
        ],
      },
    };
  }

  override async close(): Promise<void> {
    this.#isClosed = true;
    this.#connections.close();
    for (const connection of this.#starting) this.#drop(connection);
    // Starts in progress fail now, and remove their residue.
    await Promise.allSettled(this.#starts);
    await super.close();
    await this.#zygotes.close();
  }

  /**
   * Starts the sandbox, with up to `START_TRIES` tries.
   * A retry is safe when the zygote or its worker ends during a start: no code runs before the worker has
   * created the instance's directory.
   */
  async #tryStarts(spec: SandboxSpec, need: ZygoteNeed, zygote: Zygote, signal: AbortSignal): Promise<Started> {
    let serving = zygote;
    for (let attempt = 0; attempt < START_TRIES; attempt++) {
      const started = await this.#tryStart(spec, serving, signal);
      if (started !== null) return started;
      serving = await this.#zygote(need, serving, signal);
    }
    throw unavailable(
      'the zygote closed the connection before it answered the start; its log is in run/ of the data directory',
    );
  }

  /**
   * Returns the zygote to use, or another one after `tried` has not answered. Fails with `unavailable`.
   * Retries once if a zygote ends while it starts.
   */
  async #zygote(need: ZygoteNeed, tried: Zygote | null, signal: AbortSignal): Promise<Zygote> {
    const get = () => (tried === null ? this.#zygotes.get(need) : this.#zygotes.getOther(need, tried));
    const inTime = (zygote: Promise<Zygote>) =>
      within(zygote, START_TIMEOUT_MS, 'the zygote did not answer in time', signal);
    try {
      return await inTime(get().catch(error => (isUnavailable(error) ? get() : Promise.reject(error))));
    } catch (error) {
      if (!(error instanceof ServiceError) || error.code !== 'deadline_exceeded' || signal.aborted) throw error;
      // No step of the start has run, so the code is `unavailable`.
      throw unavailable(error.message, { cause: error });
    }
  }

  /**
   * Makes one start over one connection. Returns null when the connection ended without an answer before the
   * start began.
   * Removes everything on failure.
   */
  async #tryStart(spec: SandboxSpec, zygote: Zygote, signal: AbortSignal): Promise<Started | null> {
    if (signal.aborted) throw deadlineExceeded('the sandbox did not start in time');
    const kind = networkKindOf(spec, this.#network.use, zygote.hello.networkMissing ?? null);
    const connection = await this.#connections.connect(zygote, kind ?? 'usual');
    if (this.#isClosed) {
      connection?.close();
      throw closed();
    }
    if (connection === null) return null;
    this.#starting.add(connection);
    connection.send(startRequest(spec, this.#options.mountPolicy, this.#network.use));
    const reply = connection.nextMessage();
    let answer: Record<string, unknown> | null;
    try {
      answer = await within(reply, START_TIMEOUT_MS, 'the sandbox did not start in time', signal);
    } catch (error) {
      await this.#cancelStart(connection, reply, spec.instanceId);
      throw error;
    }
    if (answer?.ok !== true) {
      this.#drop(connection);
      if (answer === null) {
        // The worker was killed after it created the instance's directory. The code may have begun, and must
        // not run twice.
        if (await this.removeStarted(spec.instanceId))
          throw unavailable(`the sandbox of ${spec.instanceId} ended before it had answered its start`);
        return null;
      }
      throw new ServiceError(answer.code as ErrorCode, String(answer.message));
    }
    const file = answer.data as SandboxStateFile;
    const handle = this.handleOf(spec.instanceId, file);
    // The start's connection stays open: init reports the end over it.
    this.#starting.delete(connection);
    this.watch(handle, connection, isolationOf(spec, zygote, file).includes('pid'));
    // Without spares, no worker is waiting that a connection could reserve.
    if (this.#options.spares !== 0) this.#connections.reserve(zygote);
    const { uid, warnings, stages } = answer as Pick<Started, 'uid' | 'warnings' | 'stages'>;
    return { handle, file, uid, warnings, stages };
  }

  /**
   * Ends a start whose client has left: the start sees the half-closed connection, or has succeeded and is
   * removed.
   */
  async #cancelStart(connection: FrameSocket, reply: Promise<unknown>, instanceId: string): Promise<void> {
    connection.endSending();
    await within(reply, GIVE_UP_TIMEOUT_MS, 'no answer to the cancelled start').catch(() => undefined);
    this.#drop(connection);
    await this.removeStarted(instanceId);
  }

  #drop(connection: FrameSocket): void {
    this.#starting.delete(connection);
    connection.close();
  }
}

function needOf({ command, env, maxOpenFiles, rootfs, tenant }: SandboxSpec, isOfTenant: boolean): ZygoteNeed {
  // The resident program starts with the usual environment, user and limits; other specs cannot use it.
  const isUsual =
    rootfs.user === '' &&
    maxOpenFiles === LIMITS.openFiles &&
    env.LANG === RESIDENT_LANG &&
    !Object.keys(env).some(name => READ_AT_START.test(name));
  return {
    version: command.kind === 'python' ? command.version : null,
    resident: command.kind === 'exec' && command.canWait === true && isUsual ? command.argv : [],
    tenant: isOfTenant ? tenant : '',
  };
}

function closed(): ServiceError {
  return unavailable('the process driver is closed');
}

function isUnavailable(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'unavailable';
}

interface Started {
  readonly handle: SandboxHandle;
  readonly file: SandboxStateFile;
  readonly uid: number;
  readonly warnings: readonly string[];
  /** Milliseconds of each phase inside. */
  readonly stages: Readonly<Record<string, number>>;
}

function expandLayers(names: readonly string[]): readonly string[] {
  return names.flatMap(name => (name === 'namespaces' ? NAMESPACES : [name]));
}
