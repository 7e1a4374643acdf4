import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import { MAX_TIMER_MS } from '../../lib/deadline.ts';
import { messageEnvelope } from './envelopes.ts';
import { ConnectError } from './errors.ts';

const DEFAULT_PING_SECONDS = 90;

/** The messages of a stream to a client. Sends a keep-alive message after each period of silence. */
export class MessageStream {
  readonly #response: ServerResponse;
  readonly #timer: NodeJS.Timeout;
  #ping: object | undefined;
  #hasBegun = false;

  constructor(response: ServerResponse, headers: IncomingHttpHeaders) {
    this.#response = response;
    const pingMs = pingSecondsOf(headers) * 1000;
    this.#timer = setInterval(() => this.#sendPing(), pingMs).unref();
  }

  /** True after the first message. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** Sends keep-alive messages from now on. */
  keepAliveWith(ping: object): void {
    this.#ping = ping;
  }

  /** Sends a message. Resolves when the client's connection accepts more; fails when it has closed. */
  async send(message: object): Promise<void> {
    const response = this.#response;
    if (response.destroyed) throw clientLeft();
    this.#hasBegun = true;
    this.#timer.refresh();
    if (response.write(messageEnvelope(message))) return;
    await new Promise<void>((resolve, reject) => {
      const end = () => {
        response.off('drain', onDrain).off('close', onClose);
      };
      const onDrain = () => {
        end();
        resolve();
      };
      const onClose = () => {
        end();
        reject(clientLeft());
      };
      response.once('drain', onDrain).once('close', onClose);
    });
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #sendPing(): void {
    const response = this.#response;
    if (this.#ping === undefined || response.destroyed || response.writableNeedDrain) return;
    response.write(messageEnvelope(this.#ping));
  }
}

export function clientLeft(): ConnectError {
  return new ConnectError('canceled', 'the client disconnected');
}

/** Reads `Keepalive-Ping-Interval`, in whole seconds. Ignores a value that is not one. */
function pingSecondsOf(headers: IncomingHttpHeaders): number {
  const sent = headers['keepalive-ping-interval'];
  const seconds = typeof sent === 'string' && /^\d+$/.test(sent) ? Number(sent) : 0;
  return seconds === 0 || seconds * 1000 > MAX_TIMER_MS ? DEFAULT_PING_SECONDS : seconds;
}
