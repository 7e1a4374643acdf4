import type { FastifyInstance } from 'fastify';
import { SERVICE_CODES } from '../../core/codes.ts';
import { invalidRequest, ServiceError } from '../../core/error.ts';
import { ANSWER_HEADERS, isPlainCall, readFunctionCallHeaders } from '../../core/function-call.ts';
import { parseJson } from '../../core/json.ts';
import { LIMITS } from '../../core/limits.ts';
import { formatUrn, functionUrnOf, LATEST, parseUrn } from '../../core/urn.ts';
import { ServedElsewhere } from '../../functions/active-versions.ts';
import type { AsyncCalls } from '../../functions/async-calls.ts';
import type { FunctionInvocation, FunctionInvoker, FunctionResult } from '../../functions/function-invoker.ts';
import { Exchange, SMALL_ANSWER_BYTES } from '../../http/hot/exchange.ts';
import { addHotRoute } from '../../http/hot/fast-path.ts';
import { exceededBound, isJson } from '../../lib/json-bytes.ts';
import { newRequestId } from '../../lib/random-ids.ts';
import { checkedOutcome, STREAM_CREDIT_BYTES } from '../../runtime/call.ts';
import { continueTrace, formatTraceparent } from '../../telemetry/traceparent.ts';
import { runPart, type Span, type SpanPart, type Tracer } from '../../telemetry/tracer.ts';
import { forwardedHeaders } from '../forwarded-headers.ts';
import { callsFunctionOf, LIVES_WITH_FUNCTION } from '../lives-with.ts';
import { FUNCTION_DOCS } from './docs.ts';
import { failExchange, functionFailure, functionFailureBody, userFailure } from './errors.ts';
import { EventStream, errorEvent, SERVER_SENT_EVENTS } from './event-stream.ts';

export interface FunctionRoutesOptions {
  readonly functions: FunctionInvoker;
  readonly asyncCalls: AsyncCalls;
  /** The business part of URNs, for the short URL. */
  readonly business: string;
  /** True with authentication: a tenant can only use its own functions. */
  readonly ownTenantOnly: boolean;
  /** Allowed prefixes of `X-Webhook-Url`. null: webhooks are off. */
  readonly webhookPrefixes: readonly string[] | null;
  readonly tracer: Tracer;
}

/** Matches path steps that a receiver could decode, once or repeatedly, to another directory. */
const HIDDEN_STEPS = /%(25)*(2f|5c)|(\.|%(25)*2e)(\.|%(25)*2e)/i;
const EMPTY_EVENT = Buffer.from('{}');
const DONE = Buffer.from('[DONE]');
const CALLER_LEFT_STATUS = 499;

/**
 * Adds `POST …/functions/{urn}/invocations` and its short form: synchronous, streamed or asynchronous calls.
 */
export function addFunctionInvokeRoutes(app: FastifyInstance, options: FunctionRoutesOptions): void {
  const bodyLimit = LIMITS.invokeBodyBytes;
  addHotRoute(app, {
    url: '/serverless/v1/functions/:urn/invocations',
    parameter: 'urn',
    bodyLimit,
    config: { access: 'invoke', livesWith: LIVES_WITH_FUNCTION, docs: FUNCTION_DOCS.invoke },
    streams: headers => ANSWER_HEADERS.wantsStream.read(headers),
    early: (exchange, urn) => refuseEarly(exchange, urn, options),
    handle: (exchange, urn) => invoke(exchange, readUrn(urn), options),
    refuse,
  });
  for (const [url, docs] of [
    ['/invocations/:tenant/:service/:function/', { docs: FUNCTION_DOCS.invokeShort }],
    ['/invocations/:tenant/:service/:function', {}],
  ] as const) {
    app.post<{ Params: { tenant: string; service: string; function: string } }>(
      url,
      { bodyLimit, config: { access: 'invoke', livesWith: callsFunctionOf(options.business), ...docs } },
      (request, reply) => {
        const exchange = Exchange.ofRouter(request, reply);
        try {
          invoke(exchange, shortUrn(request.params, options.business), options);
        } catch (error) {
          refuse(exchange, error);
        }
      },
    );
  }
}

/**
 * Refuses a call before its body is read, if the call uses no special headers.
 * Under overload most calls are refused.
 */
