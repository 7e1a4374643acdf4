import { environmentNameProblem } from './environment.ts';
import { messageOf } from './error.ts';
import {
  absentValues,
  anyObject,
  anything,
  boolean,
  type FieldTable,
  integer,
  integerOrDigits,
  type JsonObject,
  listOf,
  mapOf,
  objectOf,
  oneOf,
  Problems,
  type Read,
  readPresent,
  text,
} from './field-reader.ts';
import {
  type AutoScaleConfig,
  FUNCTION_KINDS,
  type FunctionKind,
  type FunctionRootfs,
  type FunctionSpec,
  type S3CodePath,
  STORAGE_TYPES,
} from './function.ts';
import { checkPathText } from './host-path.ts';
import { LIMITS } from './limits.ts';
import type { MountSpec } from './mount.ts';
import { parsePorts } from './port.ts';
import { SANDBOX_TYPES } from './sandbox-types.ts';
import { noteAsked } from './unknown-fields.ts';
import { FUNCTION_NAME_FORMAT, isFunctionName } from './urn.ts';

const MAX_PATH_CHARS = 4096;
const MAX_TEXT_CHARS = 1024;
const MAX_LIST_ITEMS = 100;
const MAX_MILLISECONDS = 2 ** 31 - 1;
const INITIALIZER_SECONDS = LIMITS.initializerTimeoutMs / 1000;
const MAX_SECONDS = LIMITS.functionTimeoutSeconds.max;

const shortText = text({ maxChars: MAX_TEXT_CHARS });
const pathText = text({ maxChars: MAX_PATH_CHARS });

const mount = objectOf<MountSpec>({
  source: { read: pathText, absent: '' },
  target: { read: text({ maxChars: MAX_PATH_CHARS, required: true }), absent: '' },
  readonly: { read: boolean, absent: false },
});

/** A mount whose source may stand there by its text; whether it exists is asked when an instance is made. */
const safeMount: Read<MountSpec> = (value, path, problem) => {
  const read = mount(value, path, problem);
  if (read === undefined) return undefined;
  if (read.target === '') return problem(`${path}.target`, 'is required') as undefined;
  return guarded(path, problem, () => {
    checkPathText('mount source', read.source);
    return read;
  });
};

/** Port items in their one spelling (`tcp:22`, as they were sent otherwise). */
const ports: Read<string[]> = (value, path, problem) => {
  const items = listOf(shortText, MAX_LIST_ITEMS)(value, path, problem);
  if (items === undefined) return undefined;
  return guarded('', problem, () => {
    parsePorts(items, path);
    return items;
  });
};

/** Runs a check that throws, and notes its text. */
function guarded<T>(path: string, problem: (path: string, text: string) => void, check: () => T): T | undefined {
  try {
    return check();
  } catch (error) {
    return problem(path === '' ? '' : `${path}:`, messageOf(error).replace(/^invalid request body: /, '')) as undefined;
  }
}

const rootfs = objectOf<FunctionRootfs>({
  type: { read: text({ maxChars: 64 }), absent: '' },
  imageurl: { read: shortText, absent: '' },
  user: { read: text({ maxChars: 256 }), absent: '' },
  ports: { read: ports, absent: [] },
  path: { read: pathText, absent: '' },
  readonly: { read: boolean, absent: false },
  mounts: { read: listOf(safeMount, LIMITS.mounts), absent: [] },
});

const s3CodePath = objectOf<S3CodePath>({
  bucketId: { read: shortText, absent: '' },
  objectId: { read: shortText, absent: '' },
  bucketUrl: { read: pathText, absent: '' },
  token: { read: text({ maxChars: 16_384 }), absent: '' },
  sha512: {
    read: text({ maxChars: 128, pattern: /^[0-9A-Fa-f]{128}$/, shape: '128 hexadecimal digits' }),
    absent: '',
  },
});

const slaQuota: Read<number> = (value, path, problem) => {
  const read = integer(0, MAX_MILLISECONDS)(value, path, problem);
  if (read !== undefined && read > 0 && read < 500) {
    return problem(path, `must be 0 (not set) or at least 500 milliseconds, got ${read}`) as undefined;
  }
  return read;
};

