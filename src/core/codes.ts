import type { ErrorCode } from './error.ts';

/**
 * Every numeric code that stands in an answer's `code` (or in the text of a failed call), in one table. The code uses the names;
 * `docs/errors.md` is generated from it. HTTP statuses that stand in `code` as they are (400, 404 …) are not repeated here.
 */
export interface NumericCode {
  readonly code: number;
  /** Where a caller meets it. */
  readonly where: 'meta_service' | 'user code' | 'function service';
  /** The HTTP status that comes with it, as a rule. */
  readonly http: string;
  /** The message of the answer, where it is always the same. */
  readonly text?: string;
  /** Its meaning; with `text` only what the text does not say. */
  readonly meaning: string;
}

/** A code with which a call of a function fails. */
export interface FunctionCode extends NumericCode {
  /** The HTTP status of the function service. (An agent answers 500 whatever its code did.) */
  readonly status: number;
  /** An error of this kind that says no number has this one. */
  readonly standsFor?: ErrorCode;
  /** The call has not begun, and there may be capacity a little later: the queue of asynchronous calls tries it again. */
  readonly isRetried: boolean;
}

const invalid = '400 for register, update, delete, query of one version and reserved instances; else 200';

export const META_CODES = {
  exists: {
    code: 4101,
    where: 'meta_service',
    http: '200',
    text: 'the function name already exists. rename your function',
    meaning: '',
  },
  invalid: {
    code: 4104,
    where: 'meta_service',
    http: `${invalid}; 200 when it is wrong only because of what is stored`,
    meaning:
      'A field is missing, of the wrong type, out of range or repeated; the message names each. A header that names no tenant, or a path that cannot be decoded, is 400 on every operation.',
  },
  tooManyVersions: {
    code: 4110,
    where: 'meta_service',
    http: '200',
    meaning: 'The function has its largest number of published versions.',
  },
  duplicateVersion: {
    code: 4114,
    where: 'meta_service',
    http: '200',
    text: 'duplicate version number',
    meaning: 'also for two publishes without a number that are at most one second apart.',
  },
  notFound: {
    code: 4115,
    where: 'meta_service',
    http: '200',
    meaning: '`function [<name>] is not found. check input parameters`, with the version when only that is missing.',
  },
  poolNotFound: {
    code: 4120,
    where: 'meta_service',
    http: '200',
    text: 'pool does not exist or has been deleted. check input parameters',
    meaning: '',
  },
  staleRevision: {
    code: 4134,
    where: 'meta_service',
    http: '200',
    text: 'revisionId is non latest version',
    meaning: '',
  },
  notJson: {
    code: 130600,
    where: 'meta_service',
    http: '400',
    meaning: 'The body is not JSON, or no object; the message has the word of the parser.',
  },
  internal: {
    code: 500,
    where: 'meta_service',
    http: '500',
    meaning: 'A fault of the service; its log has the cause under the trace id.',
  },
} as const satisfies Record<string, NumericCode>;

/** Codes that a runtime reports of the code that it runs (docs/runtime-protocol.md): no other code comes out of a sandbox. */
export const USER_CODES = {
  protocolBroken: ofUser(4000, 'The runtime and the service misunderstood each other: a fault of one of them.'),
  loadFailed: ofUser(
    4001,
    'The entry cannot be loaded: its folder, module or symbol is missing, or it does not compile.',
  ),
  handlerFailed: ofUser(
    4002,
    '`Fail to run user call handler. err: <text>.` The handler raised; of a server of HTTP, its answer is none.',
  ),
  resultTooLarge: ofUser(4004, '`response body size <n> exceeds the limit of 6291456`'),
  resultNotJson: ofUser(
    4007,
    'The value cannot be turned into JSON (`NaN` too), or what the runtime sent as one is not JSON.',
  ),
  preStopFailed: ofUser(4009, 'pre_stop failed; only in the log.', { http: 'none' }),
  timedOut: ofUser(4010, 'The call timed out.', {
    status: 504,
    http: '504; agents 500',
    standsFor: 'deadline_exceeded',
  }),
  bodyTooLarge: ofUser(4140, 'The body of the call is too large.', { status: 413 }),
  initializerFailed: ofUser(4201, 'The initializer failed, or there is no handler: `empty user call code`.'),
  initializerTimedOut: ofUser(4211, 'The initializer timed out.'),
} as const;

/** Codes with which the function service itself answers a call. */
export const SERVICE_CODES = {
  badSession: ofService(4037, 400, 'A session header is wrong, or asks for more slots than an instance has.'),
  unknownFunction: {
    ...ofService(150424, 404, '', { standsFor: 'not_found' }),
    text: 'function metadata not found',
  },
  instanceEnded: ofService(150427, 500, 'The instance ended while it ran the call.'),
  queueFull: ofService(150429, 429, 'The queue is full, and the function has its largest number of instances.', {
    standsFor: 'resource_exhausted',
    isRetried: true,
  }),
  waitedTooLong: ofService(150431, 503, 'The call waited too long for an instance.', { isRetried: true }),
  unreachable: ofService(
    150503,
    503,
    'With several replicas: the one that runs the function cannot be reached, or broke off.',
  ),
  unknownLabel: ofService(150444, 400, 'No instances are reserved for the label.'),
  startFailed: ofService(
    150500,
    500,
    'An instance could not be started, and not because of the user’s code; the message says why.',
    { standsFor: 'failed_precondition' },
  ),
  machineFull: ofService(
    150510,
    429,
    'The queue is full, and the machine or the tenant has no capacity for another instance; or the memory for the bodies of open calls is full.',
    { isRetried: true },
  ),
  badCall: ofService(200400, 400, 'The call is wrong: no URN, a kind that cannot be invoked, a bad header or body.', {
    standsFor: 'invalid_request',
  }),
  unknownId: ofService(200404, 404, 'Unknown session, or unknown id of an async call.'),
} as const;

/** All codes of calls. */
export const CALL_CODES: readonly FunctionCode[] = [...Object.values(USER_CODES), ...Object.values(SERVICE_CODES)];

type More = Partial<Pick<FunctionCode, 'http' | 'status' | 'standsFor' | 'isRetried'>>;

function ofUser(code: number, meaning: string, more: More = {}): FunctionCode {
  return {
    code,
    where: 'user code',
    status: 500,
    http: String(more.status ?? 500),
    meaning,
    isRetried: false,
    ...more,
  };
}

function ofService(code: number, status: number, meaning: string, more: More = {}): FunctionCode {
  return { code, where: 'function service', status, http: String(status), meaning, isRetried: false, ...more };
}
