import type { Exchange, HeaderList } from '../http/exchange.ts';

const HEARTBEAT_MS = 15_000;
const HEARTBEAT = ':\n\n';

/**
 * One answer as server-sent events (the HTML standard, §9.2). Nothing is sent before the first event, so a call that fails before it can
 * still answer with a status of its own.
 */
export class EventStream {
  readonly #exchange: Pick<Exchange, 'response' | 'begin'>;
  readonly #headers: HeaderList;
  readonly #heartbeat: NodeJS.Timeout;
  #isOpen = false;
  #isEnded = false;

  /** `headers`: more of the answer's; read when it begins. */
  constructor(exchange: Pick<Exchange, 'response' | 'begin'>, headers: HeaderList) {
    this.#exchange = exchange;
    this.#headers = headers;
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
    if (this.#isOpen) this.#exchange.response.end();
  }

  #write(text: string, taken?: () => void): void {
    const { response } = this.#exchange;
    if (this.#isEnded || response.destroyed) return;
    if (!this.#isOpen) this.#open();
    if (response.write(text)) taken?.();
    else if (taken) response.once('drain', taken);
  }

  #open(): void {
    this.#isOpen = true;
    const response = this.#exchange.begin(200, [...STREAM_HEADERS, ...this.#headers]);
    // One listener for each event that waits for the caller; how many is bounded by the stream's credit.
    response.setMaxListeners(0);
  }
}

const STREAM_HEADERS: HeaderList = [
  ...['Content-Type', 'text/event-stream; charset=utf-8'],
  ...['Cache-Control', 'no-store'],
  ...['X-Accel-Buffering', 'no'],
];

/** A field's line for each line of the text; any of the three line ends of the standard ends one. */
function fieldLines(field: string, text: string): string {
  return text
    .split(/\r\n|\r|\n/)
    .map(line => `${field}: ${line}\n`)
    .join('');
}
