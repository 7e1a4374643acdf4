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
