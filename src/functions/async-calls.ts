import { randomUUID } from 'node:crypto';
import { CALL_CODES, SERVICE_CODES } from '../core/codes.ts';
import { failedPrecondition, messageOf, notFound, ServiceError } from '../core/error.ts';
import type { FunctionCallHeaders } from '../core/function-call.ts';
import { endsWithin } from '../lib/deadline.ts';
import {
  type AsyncCallStatus,
  claimAsyncCall,
  deleteAsyncCallsCompletedBefore,
  failProcessingAsyncCalls,
  findAsyncCall,
  finishAsyncCall,
  forgetWebhook,
  insertAsyncCall,
  listQueuedAsyncCalls,
  listUntoldAsyncCalls,
  oldestCompletionMs,
  readAsyncCall,
  sumAsyncCallBytes,
} from '../storage/async-calls.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
import { mayPass, untilWritten } from '../storage/until-written.ts';
import { AsyncQueue, type QueuedCall } from './async-queue.ts';
import { AsyncUsage } from './async-usage.ts';
import type { FunctionInvocation, FunctionResult } from './function-service.ts';

export interface AsyncCallsOptions {
  readonly database: Database;
  readonly durable: DurableWrites;
  readonly invoke: (invocation: FunctionInvocation) => Promise<FunctionResult>;
  /** Delivers the end of a call to the address that it named; null when webhooks are off. Never rejects. */
  readonly deliver: ((url: string, answer: AsyncAnswer) => Promise<void>) | null;
  /** Calls that wait or run, over all tenants, and of one tenant. */
  readonly maxOpen: number;
  readonly maxOpenPerTenant: number;
  /** Calls that run, or wait for a slot on an instance, at the same moment. */
  readonly maxRunning: number;
  /** How long a result can be read, and how long a call may wait before it fails. */
  readonly keepMs: number;
  /** Epoch milliseconds; default: the system's. */
  readonly now?: () => number;
  readonly log: { warn(fields: object, message: string): void };
}

/** What a stored call says of itself, as the API answers it. */
export interface AsyncAnswer {
  readonly requestId: string;
  readonly status: AsyncCallStatus;
  readonly result?: unknown;
  readonly error?: { readonly code: number; readonly message: string };
  readonly createdAt: string;
  readonly completedAt?: string;
}

export interface AsyncSubmission {
  readonly urn: string;
  readonly tenant: string;
  readonly headers: FunctionCallHeaders;
  readonly header: FunctionInvocation['call']['header'];
  readonly body: Buffer;
  readonly webhookUrl: string;
}

const RETRIED: ReadonlySet<number> = new Set(CALL_CODES.filter(row => row.isRetried).map(row => row.code));
/** How long the calls of a function rest after its queue was full. */
const FULL_QUEUE_PAUSE_MS = 500;
const SWEEP_MS = 60_000;
/** Ends that webhooks hear of at one moment; above it running calls wait with theirs. */
const MAX_DELIVERIES = 256;
/** On the disk: events that wait and results that are kept; one tenant may have a quarter. */
const MAX_BYTES = 4 * 1024 * 1024 * 1024;

interface CallEnd {
  /** JSON text. */
  readonly result?: string;
  readonly error?: { readonly code: number; readonly message: string };
  /** It failed before it had a slot, and for a reason that may pass. */
  readonly mayPass?: boolean;
}

/**
 * The durable queue behind `X-Invoke-Type: async`. A call is on the disk before it is acknowledged, and marked once it has its slot and
 * before it runs: after a crash those that waited run, and those that ran are `failed` with an unknown outcome. Each runs at most once.
 */
export class AsyncCalls {
  readonly #options: AsyncCallsOptions;
  readonly #queue: AsyncQueue;
  readonly #usage: AsyncUsage;
  readonly #running = new Set<Promise<void>>();
  readonly #deliveries = new Set<Promise<void>>();
  readonly #pauses = new Set<NodeJS.Timeout>();
  #sweep: NodeJS.Timeout | undefined;
  /** Ids of calls whose mark as running was written or not: the disk did not say. */
  readonly #maybeClaimed = new Set<string>();
  readonly #closing = new AbortController();
  #isStopping = false;

