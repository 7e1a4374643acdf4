import type { FastifyInstance, FastifyRequest } from 'fastify';
import { invalidRequest, messageOf, notFound, ServiceError } from '../../core/error.ts';
import { PLAIN_CALL } from '../../core/function-call.ts';
import { lambdaArn, lambdaVersion, readLambdaName, readQualifier } from '../../core/lambda-name.ts';
import { LIMITS } from '../../core/limits.ts';
import { formatUrn, functionUrnOf, LATEST } from '../../core/urn.ts';
import { ServedElsewhere } from '../../functions/active-versions.ts';
import type { AsyncCalls } from '../../functions/async-calls.ts';
import type { FunctionInvocation, FunctionInvoker, FunctionResult } from '../../functions/function-invoker.ts';
import type { TokenVerifier } from '../../http/access/credentials.ts';
import { forwardedOf } from '../../http/forwarding.ts';
import { Exchange } from '../../http/hot/exchange.ts';
import type { LivesWith } from '../../http/route-config.ts';
import { isJson } from '../../lib/json-bytes.ts';
import { newRequestId } from '../../lib/random-ids.ts';
import { STREAM_CREDIT_BYTES } from '../../runtime/call.ts';
import { continueTrace, formatTraceparent } from '../../telemetry/traceparent.ts';
import { EventStream } from '../functions/event-stream.ts';
import { LIVES_WITH_FUNCTION } from '../lives-with.ts';
import { addFunctionChanges, type FunctionChangesOptions } from './changes.ts';
import { CodeUploads, type CodeUploadsOptions } from './code-uploads.ts';
import type { RouteOptions } from './configuration.ts';
import {
  functionError,
  instanceError,
  LambdaError,
  type LambdaRefusal,
  refusalAnswer,
  refusalHeaders,
  refusalOf,
} from './failures.ts';
import { addLambdaLists, type FunctionReads } from './functions.ts';
import type { AwsKeyStore } from './key-routes.ts';
import { addLayerRoute } from './layers.ts';
import { readLogTail } from './log-tail.ts';
import { RESPONSE_STREAM, streamEnd } from './response-stream.ts';
import { sendLambdaRefusal, signatureGates } from './signature-gate.ts';
import { addVersionChanges } from './versions.ts';

export interface LambdaRoutesOptions {
  readonly functions: FunctionInvoker;
  readonly asyncCalls: AsyncCalls;
  readonly registry: FunctionReads['registry'] & FunctionChangesOptions['registry'];
  readonly code: CodeUploadsOptions & Pick<FunctionChangesOptions, 'packages'>;
  /** True if this entry also changes functions. */
  readonly canChange: boolean;
  /** Keys that sign requests. */
  readonly keys: AwsKeyStore;
  /** The verifier of tokens. null: authentication is off, and any keys are accepted. */
  readonly auth: TokenVerifier | null;
  /** The business part of URNs. */
  readonly business: string;
}

/** The path below which clients of AWS Lambda find their API. */
export const LAMBDA_PREFIX = '/lambda';
export const LAMBDA_FUNCTIONS = `${LAMBDA_PREFIX}/2015-03-31/functions`;
const LAMBDA_LAYERS = `${LAMBDA_PREFIX}/2018-10-31/layers`;
/** The path of invocations whose response is a stream, which have a later version of the API. */
const STREAMED_INVOCATIONS = `${LAMBDA_PREFIX}/2021-11-15/functions/:name/response-streaming-invocations`;
const EMPTY_EVENT = Buffer.from('{}');

/** The exceptions of clients for refusals of the entry, before a route runs. */
const TYPES_BY_STATUS: Readonly<Record<number, string>> = {
  400: 'InvalidRequestContentException',
  413: 'RequestTooLargeException',
};

/** A version of a function of the caller's tenant. */
interface Named {
  readonly urn: string;
  /** The version in the form of Lambda. */
  readonly version: string;
  /** For messages. */
  readonly sentName: string;
}

/** `Invocation` passes a request on, because a name has many forms. */
const PASSED_ON: LivesWith = { ...LIVES_WITH_FUNCTION, keyOf: () => null };

