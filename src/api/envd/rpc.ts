import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import type { JsonObject } from '../../core/json.ts';
import { drained } from '../../http/limits/drained.ts';
import { MAX_TIMER_MS } from '../../lib/deadline.ts';
import type { SandboxAccess } from '../../sandbox/access.ts';
import { userOf } from './access.ts';
import type { Call, Procedure, SandboxDefaults } from './call.ts';
import { endEnvelope, messageEnvelope, readEnvelopes, readUnary, toErrorBody } from './envelopes.ts';
import { ConnectError, reasonOf, toConnectError } from './errors.ts';
import { clientLeft, MessageStream } from './message-stream.ts';

const JSON_TYPE = 'application/json';
const STREAM_TYPE = 'application/connect+json';

export interface RpcRequest {
  readonly raw: IncomingMessage;
  readonly response: ServerResponse;
  readonly sandbox: { readonly id: string; readonly defaults: SandboxDefaults };
  readonly access: SandboxAccess;
  /** Receives the reason of a failed call, for the access log. */
  readonly reportFailure: (text: string) => void;
}

/** Serves one call of the Connect protocol in JSON. Never throws. */
export async function serveCall(procedure: Procedure, request: RpcRequest): Promise<void> {
  const { raw, response } = request;
  const wanted = procedure.kind === 'unary' ? JSON_TYPE : STREAM_TYPE;
  const type = (raw.headers['content-type'] ?? '').split(';', 1)[0]?.trim().toLowerCase();
  if (type !== wanted) {
    await drained(raw);
    response.writeHead(415, { 'Accept-Post': wanted }).end();
    return;
  }
  const over = new AbortController();
  const onClose = () => over.abort(clientLeft());
  response.once('close', onClose);
  let timer: NodeJS.Timeout | undefined;
  try {
    const timeoutMs = timeoutOf(raw.headers);
    const hasOwnTimeout = procedure.kind === 'server-stream' && procedure.hasOwnTimeout === true;
    if (timeoutMs > 0 && !hasOwnTimeout) {
      const late = () => over.abort(new ConnectError('deadline_exceeded', `the call took longer than ${timeoutMs} ms`));
      timer = setTimeout(late, Math.min(timeoutMs, MAX_TIMER_MS)).unref();
    }
    const { sandbox, access } = request;
    const { headers } = raw;
    const user = userOf(headers);
    const call: Call = {
      ...{ sandboxId: sandbox.id, access, headers, timeoutMs, signal: over.signal },
      user: user || sandbox.defaults.user,
      workingDir: isDefault(user, sandbox.defaults) ? sandbox.defaults.workingDir : '',
    };
    if (procedure.kind === 'unary') await serveUnary(procedure, request, call);
    else await serveStream(procedure, request, call);
  } catch (error) {
    answerUnary(request, over.signal.aborted ? over.signal.reason : error);
  } finally {
    clearTimeout(timer);
    response.off('close', onClose);
    over.abort(clientLeft());
  }
}

/** Returns true if a request with this user, or none, is of the default account. */
function isDefault(user: string, defaults: SandboxDefaults): boolean {
  return user === '' || user === (defaults.user || 'user');
}

async function serveUnary(
  procedure: Extract<Procedure, { kind: 'unary' }>,
  { raw, response }: RpcRequest,
  call: Call,
): Promise<void> {
  const encoding = raw.headers['content-encoding'] ?? 'identity';
  if (encoding !== 'identity') throw new ConnectError('unimplemented', `the encoding ${encoding} is not supported`);
  const answer = JSON.stringify(await procedure.run(await readUnary(raw), call));
  response.writeHead(200, { 'Content-Type': JSON_TYPE, 'Content-Length': Buffer.byteLength(answer) }).end(answer);
}

function answerUnary({ response, reportFailure }: RpcRequest, thrown: unknown): void {
  const error = toConnectError(thrown);
  reportFailure(reasonOf(error));
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const body = JSON.stringify(toErrorBody(error));
  response.writeHead(error.status, { 'Content-Type': JSON_TYPE, 'Content-Length': Buffer.byteLength(body) }).end(body);
}

/**
 * Serves a stream. A failure is the last envelope of an answer with status 200. When the sandbox ends after
 * the first message, the connection breaks without a last envelope: clients then ask whether the sandbox
 * still runs.
 */
async function serveStream(
  procedure: Exclude<Procedure, { kind: 'unary' }>,
  { raw, response, reportFailure }: RpcRequest,
  call: Call,
): Promise<void> {
  const stream = new MessageStream(response, raw.headers);
  const messages = readEnvelopes(raw);
  try {
    if (procedure.kind === 'client-stream') {
      const answer = await procedure.run(messages, call);
      writeStreamHead(response);
      response.write(messageEnvelope(answer));
    } else {
      const message = await onlyMessage(messages);
      writeStreamHead(response);
      await procedure.run(message, call, stream);
    }
    response.end(endEnvelope(null));
  } catch (thrown) {
    const error = toConnectError(call.signal.aborted ? call.signal.reason : thrown);
    if (error.code !== 'canceled') reportFailure(reasonOf(error));
    if (!response.headersSent) {
      raw.resume();
      await drained(raw);
      writeStreamHead(response);
    }
    if (stream.hasBegun && error.code === 'unavailable') response.destroy();
    else response.end(endEnvelope(error));
  } finally {
    stream.close();
    // Not awaited: a client that still sends messages holds it up.
    void messages.return();
  }
}

/** Sends the head. Clients stop sending their body once they have it, so it must not precede the message. */
function writeStreamHead(response: ServerResponse): void {
  if (response.destroyed) return;
  response.writeHead(200, { 'Content-Type': STREAM_TYPE });
  response.flushHeaders();
}

/** Reads the message of a call, and the body to its end. */
async function onlyMessage(messages: AsyncGenerator<JsonObject, void, undefined>): Promise<JsonObject> {
  const { value } = await messages.next();
  if (value === undefined) throw new ConnectError('invalid_argument', 'the body has no message');
  const { done } = await messages.next();
  if (!done) throw new ConnectError('invalid_argument', 'the body has more than one message');
  return value;
}

/** Reads `Connect-Timeout-Ms`. 0: absent. Fails with `invalid_argument`. */
function timeoutOf(headers: IncomingHttpHeaders): number {
  const sent = headers['connect-timeout-ms'];
  if (sent === undefined || sent === '') return 0;
  if (typeof sent !== 'string' || !/^\d{1,10}$/.test(sent)) {
    throw new ConnectError('invalid_argument', 'Connect-Timeout-Ms must have at most 10 digits');
  }
  return Number(sent);
}