function refuseEarly(
  exchange: Exchange,
  sentUrn: string,
  { functions, ownTenantOnly }: FunctionRoutesOptions,
): (() => void) | undefined {
  const { headers } = exchange.raw;
  const urn = readUrns.get(sentUrn);
  if (urn === undefined || ANSWER_HEADERS.isAsync.isSent(headers) || !isPlainCall(headers)) return undefined;
  const refuse = functions.refusal(urn, ownTenantOnly ? exchange.tenant : null);
  if (refuse === undefined) return undefined;
  return () => failExchange(exchange, functionFailure(refuse(), exchange.traceId));
}

function refuse(exchange: Exchange, error: unknown): void {
  failExchange(exchange, functionFailure(error, exchange.traceId));
}

/** Caches normalized URNs by their text, because calls repeat the same URNs. */
const readUrns = new Map<string, string>();
const MAX_READ_URNS = 10_000;

/** Returns the URN in its normal form. Fails with `invalid_request` (200400). */
export function readUrn(text: string): string {
  const known = readUrns.get(text);
  if (known !== undefined) return known;
  const urn = parseUrn(text);
  if (!urn || urn.version === null) {
    throw invalidRequest(
      `not a functionVersionUrn: "${text}" (expected sn:cn:<business>:<tenant>:function:0@<service>@<name>:<version>)`,
      { number: SERVICE_CODES.badCall.code },
    );
  }
  const read = formatUrn(urn);
  // Clients choose the texts, so the cache has a limit.
  if (readUrns.size >= MAX_READ_URNS) readUrns.clear();
  readUrns.set(text, read);
  return read;
}

function shortUrn(params: { tenant: string; service: string; function: string }, business: string): string {
  const [name, version = LATEST, ...rest] = params.function.split(':');
  const named = [version, ...rest].join(':');
  return readUrn(`sn:cn:${business}:${params.tenant}:function:0@${params.service}@${name}:${named}`);
}

function invoke(exchange: Exchange, urn: string, options: FunctionRoutesOptions): void {
  const body = readEvent(exchange.body);
  const { headers } = exchange.raw;
  const sent = headers.traceparent as string | undefined;
  const asked = readFunctionCallHeaders(headers);
  const isAsync = ANSWER_HEADERS.isAsync.read(headers);
  const span = isAsync ? null : options.tracer.start('invoke function', 'server', sent, exchange.traceId);
  span?.set('rookery.function', urn);
  const wantsStream = ANSWER_HEADERS.wantsStream.read(headers);
  const signal = exchange.caller;
  const header = {
    traceId: exchange.traceId,
    traceparent: span?.traceparent ?? formatTraceparent(continueTrace(sent, exchange.traceId)),
    requestId: newRequestId(),
    headers: forwardedHeaders(headers),
    ...(asked.session ? { sessionId: asked.session.id } : {}),
  };
  const tenant = options.ownTenantOnly ? exchange.tenant : null;
  if (isAsync) {
    const origin = { mode: 'async' as const, caller: exchange.tokenName, traceparent: sent };
    void submit(exchange, { urn, tenant, headers: asked, call: { header, body }, origin }, options);
    return;
  }
  // Filled before the handler runs, so that the answer to a failure names its instance too.
  const placed = adviceOn(headers);
  const invocation = {
    urn,
    tenant,
    headers: asked,
    call: { header, body, waitedMs: exchange.waitedMs, signal },
    onPlaced: (instanceId: string) => void placed.push('X-Instance-Id', instanceId),
    origin: {
      mode: wantsStream ? ('stream' as const) : ('sync' as const),
      caller: exchange.tokenName,
      traceparent: sent,
    },
  };
  const running = wantsStream
    ? stream(exchange, invocation, placed, options.functions)
    : options.functions.invoke(invocation);
  running.then(
    result => {
      try {
        if (!wantsStream) answer(exchange, result, placed);
        if (span !== null)
          endCallSpan(span, result, { tenant: parseUrn(urn)?.tenant ?? '', requestId: header.requestId });
      } catch (error) {
        exchange.fault(error);
      }
    },
    (error: unknown) => {
      try {
        span?.end(error instanceof Error ? error : String(error));
        if (exchange.isAnswered) return;
        if (signal.aborted) exchange.fail('the caller went away', { status: CALLER_LEFT_STATUS, body: {} });
        else if (!passesOn(exchange, error, urn, options)) {
          failExchange(exchange, functionFailure(error, exchange.traceId), placed);
        }
      } catch (thrown) {
        exchange.fault(thrown);
      }
    },
  );
}