  constructor(options: AsyncCallsOptions) {
    this.#options = options;
    const { maxRunning } = options;
    // Whatever one tenant's functions are stuck in, others find capacity to run.
    this.#queue = new AsyncQueue({
      maxUnplacedPerFunction: Math.max(1, Math.min(16, Math.floor(maxRunning / 4))),
      maxUnplacedPerTenant: Math.max(1, Math.floor(maxRunning / 2)),
    });
    this.#usage = new AsyncUsage({ ...options, maxBytes: MAX_BYTES, maxBytesPerTenant: MAX_BYTES / 4 });
  }

  /** Goes on where an earlier server stopped. */
  async start(): Promise<void> {
    const { database } = this.#options;
    const error = JSON.stringify({
      code: SERVICE_CODES.instanceEnded.code,
      message: 'the server ended while the call was running: whether its handler finished is not known',
    });
    await failProcessingAsyncCalls(database, error, this.#now());
    for (const { id, tenant, urn, created_at_ms } of await listQueuedAsyncCalls(database)) {
      this.#usage.opened(tenant);
      this.#queue.push({ id, tenant, urn, createdAtMs: created_at_ms });
    }
    await this.#dropOld();
    this.#pump();
    if (this.#options.deliver !== null) void this.#tell(await listUntoldAsyncCalls(database));
  }

  /** Queued calls stay queued; running ones may end within `graceMs` and are marked by the next start otherwise. */
  async close(graceMs: number): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#sweep);
    for (const pause of this.#pauses) clearTimeout(pause);
    const ended = Promise.all(this.#running).then(() => Promise.all(this.#deliveries));
    await endsWithin(ended, graceMs);
    this.#closing.abort();
  }

  /** Puts a call on the disk and answers its id. Fails with `resource_exhausted` (150429) when too many are open. */
  async submit(submission: AsyncSubmission): Promise<string> {
    const { tenant, urn, body } = submission;
    this.#usage.check(tenant, body.length);
    const id = randomUUID();
    const createdAtMs = this.#now();
    this.#usage.opened(tenant);
    this.#usage.stored(tenant, body.length);
    try {
      await this.#options.durable.write(insertAsyncCall, {
        id,
        tenant,
        urn,
        status: 'queued',
        // One id for the caller and for the handler.
        request: JSON.stringify({ headers: submission.headers, header: { ...submission.header, requestId: id } }),
        body,
        webhook_url: submission.webhookUrl,
        result: null,
        error: null,
        created_at_ms: createdAtMs,
        completed_at_ms: null,
      });
    } catch (error) {
      this.#usage.closed(tenant);
      this.#usage.stored(tenant, -body.length);
      throw error;
    }
    this.#queue.push({ id, tenant, urn, createdAtMs });
    this.#pump();
    return id;
  }

  /** Fails with `not_found` (200404) for an unknown id, also another tenant's (`tenant` null: anyone's). */
  async get(tenant: string | null, id: string): Promise<AsyncAnswer> {
    const row = await findAsyncCall(this.#options.database, id);
    if (!row || (tenant !== null && row.tenant !== tenant)) {
      throw notFound(`no asynchronous call has the id ${id}`, { number: SERVICE_CODES.unknownId.code });
    }
    return {
      requestId: row.id,
      status: row.status,
      ...(row.result === null ? {} : { result: JSON.parse(row.result) as unknown }),
      ...(row.error === null ? {} : { error: JSON.parse(row.error) as { code: number; message: string } }),
      createdAt: new Date(row.created_at_ms).toISOString(),
      ...(row.completed_at_ms === null ? {} : { completedAt: new Date(row.completed_at_ms).toISOString() }),
    };
  }

  #now(): number {
    return (this.#options.now ?? Date.now)();
  }

  #pump(): void {
    while (!this.#isStopping && this.#running.size < this.#options.maxRunning) {
      const next = this.#queue.take();
      if (!next) return;
      const running = this.#run(next)
        .catch((error: unknown) => {
          const fields = { requestId: next.id, reason: messageOf(error) };
          this.#options.log.warn(fields, 'an asynchronous call was not recorded');
          this.#usage.closed(next.tenant);
        })
        .finally(() => {
          this.#running.delete(running);
          this.#pump();
        });
      this.#running.add(running);
    }
  }

  async #run(queued: QueuedCall): Promise<void> {
    const { database, durable, invoke } = this.#options;
    let isPlaced = false;
    const countPlaced = () => {
      if (!isPlaced) this.#queue.placed(queued);
      isPlaced = true;
    };
    let end: CallEnd;
    let webhookUrl = '';
    let bodyBytes = 0;
    try {
      const row = await readAsyncCall(database, queued.id);
      const isQueued = row?.status === 'queued' || (row?.status === 'processing' && this.#maybeClaimed.has(queued.id));
      if (row === null || !isQueued) throw failedPrecondition('it is not queued any more');
      const { headers, header } = JSON.parse(row.request) as Pick<AsyncSubmission, 'headers' | 'header'>;
      webhookUrl = row.webhook_url;
      bodyBytes = row.body.length;
      // On the disk before it runs: a crash from then on must not run it again.
      const beforeRun = async () => {
        if (!(await this.#claim(queued.id))) throw failedPrecondition('it is not queued any more');
        countPlaced();
        this.#pump();
      };
      const call = { header, body: Buffer.from(row.body) };
      end = await this.#outcomeOf(() => invoke({ urn: row.urn, tenant: null, headers, call, beforeRun }));
      // A call that the disk did not let begin goes back to the queue, rather than hold an instance until there is room.
      const mayPass = end.mayPass === true || this.#maybeClaimed.has(queued.id);
      if (!isPlaced && mayPass && this.#mayTryAgain(queued)) {
        this.#putBack(queued, end.error?.code);
        isPlaced = true;
        return;
      }
    } finally {
      countPlaced();
    }
    const outcome = {
      status: end.error ? ('failed' as const) : ('completed' as const),
      result: end.result ?? null,
      error: end.error ? JSON.stringify(end.error) : null,
      completed_at_ms: this.#now(),
    };
    await untilWritten(
      () => durable.write(finishAsyncCall, queued.id, outcome),
      this.#closing.signal,
      error => {
        const fields = { requestId: queued.id, reason: messageOf(error) };
        this.#options.log.warn(fields, 'the end of an asynchronous call could not be written yet; it is tried again');
      },
    );
    this.#usage.closed(queued.tenant);
    this.#usage.stored(queued.tenant, (end.result?.length ?? 0) - bodyBytes);
    this.#armSweep();
    await this.#deliver(queued.id, webhookUrl);
  }

  /** Marks a call as running; false when it is not queued any more. */
  async #claim(id: string): Promise<boolean> {
    try {
      const isOurs = await this.#options.durable.write(claimAsyncCall, id);
      return this.#maybeClaimed.delete(id) || isOurs;
    } catch (error) {
      if (mayPass(error)) this.#maybeClaimed.add(id);
      throw error;
    }
  }

  /** It never ran, so it may wait on; while the server stops it waits for the next one. */
  #mayTryAgain({ createdAtMs }: QueuedCall): boolean {
    return this.#isStopping || this.#now() - createdAtMs < this.#options.keepMs;
  }

  #putBack(queued: QueuedCall, code: number | undefined): void {
    this.#queue.putBack(queued);
    // Whoever waited for an instance in vain has waited long enough; a full queue is asked again a little later.
    if (code === SERVICE_CODES.waitedTooLong.code || this.#isStopping) return;
    this.#queue.pause(queued, true);
    const pause = setTimeout(() => {
      this.#pauses.delete(pause);
      this.#queue.pause(queued, false);
      this.#pump();
    }, FULL_QUEUE_PAUSE_MS).unref();
    this.#pauses.add(pause);
  }

  /**
   * Tells the end of a call to the address that wants to hear of it; one that was not reported when the server ended is reported by the
   * next, while its result is kept. Waits only when too many are being sent.
   */
  async #deliver(id: string, url: string): Promise<void> {
    const { deliver } = this.#options;
    if (url === '' || deliver === null) return;
    const delivery = this.get(null, id)
      .then(answer => deliver(url, answer))
      .then(() => forgetWebhook(this.#options.database, id))
      .catch((error: unknown) => {
        this.#options.log.warn({ requestId: id, reason: messageOf(error) }, 'a webhook could not be delivered');
      })
      .finally(() => this.#deliveries.delete(delivery));
    this.#deliveries.add(delivery);
    if (this.#deliveries.size >= MAX_DELIVERIES) await Promise.race(this.#deliveries);
  }

  /** What an earlier server left untold; beside everything else, since an address may take long. */
  async #tell(untold: Awaited<ReturnType<typeof listUntoldAsyncCalls>>): Promise<void> {
    for (const { id, webhook_url } of untold) {
      if (this.#isStopping) return;
      await this.#deliver(id, webhook_url);
    }
  }

  async #outcomeOf(invoke: () => Promise<FunctionResult>): Promise<CallEnd> {
    try {
      const { outcome } = await invoke();
      if (outcome.ok) return { result: outcome.data.toString() };
      return { error: { code: outcome.code, message: outcome.text } };
    } catch (error) {
      const code = error instanceof ServiceError ? (error.number ?? 500) : 500;
      // The same codes when no instance could ever fit: no waiting would help then.
      const isForGood = error instanceof ServiceError && error.code === 'failed_precondition';
      return { error: { code, message: messageOf(error) }, mayPass: RETRIED.has(code) && !isForGood };
    }
  }

  #armSweep(): void {
    if (this.#sweep !== undefined || this.#isStopping) return;
    this.#sweep = setTimeout(() => {
      this.#sweep = undefined;
      void this.#dropOld();
    }, SWEEP_MS).unref();
  }

  /** A timer runs only while there are results to drop. */
  async #dropOld(): Promise<void> {
    try {
      await deleteAsyncCallsCompletedBefore(this.#options.database, this.#now() - this.#options.keepMs);
      this.#usage.setStored(await sumAsyncCallBytes(this.#options.database));
      if ((await oldestCompletionMs(this.#options.database)) !== null) this.#armSweep();
    } catch (error) {
      this.#options.log.warn({ reason: messageOf(error) }, 'old results of asynchronous calls were not removed');
      this.#armSweep();
    }
  }
}
