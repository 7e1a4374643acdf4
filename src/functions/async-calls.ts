import { randomUUID } from 'node:crypto';
import { SERVICE_CODES } from '../core/codes.ts';
import { failedPrecondition, messageOf, notFound } from '../core/error.ts';
import type { CallOrigin } from '../core/finished-call.ts';
import type { FunctionCallHeaders } from '../core/function-call.ts';
import type { Lease } from '../core/lease.ts';
import { backoffMs, pause } from '../lib/backoff.ts';
import { endsWithin } from '../lib/deadline.ts';
import { sharedController } from '../lib/linked-signal.ts';
import type { Database } from '../storage/database.ts';
import {
  bytesOfEnd,
  bytesOfEvent,
  claimAsyncCall,
  dropAsyncCalls,
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
} from '../storage/queries/async-calls.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';
import { mayPass, untilWritten } from '../storage/writes/until-written.ts';
import { ALL_SHARDS, type FunctionShards, servedElsewhere, shardOfUrn } from './active-versions.ts';
import { type AsyncAnswer, type CallEnd, endOf, toAsyncAnswer } from './async-answer.ts';
import { AsyncQueue, type QueuedCall } from './async-queue.ts';
import { AsyncUsage } from './async-usage.ts';
import type { FunctionInvocation, FunctionResult } from './function-invoker.ts';

export interface AsyncCallsOptions {
  readonly database: Database;
  readonly durable: DurableWrites;
  readonly invoke: (invocation: FunctionInvocation) => Promise<FunctionResult>;
  /** Absent: the calls of all functions run here. */
  readonly shards?: FunctionShards;
  /**
   * Delivers the end of a call to the address that the call named; null when webhooks are off. Never rejects.
   */
  readonly deliver: ((url: string, answer: AsyncAnswer) => Promise<void>) | null;
  /** Calls that wait or run: over all tenants, and per tenant. */
  readonly maxOpen: number;
  readonly maxOpenPerTenant: number;
  /** Calls that run or wait for a slot on an instance at the same time. */
  readonly maxRunning: number;
  /** Time that a result can be read, and that a call may wait before it fails, milliseconds. */
  readonly keepMs: number;
  /** Bytes on disk for waiting events and kept results. One tenant may have a quarter. Absent: 4 GiB. */
  readonly maxBytes?: number;
  /** Returns epoch milliseconds; default: the system clock. */
  readonly now?: () => number;
  readonly log: { warn(fields: object, message: string): void };
}

export interface AsyncSubmission {
  readonly urn: string;
  readonly tenant: string;
  readonly headers: FunctionCallHeaders;
  readonly header: FunctionInvocation['call']['header'];
  readonly body: Buffer;
  readonly webhookUrl: string;
  /** For the history of calls. */
  readonly origin?: CallOrigin | undefined;
}

/** Calls of earlier versions have no `origin`. */
type StoredRequest = Pick<AsyncSubmission, 'headers' | 'header' | 'origin'>;

const FULL_QUEUE_PAUSE_MS = 500;
const READ_AGAIN = { firstMs: 100, longestMs: 5_000 };
const SWEEP_MS = 60_000;
const DROPPED_AT_ONCE = 1000;
/** Maximum number of concurrent webhook deliveries. Above it, calls that end wait before they report. */
const MAX_DELIVERIES = 256;
const MAX_BYTES = 4 * 1024 * 1024 * 1024;

/**
 * Durable queue behind `X-Invoke-Type: async`. A call is stored before it is acknowledged. It is marked as
 * running after it has its slot and before it runs. After a crash the waiting calls run, and the running ones
 * become `failed` with an unknown outcome. Each call runs at most once.
 */
export class AsyncCalls {
  readonly #options: AsyncCallsOptions;
  readonly #queue: AsyncQueue;
  readonly #usage: AsyncUsage;
  readonly #shards: FunctionShards;
  /** Ids of all calls that wait or run here. */
  readonly #open = new Set<string>();
  /** Ids of the open calls that are marked as running, or are being marked. */
  readonly #claims = new Set<string>();
  /** Running calls, each with the shard of its function. */
  readonly #running = new Map<Promise<void>, string>();
  readonly #deliveries = new Set<Promise<void>>();
  readonly #pauses = new Set<NodeJS.Timeout>();
  #sweep: NodeJS.Timeout | undefined;
  /** True once the count includes the calls of an earlier server. */
  #isCounted = false;
  /** Ids of calls whose mark as running may or may not be stored: the write ended without an answer. */
  readonly #maybeClaimed = new Set<string>();
  readonly #closing = sharedController();
  #isStopping = false;