/**
 * Returns the header that reports an ignored `Idempotency-Key`.
 * A client that sends the key may rely on it when it retries.
 */
function adviceOn(headers: Exchange['raw']['headers']): string[] {
  return headers['idempotency-key'] === undefined ? [] : ['X-Advice', NO_IDEMPOTENCY];
}

const NO_IDEMPOTENCY =
  'Idempotency-Key was ignored: each call of a function runs its handler; put a key of your own into the event';

async function submit(
  exchange: Exchange,
  { urn, tenant, headers, call, origin }: FunctionInvocation,
  options: FunctionRoutesOptions,
): Promise<void> {
  const { functions, asyncCalls, webhookPrefixes } = options;
  try {
    const fn = await functions.check(urn, tenant, headers, call.body);
    const webhookUrl = readWebhookUrl(ANSWER_HEADERS.webhookUrl.read(exchange.raw.headers), webhookPrefixes);
    const { header, body } = call;
    const requestId = await asyncCalls.submit({ urn, tenant: fn.tenant, headers, header, body, webhookUrl, origin });
    exchange.answer(202, JSON.stringify({ requestId }), adviceOn(exchange.raw.headers));
  } catch (error) {
    if (!passesOn(exchange, error, urn, options)) failExchange(exchange, functionFailure(error, exchange.traceId));
  }
}

/** Forwards a call whose function moved to another replica before the call had an instance. */
function passesOn(exchange: Exchange, error: unknown, urn: string, options: FunctionRoutesOptions): boolean {
  if (!(error instanceof ServedElsewhere)) return false;
  const fail = (reason: unknown) => refuse(exchange, reason);
  const here = () => {
    try {
      invoke(exchange, urn, options);
    } catch (thrown) {
      fail(thrown);
    }
  };
  return exchange.passOn({ key: functionUrnOf(urn), here, fail });
}

function readWebhookUrl(sent: string, prefixes: readonly string[] | null): string {
  if (sent === '') return '';
  if (prefixes === null) {
    throw invalidRequest('X-Webhook-Url: webhooks are not enabled on this service', {
      number: SERVICE_CODES.badCall.code,
    });
  }
  // Normalizes the URL to the form that is requested: "/allowed/../other" is "/other".
  const url = URL.canParse(sent) ? new URL(sent).href : '';
  if (HIDDEN_STEPS.test(url.split('?', 1)[0] as string)) {
    throw invalidRequest(
      'X-Webhook-Url: the path must not contain %2f, %5c or an encoded ".." (a receiver may decode it)',
      {
        number: SERVICE_CODES.badCall.code,
      },
    );
  }
  if (!/^https?:\/\//.test(url) || !prefixes.some(prefix => url.startsWith(prefix))) {
    throw invalidRequest(`X-Webhook-Url must begin with one of ${prefixes.join(', ')}`, {
      number: SERVICE_CODES.badCall.code,
    });
  }
  return url;
}

function answer(exchange: Exchange, { outcome, timings }: FunctionResult, placed: readonly string[]): void {
  const { queueMs, placeMs, startMs, loadMs, runMs } = timings;
  const stages = `queue;dur=${inMs(queueMs)}, place;dur=${inMs(placeMs)}, start;dur=${inMs(startMs)}, load;dur=${inMs(loadMs)}, run;dur=${inMs(runMs)}`;
  const headers = [...placed, 'X-Billing-Duration', String(Math.ceil(runMs)), 'Server-Timing', stages];
  if (!outcome.ok) {
    failExchange(exchange, userFailure(outcome.code, outcome.text), headers);
    return;
  }
  const { data } = outcome;
  headers.push('X-Inner-Code', '0');
  exchange.answer(200, data.length <= SMALL_ANSWER_BYTES ? data.toString() : data, headers);
}

function inMs(ms: number): string {
  return ms === 0 ? '0.000' : ms.toFixed(3);
}

