import type { FastifyReply } from 'fastify';

const HEARTBEAT_MS = 15_000;
const HEARTBEAT = ':\n\n';

/**
 * One answer as server-sent events (the HTML standard, §9.2). Nothing is sent before the first event, so a call that fails before it can
 * still answer with a status of its own.
 */
export class EventStream {
  readonly #reply: FastifyReply;
  readonly #heartbeat: NodeJS.Timeout;
  #isOpen = false;
  #isEnded = false;

  constructor(reply: FastifyReply) {
    this.#reply = reply;
    this.#heartbeat = setInterval(() => this.#write(HEARTBEAT), HEARTBEAT_MS);
  }

  /** True once a byte was sent: the status is gone then. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Sends one event; `taken` is called when the caller's connection can hold more. */
  event(text: string, taken?: () => void): void {
    this.#write(`${fieldLines('data', text)}\n`, taken);
  }

  /** The end after a failure that came too late for a status. */
  error(text: string): void {
    this.#write(`event: error\n${fieldLines('data', text)}\n`);
    this.end();
  }

  end(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    clearInterval(this.#heartbeat);
    if (this.#isOpen) this.#reply.raw.end();
  }

  #write(text: string, taken?: () => void): void {
    const { raw } = this.#reply;
    if (this.#isEnded || raw.destroyed) return;
    if (!this.#isOpen) this.#open();
    if (raw.write(text)) taken?.();
    else if (taken) raw.once('drain', taken);
  }

  #open(): void {
    this.#isOpen = true;
    const reply = this.#reply;
    reply.hijack();
    const { raw } = reply;
    // One listener for each event that waits for the caller; how many is bounded by the stream's credit.
    raw.setMaxListeners(0);
    for (const [name, value] of Object.entries(reply.getHeaders())) if (value !== undefined) raw.setHeader(name, value);
    raw.setHeader('Content-Type', 'text/event-stream; charset=utf-8');
    raw.setHeader('Cache-Control', 'no-store');
    raw.setHeader('X-Accel-Buffering', 'no');
    raw.writeHead(200);
  }
}

/** A field's line for each line of the text; any of the three line ends of the standard ends one. */
function fieldLines(field: string, text: string): string {
  return text
    .split(/\r\n|\r|\n/)
    .map(line => `${field}: ${line}\n`)
    .join('');
}
