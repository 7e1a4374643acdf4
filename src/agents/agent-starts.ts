import { failedPrecondition, type ServiceError } from '../core/error.ts';
import type { Instance, InstanceSpec } from '../core/instance.ts';
import type { BuiltTemplate } from '../core/template.ts';
import type { LiveInstance } from '../instances/live-instance.ts';
import { assertPauses } from '../instances/pausing.ts';
import { toStart, withSecrets } from '../instances/sandbox-spec.ts';
import type { Start } from '../instances/start.ts';
import { transitionOf } from '../instances/state.ts';
import { newSecret } from '../lib/random-ids.ts';
import type { WakeReason } from '../runtime/protocol.ts';
import type { SandboxDriver, SandboxHandle } from '../sandbox/driver.ts';
import type { InstanceRef, StoredInstance } from '../storage/queries/instances.ts';
import { placeFiles, startBuilt } from '../templates/built.ts';
import { startPrograms } from '../templates/programs.ts';
import { AgentCode } from './agent-code.ts';
import { toInstance } from './agent-records.ts';
import { AgentReservations } from './agent-reservations.ts';
import { AgentTable } from './agent-table.ts';
import { Operations } from './operations.ts';
import type { AgentsOptions } from './options.ts';
import { serverStopping, tooManyStarting } from './refusals.ts';
import { AgentStates, type StartedRef } from './states.ts';

/** Parts that all starts of agents share: code, reservations and running operations. */
export class AgentStarts {
  readonly table = new AgentTable();
  readonly code: AgentCode;
  readonly operations: Operations;
  readonly reservations: AgentReservations;
  readonly states: AgentStates;
  readonly #options: AgentsOptions;
  #isStopping = false;

  /** `alarmsChanged` is called after a save that has changed alarms. */
  constructor(options: AgentsOptions, alarmsChanged: () => void) {
    this.#options = options;
    this.code = new AgentCode(this.table, options.packages ?? null, options.log, options.layers ?? null);
    this.states = new AgentStates({
      ...options,
      succeeded: id => this.table.set(id, { quickEnds: undefined }),
      alarmsChanged,
    });
    this.reservations = new AgentReservations(this.table, options);
    this.operations = new Operations(this.table, id => options.instances.lock(id));
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** Aborts running starts and refuses new ones. */
  stop(): void {
    this.#isStopping = true;
    this.operations.abortStarts(serverStopping());
  }

  /** Returns how to start the agent. Fails if this installation cannot run it at all. */
  async startOf(ref: StartedRef, spec: InstanceSpec, reason: WakeReason = 'request'): Promise<Start> {
    const driver = await this.#options.drivers(spec.sandboxType);
    if (spec.onExpiry === 'pause') assertPauses(driver);
    const identity = { id: ref.id, secret: newSecret() };
    const withCode = await this.code.place(ref, spec);
    try {
      const placed = (await this.#options.files?.place(ref.id, withCode)) ?? withCode;
      const start = toStart(driver, identity, await withSecrets(placed, this.#options.secrets), this.#options);
      const durable = await this.states.initOf(ref, spec, reason);
      const stated = durable === undefined ? start : { ...start, init: { ...start.init, durable } };
      const { built } = spec;
      if (built === undefined) return stated;
      const hasFiles = spec.rootfs.type === 'host';
      return { ...stated, furnish: (handle, signal) => furnish(driver, handle, { ...built, hasFiles }, signal) };
    } catch (error) {
      await this.code.undo(ref);
      await this.forgetFiles(ref, spec);
      throw error;
    }
  }

  /** Returns true if the machine has the capacity for an agent. */
  fits(intent: StoredInstance): boolean {
    return this.reservations.refusal(intent) === undefined;
  }

  /** Starts the sandbox of a CREATING agent and makes the agent live. */
  async bringUp(intent: StoredInstance, start: Start, signal: AbortSignal): Promise<Instance> {
    const refusal = this.reservations.refusal(intent);
    if (refusal !== undefined) {
      this.code.release(intent);
      await this.forgetFiles(intent, toInstance(intent).spec);
      await this.#options.instances.undo(intent, refusal);
      throw refusal;
    }
    this.reservations.reserve(intent);
    try {
      const { facts, live } = await this.#options.instances.launch(intent, start, signal);
      const instance = toInstance({ ...intent, ...facts, status: transitionOf('started').to });
      await this.#startPrograms(instance, live);
      return instance;
    } catch (error) {
      this.release(intent);
      await this.forgetFiles(intent, toInstance(intent).spec);
      throw error;
    }
  }

  async #startPrograms({ spec }: Instance, { driver, handle }: LiveInstance): Promise<void> {
    const { programsDir, log } = this.#options;
    const template = spec.built?.base ?? spec.template;
    if (template === undefined || spec.rootfs.type !== 'host') return;
    if (programsDir === undefined || driver.access === undefined) return;
    await startPrograms(template, programsDir, driver.access(handle), log);
  }

  /**
   * Releases code and reservation after a sandbox and all earlier ones are removed. A later sandbox of the
   * agent keeps its own.
   */
  release(sandbox: InstanceRef): void {
    this.code.release(sandbox);
    this.reservations.release(sandbox);
  }

  /** Removes the files of an agent whose first start has failed; no client knows it. Never rejects. */
  async forgetFiles({ epoch, id }: InstanceRef, { durable }: Pick<InstanceSpec, 'durable'>): Promise<void> {
    if (epoch === 1 && durable?.files !== undefined) await this.#options.files?.remove(id);
  }

  assertMayStart(): void {
    const refusal = this.refusal();
    if (refusal !== undefined) throw refusal;
  }

  refusal(): ServiceError | undefined {
    if (this.#isStopping) return serverStopping();
    return this.operations.starts >= this.#options.maxStarting ? tooManyStarting() : undefined;
  }
}

/**
 * Places the files of a built template unless its image has them, and starts its command. Fails with
 * `failed_precondition`.
 */
async function furnish(
  driver: SandboxDriver,
  handle: SandboxHandle,
  built: BuiltTemplate & { readonly hasFiles: boolean },
  signal: AbortSignal,
): Promise<void> {
  const access = driver.access?.(handle);
  if (access === undefined) throw failedPrecondition(`sandboxes of type ${driver.name} have no templates`);
  if (built.hasFiles) await placeFiles(access, signal);
  await startBuilt(access, built, {}, signal);
}
