import { retry } from '../lib/backoff.ts';
import type { SandboxDriver, SandboxHandle, StartedSandbox } from '../sandbox/driver.ts';
import type { InstanceRef, StoredInstance } from '../storage/queries/instances.ts';
import { untilWritten } from '../storage/writes/until-written.ts';
import { Command, neverBegan } from './command.ts';
import { listSandboxes } from './driver-calls.ts';
import type { RunnerRegistry } from './registry.ts';
import type { RunnerParts } from './runner.ts';
import { factsOf, rowOf, type Start } from './start.ts';

const RETRY = { firstMs: 500, longestMs: 30_000 };

/**
 * Instances that run one command to its end and take no calls. A command must not start twice, whatever
 * fails.
 */
export class Commands {
  readonly #parts: RunnerParts;
  readonly #registry: RunnerRegistry;

  constructor(parts: RunnerParts, registry: RunnerRegistry) {
    this.#parts = parts;
    this.#registry = registry;
  }

  /**
   * Starts the sandbox of a locked CREATING instance that takes no calls. Repeats the write of RUNNING until
   * it succeeds or `closing` aborts: a full disk must not end an instance that cannot start twice. Fails as
   * `launch` does. Returns null if another server has changed the record meanwhile; the sandbox is removed
   * then.
   */
  async run(
    record: StoredInstance,
    { driver, sandbox }: Pick<Start, 'driver' | 'sandbox'>,
    signal: AbortSignal,
    closing: AbortSignal,
  ): Promise<Command | null> {
    let started: StartedSandbox;
    try {
      started = await driver.start(sandbox, signal);
    } catch (error) {
      await this.#registry.of(record.id).undo(record, error);
      throw error;
    }
    const row = rowOf(factsOf(started, '', this.#parts.now(), record), started, sandbox.secret);
    let isOurs: boolean;
    try {
      isOurs = await untilWritten(
        () => this.#hasStarted(record, row),
        closing,
        error =>
          this.#parts.log.warn({ instanceId: record.id, err: error }, 'cannot write that instance runs; retrying'),
      );
    } catch (error) {
      if (closing.aborted) throw error;
      // Without a record the reconciler cannot find this sandbox, so remove it now.
      await this.#parts.removals.discard(driver, started.handle);
      await this.#registry.of(record.id).undo(record, error);
      throw error;
    }
    if (isOurs) return this.#command(record, driver, started.handle);
    await this.#parts.removals.discard(driver, started.handle);
    return null;
  }

  /**
   * Recovers an instance of an earlier server that must not start twice. Returns `never` if no part of it has
   * run, and deletes its record. Returns `gone` if the record is deleted or STOPPING. Retries until the
   * driver answers; rejects when `signal` aborts.
   */
  async recover(id: string, signal: AbortSignal): Promise<Command | 'never' | 'gone'> {
    const recover = async () => {
      signal.throwIfAborted();
      return await this.#recover(id, signal);
    };
    return await retry(recover, RETRY, signal, error => {
      signal.throwIfAborted();
      this.#parts.log.warn({ instanceId: id, err: error }, 'could not check instance; retrying');
    });
  }

  /** Removes the sandbox of an ended command, and its record. Never rejects. */
  async remove(command: Command): Promise<void> {
    await this.#parts.removals.discard(command.driver, command.handle);
    const runner = this.#registry.of(command.id);
    await runner.unlessWritten(runner.writer.end(command, 'discarded'));
  }

  async #recover(id: string, signal: AbortSignal): Promise<Command | 'never' | 'gone'> {
    const record = await this.#parts.rows.find(id);
    if (record === null || record.status === 'STOPPING') return 'gone';
    const driver = await this.#parts.drivers(record.sandboxType);
    if (record.handle !== null) return this.#command(record, driver, record.handle);
    const listed = await listSandboxes(driver);
    const found = listed.find(({ instanceId }) => instanceId === id);
    if (found === undefined || (await neverBegan(driver, found.handle, signal))) {
      if (found !== undefined) await this.#parts.removals.discard(driver, found.handle);
      await this.#registry.of(id).writer.end(record, 'forgotten');
      return 'never';
    }
    await this.#registry.of(id).writer.move(record, 'started', {
      handle: JSON.stringify(found.handle),
      startedAtMs: this.#parts.now(),
    });
    return this.#command(record, driver, found.handle);
  }

  /** Writes that the command runs. Returns true also if an earlier write succeeded whose answer was lost. */
  async #hasStarted(record: InstanceRef, row: ReturnType<typeof rowOf>): Promise<boolean> {
    if (await this.#registry.of(record.id).writer.move(record, 'started', row)) return true;
    const now = await this.#parts.rows.find(record.id);
    return now !== null && now.epoch === record.epoch && JSON.stringify(now.handle) === row.handle;
  }

  #command({ id, epoch }: InstanceRef, driver: SandboxDriver, handle: SandboxHandle): Command {
    return new Command({ id, epoch }, driver, handle, this.#parts.log);
  }
}
