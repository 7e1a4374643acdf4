import { Agent, request } from 'undici';

export interface Answer {
  readonly status: number;
  readonly body: Record<string, unknown>;
}

/** Long enough for a service that was stopped for some seconds, and short enough that a history goes on. */
const ANSWER_MS = 20_000;

/** Asks both entries at addresses that stay the same over restarts. No answer is an outcome (`null`): nobody knows whether the request was done. */
export class Client {
  readonly #frontendUrl: string;
  readonly #metaUrl: string;
  readonly #agent = new Agent({ connections: 64, headersTimeout: ANSWER_MS, bodyTimeout: ANSWER_MS });

  constructor(frontendPort: number, metaPort: number) {
    this.#frontendUrl = `http://127.0.0.1:${frontendPort}`;
    this.#metaUrl = `http://127.0.0.1:${metaPort}`;
  }

  async ask(method: 'GET' | 'POST' | 'PUT' | 'DELETE', path: string, more: AskOptions = {}): Promise<Answer | null> {
    try {
      const { statusCode, body } = await request(`${more.meta ? this.#metaUrl : this.#frontendUrl}${path}`, {
        method,
        dispatcher: this.#agent,
        headers: { 'content-type': 'application/json', ...more.headers },
        ...(more.body === undefined ? {} : { body: JSON.stringify(more.body) }),
        signal: AbortSignal.timeout(ANSWER_MS),
      });
      const text = await body.text();
      return { status: statusCode, body: bodyOf(text) };
    } catch {
      return null;
    }
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

interface AskOptions {
  readonly body?: object;
  readonly headers?: Readonly<Record<string, string>>;
  /** Ask the meta_service. */
  readonly meta?: boolean;
}