/**
 * Adds the API of AWS Lambda (2015-03-31) that its clients call: invocations, and the list and the
 * description of functions. Functions of every runtime can be called.
 */
export function addLambdaRoutes(app: FastifyInstance, options: LambdaRoutesOptions): void {
  app.setErrorHandler((error, _request, reply) => {
    const type = TYPES_BY_STATUS[(error as { statusCode?: number }).statusCode ?? 500];
    if (type !== undefined) reply.header('X-Amzn-ErrorType', type);
    throw error;
  });
  const gateOf = signatureGates(app, options);
  const optionsOf: RouteOptions = (access, url, more = {}) => {
    const config = { access, hasForeignQuery: true, url, ...more };
    return { config: { ...config, gate: gateOf(config) } };
  };
  for (const [url, isStreamed] of [
    [`${LAMBDA_FUNCTIONS}/:name/invocations`, false],
    [STREAMED_INVOCATIONS, true],
  ] as const) {
    app.post<InvokeRoute>(
      url,
      { bodyLimit: LIMITS.invokeBodyBytes, ...optionsOf('invoke', url, { livesWith: PASSED_ON }) },
      (request, reply) => new Invocation(Exchange.ofRouter(request, reply), request, options, isStreamed).start(),
    );
  }
  const { registry, code, canChange } = options;
  addLambdaLists(app, LAMBDA_FUNCTIONS, { registry, packages: code.packages }, optionsOf);
  if (canChange) {
    const uploads = new CodeUploads(code);
    addFunctionChanges(app, LAMBDA_FUNCTIONS, { registry, uploads, packages: code.packages }, optionsOf);
    addLayerRoute(app, LAMBDA_LAYERS, uploads, optionsOf);
    addVersionChanges(app, LAMBDA_FUNCTIONS, registry, optionsOf);
  }
  addUnknownOperations(app, optionsOf);
}

/** Adds the answer to operations that this API does not have. Clients would not show another one. */
function addUnknownOperations(app: FastifyInstance, optionsOf: RouteOptions): void {
  const url = `${LAMBDA_PREFIX}/*`;
  const refusal = { status: 404, type: 'UnknownOperationException' };
  app.all(url, optionsOf('read', url), (request, reply) => {
    const path = request.url.split('?', 1)[0] as string;
    const advice = ALIASES.test(path) ? `; ${NO_ALIASES}` : '';
    const message = `${request.method} ${path} is no operation of this service: docs/guides/lambda.md lists them${advice}`;
    return sendLambdaRefusal(reply, { ...refusal, message });
  });
}

const ALIASES = /\/aliases(\/|$)/;
const NO_ALIASES = 'functions have no aliases: publish a version, and send its number as Qualifier';

type InvokeRoute = { Params: { name: string } };

/** The result of a call that has run, or may have run. */
interface Result {
  readonly body: string | Buffer;
  readonly isFailure: boolean;
}

/** An invocation and its answer. */
class Invocation {
  readonly #exchange: Exchange;
  readonly #request: FastifyRequest<InvokeRoute>;
  readonly #options: LambdaRoutesOptions;
  /** True: the client asked for the response as a stream. */
  readonly #isStreamed: boolean;

  constructor(
    exchange: Exchange,
    request: FastifyRequest<InvokeRoute>,
    options: LambdaRoutesOptions,
    isStreamed: boolean,
  ) {
    this.#exchange = exchange;
    this.#request = request;
    this.#options = options;
    this.#isStreamed = isStreamed;
  }