  constructor(options: AsyncCallsOptions) {
    this.#options = options;
    this.#shards = options.shards ?? ALL_SHARDS;
    const { maxRunning, maxBytes = MAX_BYTES } = options;
    // Stuck calls of a tenant must not starve other tenants.
    this.#queue = new AsyncQueue({
      maxUnplacedPerFunction: Math.max(1, Math.min(16, Math.floor(maxRunning / 4))),
      maxUnplacedPerTenant: Math.max(1, Math.floor(maxRunning / 2)),
    });
    this.#usage = new AsyncUsage({ ...options, maxBytes, maxBytesPerTenant: maxBytes / 4 });
  }

  /** Resumes the calls of an earlier server. With shards, `acquired` resumes them instead. */
  async start(): Promise<void> {
    if (this.#options.shards === undefined) await this.#resume(null);
    await this.dropOld();
  }

  /**
   * Begins to run the calls of these shards, and resumes those of the last owner. Retries until it succeeds
   * or the shards are lost. Never rejects.
   */
  async acquired(shards: readonly string[]): Promise<void> {
    for (let failures = 1; !this.#isStopping; failures++) {
      const held = shards.filter(shard => this.#shards.held(shard)?.isHeld());
      if (held.length === 0) return;
      try {
        return await this.#resume(held);
      } catch (error) {
        if (failures === 1) {
          const fields = { shards: held.length, reason: messageOf(error) };
          this.#options.log.warn(fields, 'cannot read waiting asynchronous calls; retrying');
        }
        await pause(backoffMs(READ_AGAIN, failures), this.#closing.signal);
      }
    }
  }

  /**
   * Leaves the waiting calls of these shards to the next owner. Resolves when their running calls have ended,
   * or after `graceMs`.
   */
  async release(shards: readonly string[], graceMs: number): Promise<void> {
    this.lost(shards);
    const among = new Set(shards);
    const running = [...this.#running].filter(([, shard]) => among.has(shard)).map(([call]) => call);
    await endsWithin(Promise.all(running), graceMs);
  }

  /** Drops the waiting calls of these shards, because another replica runs them. */
  lost(shards: readonly string[]): void {
    const among = new Set(shards);
    for (const queued of this.#queue.drop(urn => among.has(shardOfUrn(urn)))) this.#forget(queued);
  }

  async #resume(shards: readonly string[] | null): Promise<void> {
    const { database } = this.#options;
    const error = JSON.stringify({
      code: SERVICE_CODES.instanceEnded.code,
      message: 'the server ended while the call was running: whether its handler finished is not known',
    });
    const failed = await failProcessingAsyncCalls(database, error, this.#now(), shards, [...this.#claims]);
    if (failed > 0) this.#armSweep();
    for (const { id, tenant, urn, created_at_ms } of await listQueuedAsyncCalls(database, shards)) {
      if (!this.#open.has(id)) this.#enqueue({ id, tenant, urn, createdAtMs: Math.min(created_at_ms, this.#now()) });
    }
    this.#pump();
    if (this.#options.deliver !== null) void this.#reportUnsent(await listUntoldAsyncCalls(database, shards));
  }

  #enqueue(queued: QueuedCall): void {
    this.#open.add(queued.id);
    this.#usage.opened(queued.tenant);
    this.#queue.push(queued);
  }

  #forget({ id, tenant }: QueuedCall): void {
    this.#open.delete(id);
    this.#claims.delete(id);
    this.#usage.closed(tenant);
  }

  /**
   * Closes the queue. Queued calls stay stored. Running calls may end within `graceMs`; the next start marks
   * the others as failed.
   */
  async close(graceMs: number): Promise<void> {
    this.#isStopping = true;
    clearTimeout(this.#sweep);
    for (const timer of this.#pauses) clearTimeout(timer);
    const ended = Promise.all(this.#running.keys()).then(() => Promise.all(this.#deliveries));
    await endsWithin(ended, graceMs);
    this.#closing.abort();
  }

  /**
   * Stores a call and returns its id. Fails with `resource_exhausted` (150429) when too many are open. Fails
   * with `unavailable` when another replica runs the calls of its function.
   */
  async submit(submission: AsyncSubmission): Promise<string> {
    const { tenant, urn, body } = submission;
    const lease = this.#leaseOf(urn);
    if (lease === null) throw servedElsewhere();
    const id = randomUUID();
    // The caller and the handler see the same id.
    const { headers, header, origin } = submission;
    const request = JSON.stringify({ headers, header: { ...header, requestId: id }, origin });
    const bytes = bytesOfEvent({ request, body });
    this.#usage.check(tenant, bytes);
    const createdAtMs = this.#now();
    const queued = { id, tenant, urn, createdAtMs };
    this.#open.add(id);
    this.#usage.opened(tenant);
    this.#usage.stored(tenant, bytes);
    try {
      const row = {
        id,
        tenant,
        urn,
        status: 'queued' as const,
        request,
        body,
        webhook_url: submission.webhookUrl,
        result: null,
        error: null,
        created_at_ms: createdAtMs,
        completed_at_ms: null,
        shard: shardOfUrn(urn),
        lease_epoch: 0,
      };
      await this.#options.durable.write(insertAsyncCall, row, lease.fence);
    } catch (error) {
      this.#forget(queued);
      this.#usage.stored(tenant, -bytes);
      throw error;
    }
    // If the shard was lost during the write, its new owner finds the call.
    if (!this.#leaseOf(urn)) this.#forget(queued);
    else this.#queue.push(queued);
    this.#pump();
    return id;
  }

  /**
   * Returns a call. Fails with `not_found` (200404) for an unknown id, also for that of another tenant
   * (`tenant` null: any tenant).
   */
  async get(tenant: string | null, id: string): Promise<AsyncAnswer> {
    const row = await findAsyncCall(this.#options.database, id);
    if (!row || (tenant !== null && row.tenant !== tenant)) {
      throw notFound(`no asynchronous call has the id ${id}`, { number: SERVICE_CODES.unknownId.code });
    }
    return toAsyncAnswer(row);
  }

  #now(): number {
    return (this.#options.now ?? Date.now)();
  }

  #pump(): void {
    while (!this.#isStopping && this.#running.size < this.#options.maxRunning) {
      const next = this.#queue.next();
      if (!next) return;
      const running = this.#run(next)
        .catch((error: unknown) => {
          const fields = { requestId: next.id, reason: messageOf(error) };
          this.#options.log.warn(fields, 'cannot record asynchronous call');
          this.#forget(next);
        })
        .finally(() => {
          this.#running.delete(running);
          this.#pump();
        });
      this.#running.set(running, shardOfUrn(next.urn));
    }
  }

  async #run(queued: QueuedCall): Promise<void> {
    const { database, durable, invoke } = this.#options;
    const lease = this.#leaseOf(queued.urn);
    let isPlaced = false;
    const countPlaced = () => {
      if (!isPlaced) this.#queue.placed(queued);
      isPlaced = true;
    };
    let end: CallEnd;
    let webhookUrl = '';
    let eventBytes = 0;
    try {
      if (lease === null) {
        this.#forget(queued);
        return;
      }
      const row = await readAsyncCall(database, queued.id);
      const isQueued = row?.status === 'queued' || (row?.status === 'processing' && this.#maybeClaimed.has(queued.id));
      if (row === null || !isQueued) throw failedPrecondition('the call is no longer queued');
      const { headers, header, origin } = JSON.parse(row.request) as StoredRequest;
      webhookUrl = row.webhook_url;
      eventBytes = bytesOfEvent(row);
      // Stored before the call runs: after a crash it must not run again.
      const beforeRun = async () => {
        if (!(await this.#claim(queued.id, lease))) throw failedPrecondition('the call is no longer queued');
        countPlaced();
        this.#pump();
      };
      const call = { header, body: Buffer.from(row.body) };
      const known: CallOrigin = { caller: '', traceparent: undefined, ...origin, mode: 'async' };
      end = await endOf(() => invoke({ urn: row.urn, tenant: null, headers, call, beforeRun, origin: known }));
      // A call whose mark could not be stored returns to the queue. Otherwise it would hold an instance until
      // the disk has space.
      const mayPass = end.mayPass === true || this.#maybeClaimed.has(queued.id);
      if (!isPlaced && !lease.isHeld()) {
        // The call never ran here, so the next owner runs it.
        this.#forget(queued);
        return;
      }
      if (!isPlaced && mayPass && this.#mayRetry(queued)) {
        this.#requeue(queued, end.error?.code);
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
      () => durable.write(finishAsyncCall, queued.id, lease.fence, outcome),
      this.#closing.signal,
      error => {
        const fields = { requestId: queued.id, reason: messageOf(error) };
        this.#options.log.warn(fields, 'cannot write end of asynchronous call; retrying');
      },
    );
    this.#forget(queued);
    this.#usage.stored(queued.tenant, bytesOfEnd(outcome) - eventBytes);
    this.#armSweep();
    await this.#deliver(queued.id, webhookUrl);
  }

  /** Returns the lease under which the function's calls run here; null when they do not. */
  #leaseOf(urn: string): Lease | null {
    const lease = this.#shards.held(shardOfUrn(urn));
    return lease?.isHeld() ? lease : null;
  }

  /** Marks a call as running. Returns false when the call is not queued any more. */
  async #claim(id: string, lease: Lease): Promise<boolean> {
    this.#claims.add(id);
    try {
      const isOurs = await this.#options.durable.write(claimAsyncCall, id, lease.fence);
      return this.#maybeClaimed.delete(id) || isOurs;
    } catch (error) {
      if (mayPass(error)) this.#maybeClaimed.add(id);
      throw error;
    }
  }

  /**
   * Returns true if a call that never ran may wait longer. While the server stops it always may: the next
   * server runs it.
   */
  #mayRetry({ createdAtMs }: QueuedCall): boolean {
    return this.#isStopping || this.#now() - createdAtMs < this.#options.keepMs;
  }

  #requeue(queued: QueuedCall, code: number | undefined): void {
    this.#queue.requeue(queued);
    // No pause after `waitedTooLong`: that call has already waited for an instance. A full queue is retried a
    // little later.
    if (code === SERVICE_CODES.waitedTooLong.code || this.#isStopping) return;
    this.#queue.pause(queued, true);
    const timer = setTimeout(() => {
      this.#pauses.delete(timer);
      this.#queue.pause(queued, false);
      this.#pump();
    }, FULL_QUEUE_PAUSE_MS).unref();
    this.#pauses.add(timer);
  }

  /**
   * Reports the end of a call to its webhook. The next server sends reports that this one did not send, while
   * their results are kept. Waits only when too many deliveries are open.
   */
  async #deliver(id: string, url: string): Promise<void> {
    const { deliver } = this.#options;
    if (url === '' || deliver === null) return;
    const delivery = this.get(null, id)
      .then(answer => deliver(url, answer))
      .then(() => forgetWebhook(this.#options.database, id))
      .catch((error: unknown) => {
        this.#options.log.warn({ requestId: id, reason: messageOf(error) }, 'webhook delivery failed');
      })
      .finally(() => this.#deliveries.delete(delivery));
    this.#deliveries.add(delivery);
    if (this.#deliveries.size >= MAX_DELIVERIES) await Promise.race(this.#deliveries);
  }

  /**
   * Sends the reports that an earlier server has not sent. Runs in the background, since an address may
   * respond slowly.
   */
  async #reportUnsent(untold: Awaited<ReturnType<typeof listUntoldAsyncCalls>>): Promise<void> {
    for (const { id, webhook_url } of untold) {
      if (this.#isStopping) return;
      await this.#deliver(id, webhook_url);
    }
  }

  #armSweep(): void {
    if (this.#sweep !== undefined || this.#isStopping) return;
    this.#sweep = setTimeout(() => {
      this.#sweep = undefined;
      void this.dropOld();
    }, SWEEP_MS).unref();
  }

  /**
   * Removes results that are older than `keepMs`. A timer runs only while results are kept. Never rejects.
   */
  async dropOld(): Promise<void> {
    const { database, keepMs, shards } = this.#options;
    try {
      for (let isMore = true; isMore; ) {
        const dropped = await dropAsyncCalls(database, this.#now() - keepMs, DROPPED_AT_ONCE);
        for (const { tenant, bytes } of dropped) this.#usage.stored(tenant, -bytes);
        isMore = dropped.length === DROPPED_AT_ONCE && !this.#isStopping;
      }
      // The sum scans all kept calls and blocks an embedded database meanwhile. With several replicas it is
      // needed each time: only the sum includes the writes of the others.
      if (!this.#isCounted || shards !== undefined) this.#usage.setStored(await sumAsyncCallBytes(database));
      this.#isCounted = true;
      if ((await oldestCompletionMs(database)) !== null) this.#armSweep();
    } catch (error) {
      this.#options.log.warn({ reason: messageOf(error) }, 'cannot remove old results of asynchronous calls');
      this.#armSweep();
    }
  }
}
