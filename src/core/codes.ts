/**
 * Every numeric code that stands in an answer's `code` (or in the text of a failed call), in one table.
 * `docs/errors.md` is generated from it. HTTP statuses that stand in `code` as they are (400, 404 …) are not repeated here.
 */
export interface NumericCode {
  readonly code: number;
  /** Where a caller meets it. */
  readonly where: 'meta_service' | 'user code' | 'function service';
  /** The HTTP status that comes with it, as a rule. */
  readonly http: string;
  /** What it means, and its text where the text is fixed. */
  readonly meaning: string;
}

const invalid = '400 for register, update, delete, query of one version and reserved instances; else 200';

export const META_CODES = {
  exists: {
    code: 4101,
    where: 'meta_service',
    http: '200',
    meaning: '`the function name already exists. rename your function`',
  },
  invalid: {
    code: 4104,
    where: 'meta_service',
    http: `${invalid}; 200 when it is wrong only because of what is stored`,
    meaning: 'A field is missing, of the wrong type, out of range or repeated; the message names each.',
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
    meaning: '`duplicate version number`; also for two publishes without a number that are at most one second apart.',
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
    meaning: '`pool does not exist or has been deleted. check input parameters`',
  },
  staleRevision: {
    code: 4134,
    where: 'meta_service',
    http: '200',
    meaning: '`revisionId is non latest version`',
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

/** Codes of calls: what user code did, and what the function service answers. */
export const CALL_CODES: readonly NumericCode[] = [
  ...userCode(4001, 'The entry cannot be loaded: its folder, module or symbol is missing, or it does not compile.'),
  ...userCode(
    4002,
    '`Fail to run user call handler. err: <text>.` The handler raised; of a server of HTTP, its answer is none.',
  ),
  ...userCode(4004, '`response body size <n> exceeds the limit of 6291456`'),
  ...userCode(4007, 'The value cannot be turned into JSON (`NaN` too), or what the runtime sent as one is not JSON.'),
  { code: 4009, where: 'user code', http: 'none', meaning: 'pre_stop failed; only in the log.' },
  { code: 4010, where: 'user code', http: '504; agents 500', meaning: 'The call timed out.' },
  { code: 4140, where: 'user code', http: '413', meaning: 'The body of the call is too large.' },
  ...userCode(4201, 'The initializer failed, or there is no handler: `empty user call code`.'),
  ...userCode(4211, 'The initializer timed out.'),
  {
    code: 4037,
    where: 'function service',
    http: '400',
    meaning: 'A session header is wrong, or asks for more places than an instance has.',
  },
  {
    code: 150424,
    where: 'function service',
    http: '404',
    meaning: '`function metadata not found`',
  },
  {
    code: 150427,
    where: 'function service',
    http: '500',
    meaning: 'The instance ended while it ran the call.',
  },
  {
    code: 150429,
    where: 'function service',
    http: '429',
    meaning: 'The waiting room is full, and the function has its largest number of instances.',
  },
  {
    code: 150431,
    where: 'function service',
    http: '503',
    meaning: 'The call waited too long for an instance.',
  },
  { code: 150444, where: 'function service', http: '400', meaning: 'No instances are reserved for the label.' },
  {
    code: 150500,
    where: 'function service',
    http: '500',
    meaning: 'An instance could not be started, and not because of the user’s code; the message says why.',
  },
  {
    code: 150510,
    where: 'function service',
    http: '429',
    meaning:
      'The waiting room is full, and the machine or the tenant has no room for another instance; or the memory for the bodies of open calls is full.',
  },
  {
    code: 200400,
    where: 'function service',
    http: '400',
    meaning: 'The call is wrong: no URN, a kind that cannot be invoked, a bad header or body.',
  },
  { code: 200404, where: 'function service', http: '404', meaning: 'Unknown session, or unknown id of an async call.' },
];

function userCode(code: number, meaning: string): [NumericCode] {
  return [{ code, where: 'user code', http: '500', meaning }];
}