  /** Answers here, or passes the request to the replica that owns the function. */
  start(): void {
    if (forwardedOf(this.#exchange.raw) !== undefined || !this.#passOn()) this.#run();
  }

  #run(): void {
    this.#answer().catch((error: unknown) => this.#exchange.fault(error));
  }

  async #answer(): Promise<void> {
    const { headers } = this.#exchange.raw;
    const sentName = this.#request.params.name;
    try {
      const named = this.#readName();
      const body = readPayload(this.#exchange.body);
      const call = this.#callOf(named, body);
      const type = headers['x-amz-invocation-type'] ?? 'RequestResponse';
      if (type === 'DryRun') await this.#answerDryRun(named);
      else if (type === 'Event' && !this.#isStreamed) await this.#submit(named, call);
      else if (type === 'RequestResponse')
        await (this.#isStreamed ? this.#stream(named, call) : this.#invoke(named, call));
      else throw unknownType(type, this.#isStreamed);
    } catch (error) {
      if (!(error instanceof ServedElsewhere) || !this.#passOn()) this.#fail(error, sentName);
    }
  }

  #readName(): Named {
    const { params, query, tenant } = this.#request;
    const named = readLambdaName(params.name);
    const asked = (query as { readonly Qualifier?: unknown }).Qualifier;
    const qualifier = typeof asked === 'string' ? readQualifier(asked) : null;
    if (named === null)
      throw invalidRequest(`"${params.name}" is no function name: use <function>, <service>@<function> or an ARN`);
    if (asked !== undefined && qualifier === null)
      throw notFound(`Function not found: ${lambdaArn(named.name)}:${String(asked)}`);
    if (qualifier !== null && named.version !== null && qualifier !== named.version) {
      throw invalidRequest(`Qualifier is ${lambdaVersion(qualifier)}, but the function name ends with another version`);
    }
    const version = named.version ?? qualifier ?? LATEST;
    const { business } = this.#options;
    return {
      urn: formatUrn({ business, tenant, name: named.name, version }),
      version: lambdaVersion(version),
      sentName: params.name,
    };
  }

  #callOf({ urn }: Named, body: Buffer): FunctionInvocation {
    const exchange = this.#exchange;
    const { headers } = exchange.raw;
    const context = headers['x-amz-client-context'];
    const sent = headers.traceparent as string | undefined;
    const header = {
      traceId: exchange.traceId,
      traceparent: formatTraceparent(continueTrace(sent, exchange.traceId)),
      requestId: newRequestId(),
      headers: typeof context === 'string' ? { 'x-amz-client-context': context } : {},
    };
    const origin = { mode: 'lambda' as const, caller: exchange.tokenName, traceparent: sent };
    const call = { header, body, signal: exchange.caller };
    return { urn, tenant: this.#request.tenant, headers: PLAIN_CALL, call, origin };
  }

  async #answerDryRun({ urn }: Named): Promise<void> {
    await this.#options.functions.check(urn, this.#request.tenant);
    this.#exchange.answer(204, '');
  }

  async #submit(named: Named, { urn, headers, call, origin }: FunctionInvocation): Promise<void> {
    const { functions, asyncCalls } = this.#options;
    const { header, body } = call;
    const { tenant } = await functions.check(urn, this.#request.tenant, headers, body);
    await asyncCalls.submit({ urn, tenant, headers, header, body, webhookUrl: '', origin });
    this.#exchange.answer(202, '', requestHeaders(header.requestId, named));
  }

  async #invoke(named: Named, invocation: FunctionInvocation): Promise<void> {
    const log = this.#openLog(named);
    const headers = requestHeaders(invocation.call.header.requestId, named);
    const { body, isFailure } = await this.#resultOf({ ...invocation, onPlaced: log.onPlaced });
    const tail = await log.read();
    if (isFailure) headers.push('X-Amz-Function-Error', 'Unhandled');
    if (tail !== null) headers.push('X-Amz-Log-Result', tail);
    this.#exchange.answer(200, body, headers);
  }

  /** Answers with the chunks of the response as they arrive, and then with the value of other responses. */
  async #stream(named: Named, invocation: FunctionInvocation): Promise<void> {
    const log = this.#openLog(named);
    const { header } = invocation.call;
    const stream = new EventStream(this.#exchange.inPieces(), requestHeaders(header.requestId, named), RESPONSE_STREAM);
    let hasChunks = false;
    const { body, isFailure } = await this.#resultOf({
      ...invocation,
      call: {
        ...invocation.call,
        header: {
          ...header,
          ...{ stream: true, credit: STREAM_CREDIT_BYTES },
          headers: { ...header.headers, ...WANTS_BYTES },
        },
      },
      onPlaced: log.onPlaced,
      onEvent: (chunk, grant) => {
        hasChunks = true;
        stream.event(chunk, grant);
      },
    });
    const value = Buffer.from(body);
    // A handler that streams has no value, which arrives as `null`.
    if (!isFailure && !(hasChunks && value.equals(NO_VALUE))) stream.event(value);
    const tail = await log.read();
    stream.end(
      streamEnd({
        ...(isFailure && { ErrorCode: 'Unhandled', ErrorDetails: value.toString() }),
        ...(tail !== null && { LogResult: tail }),
      }),
    );
  }

