import { type FunctionCallHeaders, readSessionHeader } from '../core/function-call.ts';
import { type HttpProfileName, httpProfileOf } from '../core/http-profiles.ts';
import { CallController, type CallSignal } from '../lib/call-signal.ts';
import type { Call } from '../runtime/call.ts';

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
  startCall(urn: string, sessionId: string, caller: CallSignal | undefined): SessionCall {
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

/** The part of a call that says which session it belongs to. */
interface CallOfSession {
  readonly headers: FunctionCallHeaders;
  readonly call: Pick<Call, 'header'>;
}

/**
 * Adds the session of the header that the profile of the function names. `X-Instance-Session` wins.
 * Fails with `invalid_request` (4037) for an id of a wrong length.
 */
export function withProfileSession<T extends CallOfSession>(invocation: T, profile: HttpProfileName): T {
  const { headers, call } = invocation;
  const { sessionHeader } = httpProfileOf(profile);
  if (sessionHeader === null || headers.session !== undefined) return invocation;
  const session = readSessionHeader(sessionHeader, call.header.headers ?? {});
  if (session === undefined) return invocation;
  const header = { ...call.header, sessionId: session.id };
  return { ...invocation, headers: { ...headers, session }, call: { ...call, header } };
}
