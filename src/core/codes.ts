import type { ErrorCode } from './error.ts';

/**
 * Every numeric code that an answer's `code` or the text of a failed call can carry. The code uses the names;
 * `docs/reference/errors.md` is generated from this table. The table omits HTTP statuses that appear in
 * `code` unchanged (400, 404 …).
 */
export interface NumericCode {
  readonly code: number;
  /** The entry or program that reports the code. */
  readonly where: 'meta_service' | 'user code' | 'function service';
  /** The HTTP status that usually accompanies the code. */
  readonly http: string;
  /** The message of the answer, where the message is fixed. */
  readonly text?: string;
  /** Meaning of the code. If `text` exists, only details that `text` omits. */
  readonly meaning: string;
}

/** A code of a failed function call. */
export interface FunctionCode extends NumericCode {
  /** HTTP status that the function service answers. An agent answers 500 for each of these codes. */
  readonly status: number;
  /** The kind of error that gets this code when the error itself has no number. */
  readonly standsFor?: ErrorCode;
  /**
   * True if the call has not begun and capacity may appear soon. The queue of asynchronous calls retries the
   * call.
   */
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
    meaning: 'The body is not JSON, or not an object; see the parser message.',
  },
  internal: {
    code: 500,
    where: 'meta_service',
    http: '500',
    meaning: 'An error of the service; its log has the cause under the trace id.',
  },
} as const satisfies Record<string, NumericCode>;

/**
 * Codes that a runtime reports about user code (docs/reference/runtime-protocol.md). A sandbox reports no
 * other codes.
 */
export const USER_CODES = {
  protocolBroken: ofUser(4000, 'Protocol error between service and runtime (a bug).'),
  loadFailed: ofUser(
    4001,
    'The entry cannot be loaded: its folder, module or symbol is missing, or it does not compile.',
  ),
  handlerFailed: ofUser(
    4002,
    '`Fail to run user call handler. err: <text>.` The handler raised, or an HTTP program answered invalid HTTP.',
  ),
  resultTooLarge: ofUser(4004, '`response body size <n> exceeds the limit of 6291456`'),
  resultNotJson: ofUser(
    4007,
    'The result cannot be represented as JSON (`NaN` included), or the runtime sent invalid JSON.',
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
  queueFull: ofService(150429, 429, 'The queue is full, and the function has its maximum of instances.', {
    standsFor: 'resource_exhausted',
    isRetried: true,
  }),
  waitedTooLong: ofService(150431, 503, 'The call waited too long for an instance.', { isRetried: true }),
  unreachable: ofService(
    150503,
    503,
    'With several replicas: the replica of the function cannot be reached, or its answer ended early.',
  ),
  unknownLabel: ofService(150444, 400, 'No instances are reserved for the label.'),
  startFailed: ofService(
    150500,
    500,
    'An instance could not be started, and not because of the user’s code; the message says why. 503 with `Retry-After`: a part that it needs (a zygote, Docker, Kubernetes, the object store) does not work now.',
    { standsFor: 'failed_precondition', http: '500 or 503' },
  ),
  machineFull: ofService(
    150510,
    429,
    'The queue is full, and the machine or the tenant has no capacity for another instance; or the memory for the bodies of open calls is full.',
    { isRetried: true },
  ),
  badCall: ofService(200400, 400, 'The call is invalid: no URN, a kind that cannot be invoked, a bad header or body.', {
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
