import { setTimeout as delay } from 'node:timers/promises';
import { Agent, request } from 'undici';

export interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
  /** Who answered. */
  readonly replica: string;
}

export interface Replica {
  readonly name: string;
  readonly frontendUrl: string;
  readonly metaUrl: string;
}

export interface Wish {
  /** This one, while it takes requests. */
  readonly on?: string | undefined;
  /** Any but this one, where there is another. */
  readonly avoid?: string | undefined;
}

/** Who takes a request. */
export interface Balancer {
  /** Null: nobody, for the moment. */
  pick(wish: Wish): Replica | null;
  /** Whether a connection that is refused goes to somebody else, as with a load balancer: then it was no call. */
  readonly passesOver: boolean;
}

/** A request that was sent, and what became of it; times of `performance.now()`. */
export interface Asked {
  readonly method: string;
  readonly path: string;
  readonly replica: string;
  readonly sentMs: number;
  readonly endedMs: number;
  /** Null: no answer came. */
  readonly status: number | null;
  readonly text: string;
}

/** Long enough for a service that was stopped for some seconds, and short enough that a history goes on. */
const ANSWER_MS = 20_000;
const AGAIN_MS = 20;

/** Asks both entries at addresses that stay the same over restarts. No answer is an outcome (`null`): nobody knows whether the request was done. */
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

  /** The name of one that takes requests. */
  anyReplica(): string | undefined {
    return this.#balancer.pick({})?.name;
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }
}

/** Errors of jobs are plain text. */
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
  /** Ask the meta_service. */
  readonly meta?: boolean;
}
