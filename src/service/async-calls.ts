import { randomUUID } from 'node:crypto';
import { messageOf, notFound, resourceExhausted, ServiceError } from '../core/error.ts';
import type { FunctionCallHeaders } from '../core/function-call.ts';
import {
  type AsyncCallStatus,
  claimAsyncCall,
  deleteAsyncCallsCompletedBefore,
  failProcessingAsyncCalls,
  findAsyncCall,
  finishAsyncCall,
  insertAsyncCall,
  listQueuedAsyncCalls,
  oldestCompletionMs,
  readAsyncCall,
} from '../storage/async-calls.ts';
import type { Database } from '../storage/database.ts';
import type { DurableWrites } from '../storage/durable.ts';
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
  /** Calls that run at the same moment. */
  readonly maxRunning: number;
  readonly keepMs: number;
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

const UNKNOWN_OUTCOME = 150427;
const WAITED_TOO_LONG = 150431;
/** A call that found no place in time goes back to the end of the queue this often before it fails. */
const MAX_ATTEMPTS = 20;
const SWEEP_MS = 60_000;

interface Queued {
  readonly id: string;
  readonly tenant: string;
  attempts: number;
}

/**
 * The durable queue behind `X-Invoke-Type: async`. A call is on the disk before it is acknowledged and marked before it runs, so after a
 * crash those that waited run, and those that ran are `failed` with an unknown outcome: each runs at most once.
 * Tenants take turns; within one tenant calls start in the order in which they came.
 */
export class AsyncCalls {
  readonly #options: AsyncCallsOptions;
  readonly #queues = new Map<string, Queued[]>();
  #open = 0;
  readonly #openPerTenant = new Map<string, number>();
  readonly #running = new Set<Promise<void>>();
  #sweep: NodeJS.Timeout | undefined;
  #isStopping = false;

  constructor(options: AsyncCallsOptions) {
    this.#options = options;
  }

  /** Goes on where an earlier server stopped. */
  async start(): Promise<void> {
    const { database } = this.#options;
    const error = JSON.stringify({
      code: UNKNOWN_OUTCOME,
      message: 'the server ended while the call was running: whether its handler finished is not known',
    });
    await failProcessingAsyncCalls(database, error, Date.now());
    for (const { id, tenant } of await listQueuedAsyncCalls(database)) this.#enqueue({ id, tenant, attempts: 0 });
    this.#pump();
    await this.#dropOld();
  }