/**
 * Sends the events of the handler, then its value, then `[DONE]`.
 * Failures before the first event are ordinary answers.
 */
async function stream(
  exchange: Exchange,
  invocation: FunctionInvocation,
  placed: string[],
  functions: FunctionInvoker,
): Promise<FunctionResult> {
  const headers = ['X-Inner-Code', '0'];
  const events = new EventStream(exchange.inPieces(), headers, SERVER_SENT_EVENTS);
  try {
    const { header } = invocation.call;
    const result = await functions.invoke({
      ...invocation,
      call: { ...invocation.call, header: { ...header, stream: true, credit: STREAM_CREDIT_BYTES } },
      onPlaced: instanceId => {
        placed.push('X-Instance-Id', instanceId);
        headers.push(...placed);
      },
      onEvent: (event, grant) => events.event(event, grant),
    });
    const outcome = checkedOutcome(result.outcome);
    if (outcome.ok) {
      const last = lastEvent(outcome.data);
      if (last !== null) events.event(last);
      events.event(DONE);
      events.end();
    } else fail(userFailure(outcome.code, outcome.text));
    return { ...result, outcome };
  } catch (error) {
    if (events.isOpen) fail(functionFailure(error, exchange.traceId));
    throw error;
  } finally {
    events.end();
  }

  function fail(failure: ReturnType<typeof userFailure>): void {
    if (events.isOpen) events.end(errorEvent(JSON.stringify(functionFailureBody(failure, exchange.traceId))));
    else failExchange(exchange, failure, placed);
  }
}

/**
 * Returns the value of a stream as its last event: a string unquoted, other values as JSON. Returns null for
 * `null`.
 */
function lastEvent(data: Buffer): Buffer | null {
  const json = data.toString().trim();
  if (json === 'null') return null;
  return json.startsWith('"') ? Buffer.from(JSON.parse(json) as string) : data;
}

/** Returns the event. An empty body is `{}`. Fails with `invalid_request` (200400). */
function readEvent(body: Buffer | undefined): Buffer {
  if (body === undefined || body.length === 0) return EMPTY_EVENT;
  // The JSON is checked without being parsed into objects.
  if (isJson(body)) return body;
  const bound = exceededBound(body);
  const parsed = bound === undefined ? parseJson(body) : undefined;
  if (parsed?.ok) return body;
  const problem = parsed === undefined ? `the body ${bound}` : `the body is not JSON: ${parsed.word}`;
  throw new ServiceError('invalid_request', problem, { number: SERVICE_CODES.badCall.code });
}

/** Shortest wait that becomes a span. A shorter span would cost more than it is worth. */
const MIN_WAIT_MS = 1;

/** Ends the span of a finished call, and adds its stages as parts. */
export function endCallSpan(
  span: Span,
  { outcome, instanceId, timings }: FunctionResult,
  { tenant, requestId }: { readonly tenant: string; readonly requestId: string },
): void {
  span.set('rookery.instance_id', instanceId);
  const endMs = Date.now();
  for (const part of partsOf(timings, endMs)) span.part(part);
  const { spans } = outcome;
  span.part(runPart({ runMs: timings.runMs, endMs, requestId }, spans && { tenant, json: spans }));
  span.end(outcome.ok ? undefined : String(outcome.code));
}

/**
 * Returns the stages of a call before `run`, in their order. `run` ends at `endMs`.
 * The start of an instance is a stage with stages of its own.
 */
export function partsOf({ queueMs, placeMs, startMs, loadMs, runMs }: FunctionResult['timings'], endMs: number) {
  const parts: SpanPart[] = [];
  let atMs = endMs - runMs - loadMs - startMs - placeMs - queueMs;
  const next = (name: string, ms: number): SpanPart => {
    const part = { name, startMs: atMs, endMs: atMs + ms };
    atMs = part.endMs;
    return part;
  };
  const queue = next('queue', queueMs);
  if (queueMs >= MIN_WAIT_MS) parts.push(queue);
  const place = next('place', placeMs);
  if (placeMs >= MIN_WAIT_MS) parts.push(place);
  if (startMs > 0) {
    const start = next('start', startMs);
    const load = next('load', loadMs);
    parts.push({ name: 'cold start', startMs: start.startMs, endMs: load.endMs, parts: [start, load] });
  }
  return parts;
}
