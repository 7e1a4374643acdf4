import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { AgentInstances, AgentOutcome } from '../../agents/contract.ts';
import { USER_CODES } from '../../core/codes.ts';
import { Asleep, invalidRequest, loggable, messageOf, ServiceError, StateUnsaved } from '../../core/error.ts';
import type { CallSink } from '../../core/finished-call.ts';
import { parseJson } from '../../core/json.ts';
import { LIMITS } from '../../core/limits.ts';
import { headerText } from '../../http/answer.ts';
import { type Exchange, SMALL_ANSWER_BYTES } from '../../http/hot/exchange.ts';
import { addHotRoute } from '../../http/hot/fast-path.ts';
import { exceededBound, isJson } from '../../lib/json-bytes.ts';
import { newRequestId } from '../../lib/random-ids.ts';
import type { Call, CallOutcome } from '../../runtime/call.ts';
import { continueTrace, formatTraceparent } from '../../telemetry/traceparent.ts';
import { runPart, type Span, type Tracer } from '../../telemetry/tracer.ts';
import { frontendErrors } from '../errors.ts';
import { forwardedHeaders } from '../forwarded-headers.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { AGENT_DOCS } from './docs.ts';
import { INVOKE_HEADERS } from './parameters.ts';

export interface InvokeRouteOptions {
  readonly instances: AgentInstances;
  readonly tracer: Tracer;
  /**
   * Called after each call. `outcome` is `ok`, the number of a failure of user code, or an error code of the
   * service.
   */
  readonly invoked: (outcome: string, seconds: number, instanceId: string) => void;
  /** The history of calls. */
  readonly callSink: CallSink;
}

const EMPTY_EVENT = Buffer.from('{}');
const BEFORE_DATA = '{"code":200,"data":';
const AFTER_DATA = ',"message":""}';
/** Headers of the answer to a call that ran too long. */
const TIMED_OUT = ['X-Inner-Code', String(USER_CODES.timedOut.code)];

/**
 * Adds `POST /api/agent/{instanceId}/invoke`, a hot route.
 * The bytes of the event go to the runtime unchanged. The bytes of the result are returned unchanged in an
 * envelope. Nothing is encoded again, and the database is not read.
 */
export function addInvokeRoute(app: FastifyInstance, options: InvokeRouteOptions): void {
  addHotRoute(app, {
    url: '/api/agent/:instanceId/invoke',
    parameter: 'instanceId',
    bodyLimit: LIMITS.invokeBodyBytes,
    config: { access: 'invoke', livesWith: LIVES_WITH_AGENT, docs: AGENT_DOCS.invoke },
    early: (exchange, instanceId) => {
      const refusal = options.instances.refusal(exchange.tenant, instanceId);
      if (refusal === undefined) return undefined;
      return () => {
        options.invoked(refusal.code, 0, instanceId);
        refuse(exchange, refusal);
      };
    },
    timeoutMs: readTimeoutMs,
    handle: (exchange, instanceId) => invoke(exchange, instanceId, options),
    refuse,
    unreachable: (exchange, error) => exchange.fail(error, frontendErrors(error)),
  });
}

/** Returns the timeout of a call, or 0 if the header is invalid. `invoke` reports the error later. */
function readTimeoutMs(headers: IncomingHttpHeaders): number {
  try {
    return INVOKE_HEADERS.timeoutMs.read(headers);
  } catch {
    return 0;
  }
}

function invoke(exchange: Exchange, instanceId: string, options: InvokeRouteOptions): void {
  const { instances, tracer, invoked } = options;
  const startMs = performance.now();
  const { headers } = exchange.raw;
  const body = readEvent(exchange.body);
  const timeoutMs = INVOKE_HEADERS.timeoutMs.read(headers);
  const sent = headers.traceparent as string | undefined;
  const span = tracer.start('invoke agent', 'server', sent, exchange.traceId);
  span?.set('rookery.instance_id', instanceId);
  const signal = exchange.caller;
  const call = {
    header: {
      traceId: exchange.traceId,
      traceparent: span?.traceparent ?? formatTraceparent(continueTrace(sent, exchange.traceId)),
      requestId: newRequestId(),
      headers: forwardedHeaders(headers),
    },
    body,
    timeoutMs,
    mayWake: INVOKE_HEADERS.mayWake.read(headers),
    waitedMs: exchange.waitedMs,
    signal,
  };
  instances.invoke(exchange.tenant, instanceId, call).then(
    outcome => {
      try {
        const elapsedMs = performance.now() - startMs;
        const code = outcome.ok ? 'ok' : String(outcome.code);
        invoked(code, elapsedMs / 1000, instanceId);
        if (span !== null) {
          const run = { runMs: outcome.runMicros / 1000, endMs: Date.now(), requestId: call.header.requestId };
          span.part(runPart(run, outcome.spans && { tenant: exchange.tenant, json: outcome.spans }));
        }
        answer(exchange, outcome, span);
        if (options.callSink.wants(instanceId, outcome.ok, elapsedMs)) {
          record(options.callSink, exchange, instanceId, { call, code, elapsedMs, outcome, error: '' });
        }
      } catch (error) {
        exchange.fault(error);
      }
    },
    error => {
      try {
        const elapsedMs = performance.now() - startMs;
        const code = error instanceof ServiceError ? error.code : 'internal';
        invoked(code, elapsedMs / 1000, instanceId);
        span?.end(error);
        // An id without an agent is no call of one.
        if (code !== 'not_found' && options.callSink.wants(instanceId, false, elapsedMs)) {
          const known = signal.aborted ? 'cancelled' : code;
          record(options.callSink, exchange, instanceId, {
            ...{ call, code: known, elapsedMs, outcome: null, error: messageOf(error) },
          });
        }
        // The outcome was counted. A disconnected client gets no answer.
        if (!signal.aborted) refuse(exchange, error);
      } catch (thrown) {
        exchange.fault(thrown);
      }
    },
  );
}

