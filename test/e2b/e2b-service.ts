import { Served, STOP_AGENTS } from '../../scripts/served.ts';

/** A key that a service without authentication accepts. */
export const ANY_KEY = `e2b_${'0123456789'.repeat(4)}`;

/** A service that E2B SDKs use, on a port that stays the same over restarts. */
export class E2bService {
  #served: Served;
  readonly #args: readonly string[];
  readonly frontendUrl: string;

  private constructor(served: Served, args: readonly string[]) {
    this.#served = served;
    this.#args = args;
    this.frontendUrl = served.frontendUrl;
  }

  static async start(args: readonly string[] = []): Promise<E2bService> {
    return new E2bService(await Served.start({ args }), args);
  }

  /** Environment variables that a user of the SDK sets. */
  get sdkEnvironment(): Readonly<Record<string, string>> {
    return {
      E2B_API_URL: `${this.frontendUrl}/e2b`,
      E2B_SANDBOX_URL: `${this.frontendUrl}/e2b/sandbox`,
      E2B_API_KEY: ANY_KEY,
    };
  }

  get served(): Served {
    return this.#served;
  }

  get output(): string {
    return this.#served.output;
  }

  /** Does what a flow asks for. Fails for an unknown request. */
  async act(request: string): Promise<void> {
    if (request !== 'kill -9 and start') throw new Error(`no action "${request}"`);
    await this.#served.end('SIGKILL');
    this.#served = await this.#served.next({ args: [...this.#args, '--port', new URL(this.frontendUrl).port] });
  }

  /** Ends the service and all sandboxes. */
  async remove(): Promise<void> {
    await this.#served.end('SIGKILL');
    const last = await this.#served.next({ args: [...this.#args, STOP_AGENTS] });
    await last.remove();
  }
}