const autoScaleConfig = objectOf<AutoScaleConfig>({
  slaQuota: { read: slaQuota, absent: 0 },
  scaleDownTime: { read: integer(0, MAX_MILLISECONDS), absent: 60_000 },
  burstScaleNum: { read: integer(1, 100_000), absent: 1000 },
});

const name: Read<string> = (value, path, problem) => {
  if (typeof value !== 'string') return problem(path, 'must be a string') as undefined;
  if (value === '') return problem(path, `is required, in the format ${FUNCTION_NAME_FORMAT}`) as undefined;
  if (isFunctionName(value)) return value;
  return problem(path, `must have the format ${FUNCTION_NAME_FORMAT}`) as undefined;
};

const instances = integerOrDigits(0, LIMITS.functionInstances.max);
const resource: Read<number> = (value, path, problem) =>
  typeof value === 'number' && Number.isFinite(value) && value >= 0
    ? value
    : (problem(path, 'must be a number that is not negative') as undefined);

/** Every field that can be registered, how it is read, and what it is when it was not sent. */
export const FUNCTION_FIELDS: FieldTable<FunctionSpec> = {
  name: { read: name, absent: '' },
  kind: {
    read: (value, path, problem) =>
      value === '' ? 'yrlib' : oneOf<FunctionKind>(FUNCTION_KINDS)(value, path, problem),
    absent: 'yrlib',
  },
  runtime: { read: text({ maxChars: 64, required: true }), absent: '' },
  cpu: { read: integer(LIMITS.cpuMillis.min, LIMITS.cpuMillis.max), absent: LIMITS.cpuMillis.default },
  memory: { read: integer(LIMITS.memoryMb.min, LIMITS.memoryMb.max), absent: LIMITS.memoryMb.default },
  timeout: { read: integer(1, MAX_SECONDS), absent: LIMITS.functionTimeoutSeconds.default },
  handler: { read: shortText, absent: '' },
  environment: { read: mapOf(text({ maxChars: 131_072 }), environmentNameProblem), absent: {} },
  description: { read: text({ maxChars: LIMITS.functionDescriptionChars }), absent: '' },
  storageType: { read: oneOf(STORAGE_TYPES), absent: '' },
  codePath: { read: pathText, absent: '' },
  s3CodePath: { read: s3CodePath, absent: null },
  extendedHandler: {
    read: objectOf({
      initializer: { read: shortText, absent: '' },
      pre_stop: { read: shortText, absent: '' },
    }),
    absent: { initializer: '', pre_stop: '' },
  },
  extendedTimeout: {
    read: objectOf({
      initializer: { read: integer(1, MAX_SECONDS), absent: INITIALIZER_SECONDS },
      pre_stop: { read: integer(0, LIMITS.functionPreStopSeconds), absent: 0 },
    }),
    absent: { initializer: INITIALIZER_SECONDS, pre_stop: 0 },
  },
  sandboxType: { read: oneOf(['', ...SANDBOX_TYPES]), absent: '' },
  rootfs: { read: rootfs, absent: null },
  minInstance: { read: instances, absent: LIMITS.functionInstances.defaultMin },
  maxInstance: { read: instances, absent: LIMITS.functionInstances.defaultMax },
  concurrentNum: {
    read: integerOrDigits(1, LIMITS.functionConcurrency.max),
    absent: LIMITS.functionConcurrency.default,
  },
  customResources: { read: mapOf(resource), absent: null },
  tags: { read: mapOf(shortText), absent: null },
  layers: { read: listOf(anything, MAX_LIST_ITEMS), absent: null },
  device: { read: anyObject, absent: {} },
  poolId: { read: text({ maxChars: 64 }), absent: '' },
  idleTime: { read: integer(-1, MAX_SECONDS), absent: 0 },
  autoScaleConfig: { read: autoScaleConfig, absent: null },
  schedulePolicies: { read: listOf(anything, MAX_LIST_ITEMS), absent: null },
  enableSessionCtx: { read: boolean, absent: false },
  enableAgentSession: { read: boolean, absent: false },
  isFuncPublic: { read: boolean, absent: false },
};

