import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { type ErrorCode, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import { linkedTo, onAbort, sharedController } from '../../lib/linked-signal.ts';
import { findPythonDir } from '../../lib/own-paths.ts';
import type { ListedSandbox, ProbeResult, SandboxHandle, SandboxSpec, StartedSandbox } from '../driver.ts';
import { UNBOUNDED_DISK } from '../host/disk-watch.ts';
import { readState, type SandboxStateFile } from '../host/handle.ts';
import { HostDriver } from '../host/host-driver.ts';
import { Interpreters } from '../host/interpreters.ts';
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
import { Programs } from './programs.ts';
import { dismissShim, type Shim } from './shim.ts';
import { Shims, sweep } from './shims.ts';
import { readAddress, Supervisord } from './supervisord.ts';

const PROBE_TIMEOUT_MS = 4_500;
const NO_PROGRAM = `no program that supervisord started has answered within ${PROBE_TIMEOUT_MS / 1000} s`;
const START_TIMEOUT_MS = 30_000;
const START_TRIES = 3;
/** Time limit for an abandoned start to end. */
const GIVE_UP_TIMEOUT_MS = 5_000;
const DEFAULT_SPARES = 2;

export interface SupervisorDriverOptions extends PythonHostOptions {
  /** Address of supervisord: `unix:///path`, `http://host:port` or `http://user:password@host:port`. */
  readonly url: string;
  /** A file with `user:password`; null: none. */
  readonly credentialsFile: string | null;
  /** The directory from which supervisord reads program sections. */
  readonly includeDir: string;
}

/**
 * Runs instances as programs of the operator's supervisord, which starts them and owns their life.
 * Inside they are process sandboxes, and after the start their own init serves them. See
 * docs/operate/supervisor.md.
 */
export class SupervisorDriver extends HostDriver {
  readonly name = 'supervisor';
  readonly #options: SupervisorDriverOptions;
  readonly #network: NetworkOptions;
  readonly #runDir: string;
  readonly #programs: Programs;
  readonly #shims: Shims;
  readonly #closing = sharedController();
  readonly #starts = new Set<Promise<unknown>>();
  #swept: Promise<void> | null = null;

  constructor(options: SupervisorDriverOptions) {
    const { dataDir, removals, logger } = options;
    const runDir = join(dataDir, 'run', 'supervisor');
    const network = options.network ?? SHARED_NETWORK;
    super({ runDir, network, removals, disk: options.disk ?? UNBOUNDED_DISK, logger });
    this.#options = options;
    this.#network = network;
    this.#runDir = runDir;
    const pythonDir = options.pythonDir ?? findPythonDir();
    const supervisord = new Supervisord(() => readAddress(options.url, options.credentialsFile));
    // Two services on one supervisord distinguish their programs by a hash of the data directory.
    const label = createHash('sha256').update(dataDir).digest('hex').slice(0, 8);
    this.#programs = new Programs(supervisord, options.includeDir, `rookery-${label}-`, logger);
    this.#shims = new Shims({
      runDir: this.#runDir,
      dataDir,
      pythonDir,
      spares: options.spares ?? DEFAULT_SPARES,
      disable: options.disable ?? [],
      network: this.#network,
      interpreters: new Interpreters(options.pythons ?? {}, options.environment),
      programs: this.#programs,
      removals,
      logger,
    });
  }

  async probe(): Promise<ProbeResult> {
    try {
      const shim = await within(this.#tryShim(), PROBE_TIMEOUT_MS, NO_PROGRAM);
      return this.probed(shim.hello);
    } catch (error) {
      const mayPass = !(error instanceof ServiceError && error.code === 'failed_precondition');
      return { available: false, reason: messageOf(error), mayPass };
    }
  }

  async warm(): Promise<void> {
    for (const version of this.#options.warm ?? []) this.#shims.warm(version);
  }

  async start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox> {
    if (this.#closing.signal.aborted) throw closed();
    const { controller, unlink } = linkedTo(signal);
    const release = onAbort(this.#closing.signal, () => controller.abort());
    const started = this.#start(spec, controller.signal);
    this.#starts.add(started);
    try {
      return await started;
    } catch (error) {
      throw this.#closing.signal.aborted ? closed() : error;
    } finally {
      this.#starts.delete(started);
      release();
      unlink();
    }
  }

  async #start(spec: SandboxSpec, signal: AbortSignal): Promise<StartedSandbox> {
    void this.#sweep();
    const version = spec.command.kind === 'python' ? spec.command.version : null;
    const owners = sourceOwners(spec);
    try {
      const { shim, file, uid, warnings, stages } = await this.#tryStarts(spec, version, signal);
      const { handle, portMappings } = await this.publish(this.handleOf(spec.instanceId, file), spec);
      return {
        handle,
        endpoint: handle.endpoint,
        stages,
        facts: {
          sandboxId: shim.program,
          nodeIp: '127.0.0.1',
          sandboxIp: file.address ?? '',
          portMappings,
          isolation: isolationOf(spec, shim, file),
          warnings: [
            ...this.degradedIn(spec, shim.hello, file),
            ...warnings,
            ...ownerWarnings(await owners, spec, shim, uid),
            ...portWarnings(spec, portMappings, shim),
          ],
        },
      };
    } finally {
      this.#shims.refill(version);
    }
  }

  override async remove(handle: SandboxHandle): Promise<void> {
    const program = await this.#programOf(handle);
    await this.stop(handle, 0);
    // Before the directory is removed: while it exists, the program is known to belong to an instance.
    if (program !== null) await this.#programs.remove(program);
    await super.remove(handle);
  }

  override async list(): Promise<readonly ListedSandbox[]> {
    void this.#sweep();
    return await super.list();
  }

  override async close(): Promise<void> {
    this.#closing.abort();
    // Starts in progress fail now, and remove their residue.
    await Promise.allSettled(this.#starts);
    await this.#swept;
    await this.#shims.close();
    await this.#programs.repeatRemovals();
    await super.close();
  }

  /** Takes a waiting shim and returns it to the pool. Shows that supervisord can run programs. */
  async #tryShim(): Promise<Shim> {
    const parent = await this.#programs.parent();
    for (let attempt = 0; attempt < START_TRIES; attempt++) {
      const shim = await this.#shims.claim(null, PROBE_TIMEOUT_MS, NO_PROGRAM);
      if (shim.hello.supervisorPid === parent) {
        this.#shims.returnUnused(shim);
        return shim;
      }
      // The shim's supervisord has ended, and the shim is about to end too.
      await this.#dismiss(shim);
    }
    throw unavailable(NO_PROGRAM);
  }

  /** Removes residue of earlier servers, once, in the background of the first use. */
  #sweep(): Promise<void> {
    this.#swept ??= sweep(
      this.#programs,
      this.#runDir,
      this.#shims.owner,
      this.#options.removals,
      this.#options.logger,
    );
    return this.#swept;
  }

  /**
   * Starts the sandbox, with up to `START_TRIES` tries.
   * A retry is safe when the shim dies during a start: no code runs before the shim has created the
   * instance's directory.
   */
  async #tryStarts(spec: SandboxSpec, version: string | null, signal: AbortSignal): Promise<Started> {
    const tooLate = 'the sandbox did not start in time';
    for (let attempt = 0; attempt < START_TRIES; attempt++) {
      const shim = await this.#shims.claim(version, START_TIMEOUT_MS, tooLate, signal);
      try {
        refuseWithoutIsolation(spec, shim, this.#network.use);
      } catch (error) {
        this.#shims.returnUnused(shim);
        throw error;
      }
      const started = await this.#tryStart(spec, shim, signal);
      if (started !== null) return started;
    }
    throw unavailable('supervisord ended the sandbox before it had begun');
  }

  /**
   * Makes one start. Returns null when the shim ended without an answer before the start began. Removes
   * everything on failure.
   */
  async #tryStart(spec: SandboxSpec, shim: Shim, signal: AbortSignal): Promise<Started | null> {
    const { program, argv, connection, reply } = shim;
    connection.send({ network: networkKindOf(spec, this.#network.use, shim.hello.networkMissing) });
    connection.send(startRequest(spec, this.#options.mountPolicy, this.#network.use));
    const named = this.#programs.name(program, argv, spec.instanceId, join(this.directoryOf(spec.instanceId), 'log'));
    let answer: Record<string, unknown> | null;
    try {
      answer = await within(reply, START_TIMEOUT_MS, 'the sandbox did not start in time', signal);
    } catch (error) {
      await this.#cancelStart(shim, spec.instanceId, named);
      throw error;
    }
    await named;
    // From here on, the sandbox's own socket reports everything.
    connection.close();
    if (answer?.ok !== true) {
      await this.#dismiss(shim);
      if (answer === null) {
        // The code may have begun and must not run twice, as in a process sandbox.
        if (await this.removeStarted(spec.instanceId))
          throw unavailable(`the sandbox of ${spec.instanceId} ended before it had answered its start`);
        return null;
      }
      throw new ServiceError(answer.code as ErrorCode, String(answer.message));
    }
    return {
      shim,
      file: answer.data as SandboxStateFile,
      uid: answer.uid as number,
      warnings: answer.warnings as string[],
      stages: answer.stages as Started['stages'],
    };
  }

  /**
   * Ends a start whose client has left: the start sees the half-closed connection, or has succeeded and is
   * removed.
   */
  async #cancelStart(shim: Shim, instanceId: string, named: Promise<void>): Promise<void> {
    shim.connection.endSending();
    await within(shim.reply, GIVE_UP_TIMEOUT_MS, 'no answer to the cancelled start').catch(() => undefined);
    await named;
    await this.removeStarted(instanceId);
    await this.#dismiss(shim);
  }

  async #dismiss(shim: Shim): Promise<void> {
    await dismissShim(shim, {
      programs: this.#programs,
      runDir: this.#runDir,
      removals: this.#options.removals,
    }).catch(error => {
      const { program } = shim;
      this.#options.logger.warn({ program, error: messageOf(error) }, 'removal of supervised program failed');
    });
  }

  async #programOf(handle: SandboxHandle): Promise<string | null> {
    const told = handle.data.launcher ?? (await readState(this.directoryOf(handle.instanceId)))?.launcher;
    return typeof told === 'string' ? told : null;
  }
}

interface Started {
  readonly shim: Shim;
  readonly file: SandboxStateFile;
  readonly uid: number;
  readonly warnings: readonly string[];
  /** Milliseconds of each phase inside. */
  readonly stages: Readonly<Record<string, number>>;
}

function closed(): ServiceError {
  return unavailable('the supervisor driver is closed');
}
