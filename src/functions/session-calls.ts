import { CallController, type CallSignal } from '../lib/call-signal.ts';

/** Running call of a session. */
export interface SessionCall {
  /** Aborts when the caller disconnects, and fires for each interrupt of the session. */
  readonly signal: CallSignal;
  /** Ends the record of the call and removes the listener of its caller. */
  end(): void;
}

/**
 * Running calls of all sessions, so that an interrupt finds them. The handler of a call may continue after an
 * interrupt.
 */
export class SessionCalls {
  readonly #running = new Map<string, Set<CallController>>();

  /** Records a call until `end`. */
  begin(urn: string, sessionId: string, caller: CallSignal | undefined): SessionCall {
    const key = keyOf(urn, sessionId);
    const controller = new CallController();
    const abort = () => controller.abort(caller?.reason);
    if (caller?.aborted) abort();
    else caller?.addEventListener('abort', abort);
    const running = this.#running.get(key);
    if (running) running.add(controller);
    else this.#running.set(key, new Set([controller]));
    return {
      signal: controller,
      end: () => {
        caller?.removeEventListener('abort', abort);
        const calls = this.#running.get(key);
        calls?.delete(controller);
        if (calls?.size === 0) this.#running.delete(key);
      },
    };
  }

  /** Interrupts the running calls of a session. Returns false when there are none. */
  interrupt(urn: string, sessionId: string): boolean {
    const running = this.#running.get(keyOf(urn, sessionId));
    for (const controller of running ?? []) controller.interrupt();
    return running !== undefined;
  }
}

function keyOf(urn: string, sessionId: string): string {
  return `${urn}\n${sessionId}`;
}