const ABSENT = absentValues(FUNCTION_FIELDS);
const REQUIRED = ['name', 'runtime', 'cpu', 'memory'] as const;
/** What a function is known by: an update may repeat them, not change them. */
const FIXED = ['name', 'runtime', 'kind'] as const;

export type Checked<T> =
  | { readonly ok: true; readonly value: T }
  /** Every problem of the body, as sentences. */
  | { readonly ok: false; readonly problems: readonly string[] };

/** Reads the body of a register. */
export function readRegister(body: JsonObject): Checked<FunctionSpec> {
  const problems = new Problems();
  for (const field of REQUIRED) {
    if (body[field] !== undefined && body[field] !== null) continue;
    problems.add(field, field === 'name' ? `is required, in the format ${FUNCTION_NAME_FORMAT}` : 'is required');
  }
  const { present } = readPresent(FUNCTION_FIELDS, body, '', problems.add);
  const spec: FunctionSpec = { ...ABSENT, ...present };
  checkTogether(spec, problems);
  return problems.any ? { ok: false, problems: problems.found } : { ok: true, value: spec };
}

export interface FunctionUpdate {
  readonly revisionId: string;
  /** Only what was sent. */
  readonly changes: Partial<FunctionSpec>;
}

/** Reads the body of an update as far as it can be judged without what is stored. */
export function readUpdate(body: JsonObject): Checked<FunctionUpdate> {
  const problems = new Problems();
  const revisionId = readRequiredText(body, 'revisionId', problems);
  const { present } = readPresent(FUNCTION_FIELDS, body, '', problems.add);
  const { kind, ...others } = present;
  // An empty kind is the function's own, as in a publish.
  const changes = body.kind === '' || kind === undefined ? others : { ...others, kind };
  checkInstances(changes, problems);
  return problems.any ? { ok: false, problems: problems.found } : { ok: true, value: { revisionId, changes } };
}

/** A function with what an update changes: a field that was sent replaces the old one whole, the others stay. */
export function mergeUpdate(stored: FunctionSpec, changes: Partial<FunctionSpec>): Checked<FunctionSpec> {
  const problems = new Problems();
  for (const field of FIXED) {
    const sent = changes[field];
    if (sent !== undefined && sent !== stored[field]) {
      problems.add(field, `of a function cannot change: it is "${stored[field]}", got "${sent}"`);
    }
  }
  const merged = { ...stored, ...changes };
  checkTogether(merged, problems);
  return problems.any ? { ok: false, problems: problems.found } : { ok: true, value: merged };
}

/** A required text of a body; notes the problem and answers `''` otherwise. */
export function readRequiredText(body: JsonObject, field: string, problems: Problems): string {
  const value = body[field];
  noteAsked(body, field);
  if (value === undefined || value === null) problems.add(field, 'is required');
  else return text({ maxChars: MAX_TEXT_CHARS, required: true })(value, field, problems.add) ?? '';
  return '';
}

/** Rules that several fields have together. */
function checkTogether(spec: FunctionSpec, problems: Problems): void {
  checkInstances(spec, problems);
  if (spec.kind !== 'faas') return;
  if (spec.handler === '') problems.add('handler', 'is required for kind faas');
  if (spec.storageType === '') {
    problems.add('storageType', 'is required for kind faas: local, copy or s3, the place of the code');
  } else if (spec.storageType === 's3') {
    const { bucketId = '', objectId = '' } = spec.s3CodePath ?? {};
    if (bucketId === '') problems.add('s3CodePath.bucketId', 'is required for storageType s3');
    if (objectId === '') problems.add('s3CodePath.objectId', 'is required for storageType s3');
  } else if (spec.codePath === '') {
    problems.add('codePath', `is required for storageType ${spec.storageType}`);
  }
}

function checkInstances({ minInstance, maxInstance }: Partial<FunctionSpec>, problems: Problems): void {
  if (minInstance === undefined || maxInstance === undefined || minInstance <= maxInstance) return;
  problems.add('minInstance', `must not be larger than maxInstance: ${minInstance} > ${maxInstance}`);
}
