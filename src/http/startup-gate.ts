import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { JSON_TYPE, refusal } from './answer.ts';

export interface StartupGateOptions {
  /** Longest time that a request waits for the start before it is refused. */
  readonly waitMs: number;
  /** Maximum number of waiting requests. Further requests are refused immediately. */
  readonly maxWaiting: number;
}

const USUAL: StartupGateOptions = { waitMs: 5_000, maxWaiting: 1_000 };
/** Paths that the server answers before it is ready. */
const ALWAYS_OPEN = new Set(['/healthz', '/readyz', '/metrics']);
const RETRY_AFTER_SECONDS = 1;

interface Waiting {
  readonly pass: () => void;
  readonly refuse: () => void;
}

/**
 * Delays requests while a server that already listens is still starting.
 * Before the server has found what an earlier server left, its answers would not be reliable. Each request
 * waits up to `waitMs`. If the server has not started by then, the request is refused with 503 and
 * `Retry-After`.
 *
 * The gate overrides `emit` of the server. `open` removes the override, so that later requests cost
 * nothing extra.
 */
export class StartupGate {
  readonly #server: Server;
  readonly #options: StartupGateOptions;
  readonly #waiting = new Set<Waiting>();

  constructor(server: Server, options: StartupGateOptions = USUAL) {
    this.#server = server;
    this.#options = options;
    const emit = server.emit.bind(server) as (event: string, ...args: unknown[]) => boolean;
    // An own property shadows the method of the class, and `open` can delete it again.
    server.emit = ((event: string, ...args: unknown[]) => {
      if (event === 'request')
        this.#hold(args[0] as IncomingMessage, args[1] as ServerResponse, () => emit(event, ...args));
      else if (event === 'upgrade')
        this.#hold(args[0] as IncomingMessage, args[1] as Duplex, () => emit(event, ...args));
      else return emit(event, ...args);
      return true;
    }) as Server['emit'];
  }

  /** Passes all waiting requests to the server, in the order of their arrival. */
  open(): void {
    delete (this.#server as Partial<Pick<Server, 'emit'>>).emit;
    for (const { pass } of [...this.#waiting]) pass();
  }

  /** Refuses all waiting requests, because the server stops before it has started. */
  refuseWaiting(): void {
    for (const { refuse } of [...this.#waiting]) refuse();
  }

  #hold(request: IncomingMessage, answer: ServerResponse | Duplex, emit: () => void): void {
    if (ALWAYS_OPEN.has((request.url ?? '').split('?', 1)[0] as string)) {
      emit();
      return;
    }
    if (this.#waiting.size >= this.#options.maxWaiting) {
      refuse(answer);
      return;
    }
    const leave = () => {
      clearTimeout(timer);
      answer.off('close', leave);
      answer.off('error', leave);
      this.#waiting.delete(waiting);
    };
    const waiting: Waiting = {
      pass: () => {
        leave();
        emit();
      },
      refuse: () => {
        leave();
        refuse(answer);
      },
    };
    const timer = setTimeout(waiting.refuse, this.#options.waitMs);
    this.#waiting.add(waiting);
    // The client disconnected.
    answer.once('close', leave).once('error', leave);
  }
}

function refuse(answer: ServerResponse | Duplex): void {
  const { status, body } = refusal(503, 'the server is starting: it does not yet know what an earlier one left');
  const text = JSON.stringify(body);
  const headers = {
    'Content-Type': JSON_TYPE,
    'Content-Length': Buffer.byteLength(text),
    'Retry-After': RETRY_AFTER_SECONDS,
    // The server does not read the body, so the next request on this connection could not be parsed.
    Connection: 'close',
  };
  if ('writeHead' in answer) {
    answer.writeHead(status, headers).end(text);
    return;
  }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  answer.on('error', () => answer.destroy());
  answer.end(`HTTP/1.1 ${status} Service Unavailable\r\n${lines.join('')}\r\n${text}`);
}
