import { deadlineExceeded } from '../core/error.ts';
import { withDeadline } from '../lib/deadline.ts';
import { linkedTo } from '../lib/linked-signal.ts';
import type { SandboxHandle } from '../sandbox/driver.ts';
import { type Launched, launch } from './launch.ts';
import type { Start } from './start.ts';

/** Fails a start whose record was refused: its name or its idempotency key is taken. */
export class RecordRefused extends Error {
  constructor() {
    super('the name or the idempotency key is taken');
  }
}

/**
 * Time after which a sandbox that has not started gets its record, so that lists show it. Before, the record
 * waits: its flush to disk delays the mounts of a sandbox by 0.7 ms, a tenth of a create.
 */
const SLOW_START_MS = 20;

interface Options {
  readonly createTimeoutMs: number;
  /** Removes a sandbox. Must not reject. */
  readonly discard: (handle: SandboxHandle) => Promise<void>;
}

/**
 * Starts the sandbox, and inserts the record meanwhile if `start.insert` is given. Fails after both have
 * ended, with `RecordRefused`, the failure of the insert, or that of the start. No sandbox is left then.
 */
export async function startWithRecord(start: Start, signal: AbortSignal, options: Options): Promise<Launched> {
  const { insert } = start;
  if (insert === undefined) return await startSandbox(start, signal, options, () => undefined);
  const { controller, unlink } = linkedTo(signal);
  let inserted: Promise<void> | undefined;
  const begin = () => {
    clearTimeout(timer);
    inserted ??= insert().then(isWritten => {
      if (!isWritten) throw new RecordRefused();
    });
    inserted.catch(error => controller.abort(error));
  };
  const timer = setTimeout(begin, SLOW_START_MS);
  try {
    const launched = await startSandbox(start, controller.signal, options, begin);
    try {
      await inserted;
      return launched;
    } catch (error) {
      launched.channel.close();
      await options.discard(launched.started.handle);
      throw error;
    }
  } catch (error) {
    // A start that fails early gets its record too: events give the reason when the record is undone.
    begin();
    // The failure of the insert is the cause of an aborted start.
    await inserted;
    throw error;
  } finally {
    clearTimeout(timer);
    unlink();
  }
}

async function startSandbox(
  { driver, sandbox, init, stages }: Start,
  signal: AbortSignal,
  { createTimeoutMs, discard }: Options,
  started: () => void,
): Promise<Launched> {
  const budgetMs = driver.startBudgetMs?.(sandbox, createTimeoutMs) ?? createTimeoutMs;
  const late = () => deadlineExceeded(`the instance did not start within ${budgetMs / 1000} s`);
  const begin = (budget: AbortSignal) => launch({ driver, spec: sandbox, init, stages, started }, budget, discard);
  return await withDeadline(budgetMs, begin, signal, late);
}
