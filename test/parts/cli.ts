import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { run } from '../../src/cli/program.ts';
import type { Io, Output, Terminal } from '../../src/cli/shared/io.ts';

export interface Seen {
  readonly method: string;
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

export type Answer = (request: Seen, response: ServerResponse) => void;

/** A service that gives the answers of the test and records the requests. */
export class StubService implements AsyncDisposable {
  readonly seen: Seen[] = [];
  readonly #server: Server;

  private constructor(server: Server) {
    this.#server = server;
  }

  /** Starts a service on a free port of an address of this machine. */
  static async start(answer: Answer, host = '127.0.0.1'): Promise<StubService> {
    const server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const { method = '', url = '', headers } = request;
      const seen = { method, url, headers, body: Buffer.concat(chunks).toString() };
      service.seen.push(seen);
      answer(seen, response);
    });
    const service = new StubService(server);
    await new Promise<void>(resolve => server.listen(0, host, resolve));
    return service;
  }

  get address(): string {
    const { address, port } = this.#server.address() as AddressInfo;
    return `http://${address}:${port}`;
  }

  get last(): Seen {
    const last = this.seen.at(-1);
    if (last === undefined) throw new Error('the service was not asked anything');
    return last;
  }

  /** The last request that changed something. */
  get lastWrite(): Seen {
    const last = this.seen.filter(({ method }) => method !== 'GET').at(-1);
    if (last === undefined) throw new Error('the service was not asked to change anything');
    return last;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise(resolve => this.#server.close(resolve));
  }
}

export function json(response: ServerResponse, status: number, value: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(value));
}

export interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

export interface RunOptions {
  readonly environment?: Readonly<Record<string, string>>;
  readonly stdin?: string | AsyncIterable<string | Uint8Array>;
  readonly terminal?: Terminal;
  readonly signal?: AbortSignal;
  /** Called at once with each text that is written to stdout. */
  readonly onOut?: (text: string) => void;
  readonly isTerminal?: boolean;
  readonly columns?: number;
}

/** Runs a command in this process, as `main.ts` would. */
export async function cli(args: readonly string[], options: RunOptions = {}): Promise<Ran> {
  const written = { out: '', err: '' };
  const output = (name: 'out' | 'err', isTerminal: boolean): Output => ({
    write(text) {
      const words = typeof text === 'string' ? text : Buffer.from(text).toString();
      written[name] += words;
      if (name === 'out') options.onOut?.(words);
      return true;
    },
    drained: async () => {},
    isTerminal,
    columns: options.columns ?? 80,
  });
  const io: Io = {
    environment: options.environment ?? {},
    out: output('out', options.isTerminal ?? false),
    // A spinner would write to the real terminal.
    err: output('err', false),
    stdin: Readable.from(typeof options.stdin === 'object' ? options.stdin : [options.stdin ?? ''].filter(Boolean)),
    signal: options.signal ?? new AbortController().signal,
    ...(options.terminal ? { terminal: options.terminal } : {}),
  };
  const code = await run(args, io, '1.2.3');
  return { code, ...written };
}
