import { setTimeout as delay } from 'node:timers/promises';
import { Agent, request } from 'undici';

export interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
  /** Name of the replica that answered. */
  readonly replica: string;
}

export interface Replica {
  readonly name: string;
  readonly frontendUrl: string;
  readonly metaUrl: string;
}

export interface Wish {
  /** Replica to prefer while it accepts requests. */
  readonly on?: string | undefined;
  /** Replica to avoid when another one accepts requests. */
  readonly avoid?: string | undefined;
}

/** Chooses the replica for a request. */
export interface Balancer {
  /** Returns a replica, or null when none accepts requests at the moment. */
  pick(wish: Wish): Replica | null;
  /**
   * True if a refused connection is retried on another replica, as a load balancer does. Such an attempt does
   * not count as a call.
   */
  readonly passesOver: boolean;
}

/** A request that was sent, and its outcome. Times are those of `performance.now()`. */
export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly replica: string;
  readonly sentMs: number;
  readonly endedMs: number;
  /** Status of the answer; null when no answer arrived. */
  readonly status: number | null;
  readonly text: string;
}

/** Timeout of an answer. A service may be frozen for some seconds, and the history must continue. */
const ANSWER_MS = 20_000;
const AGAIN_MS = 20;

/**
 * Sends requests to both entries at addresses that stay the same over restarts. A missing answer is the
 * outcome `null`: the request may have been done.
 */
export class Client {
  readonly #balancer: Balancer;
  readonly #answerMs: number;
  readonly #told: (asked: Asked) => void;
  readonly #agent: Agent;

  constructor(balancer: Balancer, told: (asked: Asked) => void = () => undefined, answerMs = ANSWER_MS) {
    this.#balancer = balancer;
    this.#told = told;
    this.#answerMs = answerMs;
    this.#agent = new Agent({ connections: 64, headersTimeout: answerMs, bodyTimeout: answerMs });
  }

  async ask(method: 'GET' | 'POST' | 'PUT' | 'DELETE', path: string, more: AskOptions = {}): Promise<Answer | null> {
    const untilMs = performance.now() + this.#answerMs;
    while (performance.now() < untilMs) {
      const replica = this.#balancer.pick(more);
      const sentMs = performance.now();
      const tell = (status: number | null, text: string) =>
        this.#told({ method, path, replica: replica?.name ?? '', sentMs, endedMs: performance.now(), status, text });
      try {
        if (replica !== null) {
          const { statusCode, body } = await request(`${more.meta ? replica.metaUrl : replica.frontendUrl}${path}`, {
            method,
            dispatcher: this.#agent,
            headers: { 'content-type': 'application/json', ...more.headers },
            ...(more.body === undefined ? {} : { body: JSON.stringify(more.body) }),
            signal: AbortSignal.timeout(this.#answerMs),
          });
          const text = await body.text();
          tell(statusCode, text);
          return { status: statusCode, body: bodyOf(text), replica: replica.name };
        }
      } catch (error) {
        if (!this.#balancer.passesOver || (error as NodeJS.ErrnoException).code !== 'ECONNREFUSED') {
          tell(null, String(error));
          return null;
        }
      }
      await delay(AGAIN_MS);
    }
    return null;
  }

  /** Returns the name of a replica that accepts requests. */
  anyReplica(): string | undefined {
    return this.#balancer.pick({})?.name;
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

/** Returns the fields of an answer. Errors of jobs are plain text. */
function bodyOf(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return { text };
  }
}

export interface AskOptions extends Wish {
  readonly body?: object;
  readonly headers?: Readonly<Record<string, string>>;
  /** Sends the request to the meta_service. */
  readonly meta?: boolean;
}