  /**
   * Runs the call. Every failure after its start is a result: clients would repeat a call that may have run.
   */
  async #resultOf(invocation: FunctionInvocation): Promise<Result> {
    let result: FunctionResult;
    try {
      result = await this.#options.functions.invoke(invocation);
    } catch (error) {
      if (!this.#exchange.isAnswered && (refusalOf(error) !== null || error instanceof ServedElsewhere)) throw error;
      return { body: JSON.stringify(instanceError(error)), isFailure: true };
    }
    const { outcome } = result;
    if (outcome.ok) return { body: outcome.data, isFailure: false };
    return { body: JSON.stringify(functionError(outcome.code, outcome.text)), isFailure: true };
  }

  /** Returns a reader of the output of a call, in Base64. It reads null unless the client asked. */
  #openLog(named: Named): { readonly onPlaced: (id: string) => void; readonly read: () => Promise<string | null> } {
    const startedAtMs = Date.now();
    let instanceId = '';
    return {
      onPlaced(id) {
        instanceId = id;
      },
      read: async () => {
        if (this.#exchange.raw.headers['x-amz-log-type'] !== 'Tail' || instanceId === '') return null;
        return (await this.#logOf(named, instanceId, startedAtMs)).toString('base64');
      },
    };
  }

  async #logOf({ urn }: Named, instanceId: string, sinceMs: number): Promise<Buffer> {
    const { functions } = this.#options;
    const query = { instanceId, tail: null, sinceMs, follow: false };
    try {
      return await readLogTail(() => functions.logs(urn, this.#request.tenant, query, AbortSignal.timeout(LOG_MS)));
    } catch (error) {
      // The instance has ended, and its log with it.
      return Buffer.from(`the log is not available: ${messageOf(error)}\n`);
    }
  }

  /** Returns false if no other replica can answer, or no replica at all because the name is wrong. */
  #passOn(): boolean {
    let key: string;
    try {
      key = functionUrnOf(this.#readName().urn);
    } catch {
      return false;
    }
    const fail = (reason: unknown) => this.#fail(reason, this.#request.params.name);
    return this.#exchange.passOn({ key, here: () => this.#run(), fail });
  }

  #fail(error: unknown, sentName: string): void {
    const refusal = refusalOf(error) ?? { status: 500, type: 'ServiceException', message: messageOf(error) };
    const answered: LambdaRefusal =
      refusal.status === 404 && !refusal.message.includes('Function not found')
        ? { ...refusal, message: `Function not found: ${sentName}` }
        : refusal;
    const reason = error instanceof ServiceError ? error : messageOf(error);
    this.#exchange.fail(reason, refusalAnswer(answered), refusalHeaders(answered));
  }
}

const LOG_MS = 5000;
const NO_VALUE = Buffer.from('null');
/** Tells the runtime of Lambda code to pass chunks on as they are. Other streams are text. */
const WANTS_BYTES = { 'x-rookery-response-stream': 'bytes' };

function unknownType(sent: unknown, isStreamed: boolean): ServiceError {
  const allowed = isStreamed ? 'RequestResponse or DryRun' : 'RequestResponse, Event or DryRun';
  return invalidRequest(`X-Amz-Invocation-Type must be ${allowed}, got "${String(sent)}"`);
}

function requestHeaders(requestId: string, { version }: Named): string[] {
  return ['x-amzn-RequestId', requestId, 'X-Amz-Executed-Version', version];
}

/** Returns the event. Fails with `invalid_request` if the payload is not JSON. */
function readPayload(body: Buffer | undefined): Buffer {
  if (body === undefined || body.length === 0) return EMPTY_EVENT;
  if (isJson(body)) return body;
  throw new LambdaError({
    status: 400,
    type: 'InvalidRequestContentException',
    message: 'Could not parse request body into json: the payload must be one JSON value in UTF-8',
  });
}
