import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from 'pg';
import { type Backoff, backoffMs, pause } from '../lib/backoff.ts';
import { poolConfig } from './postgres/postgres-connections.ts';

export interface WakeUpsOptions {
  readonly url: string;
  /** The node that notifies. Its own notifications do not call `onWake`. */
  readonly origin: string;
  readonly timeoutMs: number;
}

const CHANNEL = 'rookery_feed';
/**
 * Least interval between notifications of this process: a commit with `pg_notify` takes a lock of the whole
 * server.
 */
const BETWEEN_MS = 5;
const RECONNECT: Backoff = { firstMs: 50, longestMs: 2000 };

/**
 * Notifies the feed readers of other nodes and receives their notifications, over one connection that
 * reconnects after each loss. Delivery is best effort: behind a transaction pooler no notification arrives,
 * and without a connection they are lost. Readers therefore poll too.
 */
export class WakeUps {
  readonly #options: WakeUpsOptions;
  readonly #closing = new AbortController();
  #client: Client | undefined;
  #running: Promise<void> | undefined;
  #sending: Promise<void> | null = null;
  #isAsked = false;

  constructor(options: WakeUpsOptions) {
    this.#options = options;
  }

  start(onWake: () => void): void {
    this.#running ??= this.#run(onWake);
  }

  /** Sends a notification soon. Requests within the interval share one. */
  notify(): void {
    this.#isAsked = true;
    if (!this.#closing.signal.aborted) this.#sending ??= this.#send();
  }

  async close(): Promise<void> {
    // Changes that were committed before the close still wake other nodes.
    await this.#sending;
    this.#closing.abort();
    await this.#client?.end().catch(() => undefined);
    await this.#running;
  }

  async #send(): Promise<void> {
    const { origin, timeoutMs } = this.#options;
    while (this.#isAsked) {
      this.#isAsked = false;
      const client = this.#client;
      if (client !== undefined) {
        const asked = () => client.query('select pg_notify($1, $2)', [CHANNEL, origin]);
        await bounded(client, timeoutMs, asked).catch(() => undefined);
      }
      await delay(BETWEEN_MS);
    }
    this.#sending = null;
  }

  async #run(onWake: () => void): Promise<void> {
    const { signal } = this.#closing;
    for (let failures = 1; !signal.aborted; failures++) {
      if (await this.#listen(onWake)) failures = 0;
      if (!signal.aborted) await pause(backoffMs(RECONNECT, Math.max(1, failures)), signal);
    }
  }

  /** Listens until the connection ends. Returns false when there was no connection. */
  async #listen(onWake: () => void): Promise<boolean> {
    const { url, origin, timeoutMs } = this.#options;
    const { default: pg } = await import('pg');
    const client = new pg.Client({
      ...poolConfig(url, 1),
      connectionTimeoutMillis: timeoutMs,
      application_name: 'rookery feed',
    });
    client.on('error', () => undefined);
    client.on('notification', ({ payload }) => {
      if (payload !== origin) onWake();
    });
    const ended = new Promise<void>(resolve => client.once('end', resolve));
    try {
      await client.connect();
      await bounded(client, timeoutMs, () => client.query(`listen ${CHANNEL}`));
      this.#client = client;
      if (this.#closing.signal.aborted) return true;
      // Notifications before `listen` are lost, so read once now.
      onWake();
      await ended;
      return true;
    } catch {
      return false;
    } finally {
      this.#client = undefined;
      void client.end().catch(() => undefined);
    }
  }
}

/**
 * Runs `ask`, and ends the connection when no answer arrives in time. Every query on that connection then
 * fails.
 */
async function bounded<R>(client: Client, timeoutMs: number, ask: () => Promise<R>): Promise<R> {
  const timer = setTimeout(() => streamOf(client).destroy(), timeoutMs);
  try {
    return await ask();
  } finally {
    clearTimeout(timer);
  }
}

function streamOf(client: Client): { destroy(): void } {
  return (client as unknown as { connection: { stream: { destroy(): void } } }).connection.stream;
}