/** The end of a call. `outcome` is null when the platform failed it. */
interface EndedCall {
  readonly call: Call;
  readonly code: string;
  readonly elapsedMs: number;
  readonly outcome: CallOutcome | null;
  readonly error: string;
}

function record(sink: CallSink, exchange: Exchange, agentId: string, ended: EndedCall): void {
  const { call, code, elapsedMs, outcome, error } = ended;
  const { traceId, requestId } = call.header;
  const runMs = outcome === null ? 0 : outcome.runMicros / 1000;
  sink.push({
    id: requestId,
    traceId,
    tenant: exchange.tenant,
    caller: exchange.tokenName,
    traceparent: exchange.raw.headers.traceparent as string | undefined,
    kind: 'agent',
    target: agentId,
    instanceId: agentId,
    mode: 'sync',
    endedAtMs: Date.now(),
    elapsedMs,
    stages: outcome && { queueMs: Math.max(0, elapsedMs - runMs), placeMs: 0, startMs: 0, loadMs: 0, runMs },
    code,
    input: call.body,
    output: outcome?.ok ? outcome.data : null,
    spans: outcome?.spans,
    error: outcome === null || outcome.ok ? error : outcome.text,
  });
}

function answer(exchange: Exchange, outcome: AgentOutcome, span: Span | null): void {
  const woke = outcome.woke === undefined ? undefined : ['X-Rookery-Woke', outcome.woke];
  if (outcome.ok) {
    span?.end();
    exchange.answer(200, envelope(outcome.data), woke);
    return;
  }
  const message = `invoke failed: code=${outcome.code} err=${outcome.text}`;
  span?.end(loggable(message));
  const answered = { status: 500, body: { code: 500, data: null, message } };
  // The body has no code but 500, so clients tell the failures of a handler apart by the header.
  const inner = ['X-Inner-Code', headerText(outcome.code)];
  exchange.fail(new ServiceError('execution_failed', message), answered, woke ? [...inner, ...woke] : inner);
}

/**
 * Returns the bytes of a result in the envelope.
 * A small answer is a string, which Node writes together with the headers.
 */
function envelope(data: Buffer): string | Buffer {
  if (data.length <= SMALL_ANSWER_BYTES) return BEFORE_DATA + data.toString() + AFTER_DATA;
  return Buffer.concat([Buffer.from(BEFORE_DATA), data, Buffer.from(AFTER_DATA)]);
}

/**
 * Answers a failure of the platform.
 * 404, 400, 429 and the 409 of an agent that stays asleep have their own texts. Every other failure is 500
 * `invoke failed: <err>`.
 */
function refuse(exchange: Exchange, error: unknown): void {
  const known =
    error instanceof ServiceError
      ? error
      : new ServiceError('internal', `internal error, the log has it under trace id ${exchange.traceId}`, {
          cause: error,
        });
  if (known.code === 'not_found' || known instanceof Asleep) {
    exchange.fail(known, frontendErrors(known));
    return;
  }
  if (known.code === 'invalid_request') {
    const message = `failed to build invoke request: ${known.message}`;
    exchange.fail(known, { status: 400, body: { code: 400, message } });
    return;
  }
  const message = `invoke failed: ${known.message}`;
  if (known.code === 'resource_exhausted') exchange.fail(known, { status: 429, body: { code: 429, message } });
  else {
    const status = known instanceof StateUnsaved ? 503 : 500;
    const inner = known.code === 'deadline_exceeded' ? TIMED_OUT : undefined;
    exchange.fail(known, { status, body: { code: status, data: null, message } }, inner);
  }
}

/** Returns the event. An empty body is `{}`. Fails with `invalid_request`. */
function readEvent(body: Buffer | undefined): Buffer {
  if (body === undefined || body.length === 0) return EMPTY_EVENT;
  // The JSON is checked without being parsed into objects.
  if (isJson(body)) return body;
  const bound = exceededBound(body);
  if (bound !== undefined) throw invalidRequest(`the body ${bound}`);
  const parsed = parseJson(body);
  if (!parsed.ok) throw invalidRequest(parsed.word);
  return body;
}