  /** Queued calls stay queued; running ones may end within `graceMs` and are marked by the next start otherwise. */
  async close(graceMs: number): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#sweep);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>(resolve => {
      timer = setTimeout(resolve, graceMs);
    });
    await Promise.race([Promise.all(this.#running), late]);
    clearTimeout(timer);
  }

  /** Puts a call on the disk and answers its id. Fails with `resource_exhausted` (150429) when too many are open. */
  async submit(submission: AsyncSubmission): Promise<string> {
    const { maxOpen, maxOpenPerTenant, durable } = this.#options;
    const { tenant } = submission;
    if (this.#open >= maxOpen || (this.#openPerTenant.get(tenant) ?? 0) >= maxOpenPerTenant) {
      throw resourceExhausted('too many asynchronous calls are waiting', { number: 150429, retryAfterSeconds: 1 });
    }
    const id = randomUUID();
    this.#count(tenant, 1);
    try {
      await durable.write(transaction =>
        insertAsyncCall(transaction, {
          id,
          tenant,
          urn: submission.urn,
          status: 'queued',
          request: JSON.stringify({ headers: submission.headers, header: submission.header }),
          body: submission.body,
          webhook_url: submission.webhookUrl,
          result: null,
          error: null,
          created_at_ms: Date.now(),
          completed_at_ms: null,
        }),
      );
    } catch (error) {
      this.#count(tenant, -1);
      throw error;
    }
    this.#push({ id, tenant, attempts: 0 });
    this.#pump();
    return id;
  }

  /** Fails with `not_found` (200404) for an unknown id, also another tenant's (`tenant` null: anyone's). */
  async get(tenant: string | null, id: string): Promise<AsyncAnswer> {
    const row = await findAsyncCall(this.#options.database, id);
    if (!row || (tenant !== null && row.tenant !== tenant)) {
      throw notFound(`no asynchronous call has the id ${id}`, { number: 200404 });
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

  #enqueue(call: Queued): void {
    this.#count(call.tenant, 1);
    this.#push(call);
  }

  #push(call: Queued): void {
    const queue = this.#queues.get(call.tenant);
    if (queue) queue.push(call);
    else this.#queues.set(call.tenant, [call]);
  }

  #count(tenant: string, change: 1 | -1): void {
    this.#open += change;
    const open = (this.#openPerTenant.get(tenant) ?? 0) + change;
    if (open > 0) this.#openPerTenant.set(tenant, open);
    else this.#openPerTenant.delete(tenant);
  }

  #pump(): void {
    while (!this.#isStopping && this.#running.size < this.#options.maxRunning) {
      const next = this.#next();
      if (!next) return;
      const running = this.#run(next)
        .catch((error: unknown) => {
          this.#options.log.warn(
            { requestId: next.id, reason: messageOf(error) },
            'an asynchronous call was not recorded',
          );
          this.#count(next.tenant, -1);
        })
        .finally(() => {
          this.#running.delete(running);
          this.#pump();
        });
      this.#running.add(running);
    }
  }

  /** The first call of the tenant whose turn it is; that tenant goes to the end. */
  #next(): Queued | undefined {
    for (const [tenant, queue] of this.#queues) {
      const call = queue.shift();
      this.#queues.delete(tenant);
      if (queue.length > 0) this.#queues.set(tenant, queue);
      if (call) return call;
    }
    return undefined;
  }

  async #run(queued: Queued): Promise<void> {
    const { database, durable, invoke } = this.#options;
    const row = await readAsyncCall(database, queued.id);
    if (row?.status !== 'queued') {
      this.#count(queued.tenant, -1);
      return;
    }
    const { headers, header } = JSON.parse(row.request) as Pick<AsyncSubmission, 'headers' | 'header'>;
    // On the disk before it runs: a crash from here on must not run it again.
    await durable.write(transaction => claimAsyncCall(transaction, row.id));
    const end = await this.#outcomeOf(() =>
      invoke({ urn: row.urn, tenant: null, headers, call: { header, body: Buffer.from(row.body) } }),
    );
    if (end.error?.code === WAITED_TOO_LONG && queued.attempts < MAX_ATTEMPTS && !this.#isStopping) {
      // It never ran: it may wait on, behind the others.
      await durable.write(transaction =>
        transaction.updateTable('async_calls').set({ status: 'queued' }).where('id', '=', row.id).execute(),
      );
      this.#push({ ...queued, attempts: queued.attempts + 1 });
      return;
    }
    await durable.write(transaction =>
      finishAsyncCall(transaction, row.id, {
        status: end.error ? 'failed' : 'completed',
        result: end.result ?? null,
        error: end.error ? JSON.stringify(end.error) : null,
        completed_at_ms: Date.now(),
      }),
    );
    this.#count(queued.tenant, -1);
    this.#armSweep();
    if (row.webhook_url !== '') await this.#options.deliver?.(row.webhook_url, await this.get(null, row.id));
  }

  async #outcomeOf(
    invoke: () => Promise<FunctionResult>,
  ): Promise<{ result?: string; error?: { code: number; message: string } }> {
    try {
      const { outcome } = await invoke();
      if (outcome.ok) return { result: outcome.data.toString() };
      return { error: { code: outcome.code, message: outcome.text } };
    } catch (error) {
      const code = error instanceof ServiceError ? (error.number ?? 500) : 500;
      return { error: { code, message: messageOf(error) } };
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
      await deleteAsyncCallsCompletedBefore(this.#options.database, Date.now() - this.#options.keepMs);
      if ((await oldestCompletionMs(this.#options.database)) !== null) this.#armSweep();
    } catch (error) {
      this.#options.log.warn({ reason: messageOf(error) }, 'old results of asynchronous calls were not removed');
      this.#armSweep();
    }
  }
}
