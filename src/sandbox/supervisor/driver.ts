import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { type ErrorCode, messageOf, ServiceError, unavailable } from '../../core/error.ts';
import { within } from '../../lib/deadline.ts';
import { linkedTo, onAbort, sharedController } from '../../lib/linked-signal.ts';
import type { ListedSandbox, ProbeResult, SandboxHandle, SandboxSpec, StartedSandbox } from '../driver.ts';
import { UNBOUNDED_DISK } from '../host/disk-watch.ts';
import { readState, type SandboxStateFile } from '../host/handle.ts';
import { HostDriver } from '../host/host-driver.ts';
import { Interpreters } from '../host/interpreters.ts';
import { type NetworkOptions, networkKindOf, SHARED_NETWORK } from '../host/network.ts';
import type { PythonHostOptions } from '../host/options.ts';
import { findPythonDir } from '../host/python-dir.ts';
import {
  isolationOf,
  ownerWarnings,
  portWarnings,
  refuseWithoutIsolation,
  sourceOwners,
  startRequest,
} from '../host/start-request.ts';
import { readAddress } from './address.ts';
import { Programs } from './programs.ts';
import { dismissShim, type Shim } from './shim.ts';
import { Shims } from './shims.ts';
import { Supervisord } from './supervisord.ts';
import { sweep } from './sweep.ts';

const PROBE_TIMEOUT_MS = 4_500;
const NO_PROGRAM = `no program that supervisord started has answered within ${PROBE_TIMEOUT_MS / 1000} s`;
const START_TIMEOUT_MS = 30_000;
const START_TRIES = 3;
/** How long a start that was given up may take to notice it. */
const GIVE_UP_TIMEOUT_MS = 5_000;
const DEFAULT_SPARES = 2;

export interface SupervisorDriverOptions extends PythonHostOptions {
  /** `unix:///path`, `http://host:port`, `http://user:password@host:port`. */
  readonly url: string;
  /** A file with `user:password`. */
  readonly credentialsFile: string | null;
  /** Where supervisord reads sections of programs from. */
  readonly includeDir: string;
}

/**
 * Instances as programs of the operator's supervisord. Inside they are process sandboxes, and once started they are served as those are,
 * by their own init; supervisord begins them and owns their life. See docs/supervisor.md.
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
    // Two services on one supervisord tell their programs apart by their data directories.
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
    // Before its directory: as long as that is there, the program is known to belong to an instance.
    if (program !== null) await this.#programs.remove(program);
    await super.remove(handle);
  }

  override async list(): Promise<readonly ListedSandbox[]> {
    void this.#sweep();
    return await super.list();
  }

  override async close(): Promise<void> {
    this.#closing.abort();
    // Those that go on now fail, and remove what they have made.
    await Promise.allSettled(this.#starts);
    await this.#swept;
    await this.#shims.close();
    await this.#programs.settle();
    await super.close();
  }

  /** One that waits for an instance, and goes on doing so. */
  async #tryShim(): Promise<Shim> {
    const parent = await this.#programs.parent();
    for (let attempt = 0; attempt < START_TRIES; attempt++) {
      const shim = await this.#shims.take(null, PROBE_TIMEOUT_MS, NO_PROGRAM);
      if (shim.hello.supervisorPid === parent) {
        this.#shims.giveBack(shim);
        return shim;
      }
      // It is about to end with a supervisord that has ended.
      await this.#dismiss(shim);
    }
    throw unavailable(NO_PROGRAM);
  }

  /** Once, beside the first use: nothing waits for it. */
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

  /** A shim that dies in the very moment of a start is worth another try: nothing has begun before it has taken the instance's directory. */
  async #tryStarts(spec: SandboxSpec, version: string | null, signal: AbortSignal): Promise<Started> {
    const tooLate = 'the sandbox did not start in time';
    for (let attempt = 0; attempt < START_TRIES; attempt++) {
      const shim = await this.#shims.take(version, START_TIMEOUT_MS, tooLate, signal);
      try {
        refuseWithoutIsolation(spec, shim, this.#network.use);
      } catch (error) {
        this.#shims.giveBack(shim);
        throw error;
      }
      const started = await this.#tryStart(spec, shim, signal);
      if (started !== null) return started;
    }
    throw unavailable('supervisord ended the sandbox before it had begun');
  }

  /** One start; null when the shim ended without an answer before it had begun. Leaves nothing when it fails. */
  async #tryStart(spec: SandboxSpec, shim: Shim, signal: AbortSignal): Promise<Started | null> {
    const { program, argv, connection, reply } = shim;
    connection.send({ network: networkKindOf(spec, this.#network.use, shim.hello.networkMissing) });
    connection.send(startRequest(spec, this.#options.mountPolicy, this.#network.use));
    const named = this.#programs.name(program, argv, spec.instanceId, join(this.directoryOf(spec.instanceId), 'log'));
    let answer: Record<string, unknown> | null;
    try {
      answer = await within(reply, START_TIMEOUT_MS, 'the sandbox did not start in time', signal);
    } catch (error) {
      await this.#giveUp(shim, spec.instanceId, named);
      throw error;
    }
    await named;
    // From here on its own socket tells all that there is to know.
    connection.close();
    if (answer?.ok !== true) {
      await this.#dismiss(shim);
      if (answer === null) {
        // As in a process sandbox: the code may have begun.
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

  /** Ends a start whose caller does not wait for it: it sees the half-closed connection, or has succeeded and is removed. */
  async #giveUp(shim: Shim, instanceId: string, named: Promise<void>): Promise<void> {
    shim.connection.endSending();
    await within(shim.reply, GIVE_UP_TIMEOUT_MS, 'the start was given up').catch(() => undefined);
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
      this.#options.logger.warn({ program, error: messageOf(error) }, 'a supervised program was not removed');
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
  /** Where the time inside went, milliseconds. */
  readonly stages: Readonly<Record<string, number>>;
}

function closed(): ServiceError {
  return unavailable('the supervisor driver is closed');
}
