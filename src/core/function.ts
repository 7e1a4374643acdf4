import { addressProblem, EXPOSE_FUNCTION, type Expose } from './address.ts';
import { CODE_URL_SHAPE, parseCodeUrl } from './code-package.ts';
import { DEPENDENCIES_DOC, type DependencyMode, dependencyMode } from './dependencies.ts';
import { type FunctionHandlers, functionHandlers } from './durable.ts';
import { variables } from './environment.ts';
import { messageOf } from './error.ts';
import { checkPathText, FORBIDDEN_TREES } from './host-path.ts';
import { HTTP_PROFILE_DOC, type HttpProfileName, httpProfileName, httpProfileProblem } from './http-profiles.ts';
import { type MountSpec, PORT_SCHEMA, PORTS_SCHEMA, parsePorts } from './instance.ts';
import type { JsonObject } from './json.ts';
import { checkSchema } from './json-schema.ts';
import {
  anyList,
  anyObject,
  boolean,
  described,
  integer,
  integerOrDigits,
  type Kind,
  kindOf,
  list,
  oneOf,
  record,
  refine,
  text,
  wrongAt,
} from './kind.ts';
import { checkLambdaLayers, LAMBDA_LAYERS_DOC } from './lambda-layers.ts';
import { LIMITS } from './limits.ts';
import { type Checked, type Problem, Problems } from './problem.ts';
import { type RequestedSandboxType, SANDBOX_TYPES } from './sandbox-types.ts';
import { type Variables, variable } from './secret.ts';
import {
  absentValues,
  type Fields,
  kept,
  noteMissing,
  object,
  optional,
  readPresent,
  required,
  requiredByRule,
} from './shape.ts';
import { FUNCTION_NAME_FORMAT, FUNCTION_NAME_PATTERN, isFunctionName } from './urn.ts';

const MAX_PATH_CHARS = 4096;
const MAX_TEXT_CHARS = 1024;
const MAX_LIST_ITEMS = 100;
const MAX_MILLISECONDS = 2 ** 31 - 1;
const INITIALIZER_SECONDS = LIMITS.initializerTimeoutMs / 1000;
const SECONDS = { min: 1, max: LIMITS.functionTimeoutSeconds.max };
const OWN = 'If sent, the function’s own.';

const shortText = text({ maxChars: MAX_TEXT_CHARS });
const pathText = text({ maxChars: MAX_PATH_CHARS });

/**
 * The rule of `checkPathText` as an OpenAPI pattern: absolute, no forbidden directory, no `..`, no
 * docker.sock.
 */
const SAFE_SOURCE = `^(?!.*\\.\\.)(?!.*docker\\.sock)(/+\\.)*/+(?!(${FORBIDDEN_TREES.map(tree => tree.slice(1)).join('|')}|\\.)?(/|$))[^/\\u0000][^\\u0000]*$`;

const mountFields = object<MountSpec>({
  source: requiredByRule(pathText, '', {
    pattern: SAFE_SOURCE,
    description: 'Absolute path on the host; not an unsafe one.',
  }),
  target: requiredByRule(text({ maxChars: MAX_PATH_CHARS, required: true }), '', 'Path inside the sandbox.'),
  readonly: optional(boolean, false),
});

/** A mount whose source has a safe text. Existence is checked when an instance is created. */
const mount = refine(mountFields, ({ source, target }, path, problem) => {
  if (target === '') problem(`${path}.target`, 'is required');
  else noteThrown(`${path}:`, problem, () => checkPathText('mount source', source));
});

/** Port items, which are checked and kept as sent. */
const ports = refine(list(described(shortText, PORT_SCHEMA), MAX_LIST_ITEMS, PORTS_SCHEMA), (items, path, problem) =>
  noteThrown('', problem, () => parsePorts(items, path)),
);

/** Runs a check that throws, and notes the text of its error. */
function noteThrown(path: string, problem: Problem, check: () => unknown): void {
  try {
    check();
  } catch (error) {
    problem(path, messageOf(error).replace(/^invalid request body: /, ''));
  }
}

const rootfs = object<FunctionRootfs>({
  type: optional(text({ maxChars: 64 }), '', '`image` for an image.'),
  imageurl: optional(shortText, ''),
  user: optional(text({ maxChars: 256 }), '', 'Empty: root.'),
  ports: optional(ports, []),
  path: optional(pathText, ''),
  readonly: optional(boolean, false),
  mounts: optional(list(mount, LIMITS.mounts), []),
});

const s3CodePath = object<S3CodePath>({
  bucketId: optional(shortText, ''),
  objectId: optional(shortText, ''),
  bucketUrl: optional(pathText, ''),
  token: optional(text({ maxChars: 16_384 }), '', 'In no answer.'),
  sha512: optional(text({ maxChars: 128, pattern: /^[0-9A-Fa-f]{128}$/, shape: '128 hexadecimal digits' }), ''),
});

const slaQuota = refine(
  integer({ min: 0, max: MAX_MILLISECONDS }),
  (value, path, problem) => {
    if (value === 0 || value >= 500) return;
    problem(path, `must be 0 (not set) or at least 500 milliseconds, got ${value}`);
  },
  { anyOf: [{ const: 0 }, { minimum: 500 }] },
);

const autoScaleConfig = object<AutoScaleConfig>({
  slaQuota: optional(slaQuota, 0, 'Milliseconds; 0: not set.'),
  scaleDownTime: optional(integer({ min: 0, max: MAX_MILLISECONDS }), 60_000, 'Milliseconds.'),
  burstScaleNum: optional(integer({ min: 1, max: 100_000 }), 1000, 'Calls that may wait.'),
});

const extendedHandler = functionHandlers(shortText);

const extendedTimeout = object<FunctionSpec['extendedTimeout']>({
  initializer: optional(integer(SECONDS), INITIALIZER_SECONDS, 'Seconds.'),
  pre_stop: optional(integer({ min: 0, max: LIMITS.functionPreStopSeconds }), 0, 'Seconds.'),
});

const NAME_SCHEMA = { type: 'string', pattern: FUNCTION_NAME_PATTERN };
const NAME_MISSING = `is required, in the format ${FUNCTION_NAME_FORMAT}`;

const name: Kind<string> = kindOf(NAME_SCHEMA, (value, path, problem) => {
  if (typeof value !== 'string') return wrongAt(path, 'must be a string', problem);
  if (value === '') return wrongAt(path, NAME_MISSING, problem);
  return isFunctionName(value) ? value : wrongAt(path, `must have the format ${FUNCTION_NAME_FORMAT}`, problem);
});

/** Lists `package` only in the schema, because the specification fixes the text for a wrong value. */
const storageType: Kind<StorageType> = {
  describe: () => ({ enum: STORAGE_TYPES }),
  read: (value, path, problem) =>
    value === 'package' ? value : oneOf(['', 'local', 's3', 'copy']).read(value, path, problem),
};

/** Reads an empty kind as the default. */
const kind: Kind<FunctionKind> = {
  describe: () => ({ enum: ['', ...FUNCTION_KINDS] }),
  read: (value, path, problem) => (value === '' ? 'yrlib' : oneOf(FUNCTION_KINDS).read(value, path, problem)),
};

const instances = integerOrDigits({ min: 0, max: LIMITS.functionInstances.max });

const resource: Kind<number> = kindOf({ type: 'number', minimum: 0 }, (value, path, problem) =>
  typeof value === 'number' && Number.isFinite(value) && value >= 0
    ? value
    : wrongAt(path, 'must be a number that is not negative', problem),
);

const inputSchema = refine(anyObject, (schema, path, problem) => {
  const bytes = Buffer.byteLength(JSON.stringify(schema));
  const most = LIMITS.functionInputSchemaBytes;
  if (bytes > most) problem(path, `must have at most ${most} bytes as JSON, got ${bytes}`);
  else checkSchema(schema, path, problem);
});

/** Every field that can be registered. */
export const FUNCTION_FIELDS: Fields<FunctionSpec> = {
  name: required(name, '`0@{service}@{funcName}`, such as `0@demo@hello`', NAME_MISSING),
  kind: optional(kind, 'yrlib'),
  runtime: required(text({ maxChars: 64, required: true }), '`python3.11`, `nodejs22`, `go`, `java17` …'),
  cpu: required(integer(LIMITS.cpuMillis), '1/1000 core'),
  memory: required(integer(LIMITS.memoryMb), 'MB'),
  timeout: optional(integer(SECONDS), LIMITS.functionTimeoutSeconds.default, 'Seconds.'),
  handler: optional(shortText, '', '`module.function`; required for kind faas.'),
  httpProfile: optional(httpProfileName, '', HTTP_PROFILE_DOC),
  environment: optional(variables(variable(text())), {}),
  description: optional(text({ maxChars: LIMITS.functionDescriptionChars }), ''),
  storageType: optional(storageType, '', 'Required for kind faas. `package`: a code package.'),
  codePath: optional(pathText, '', 'A directory of the host; with `storageType: package`, `code://<sha256>`.'),
  dependencies: optional(dependencyMode, '', DEPENDENCIES_DOC),
  s3CodePath: optional<S3CodePath | null>(s3CodePath, null),
  extendedHandler: optional(extendedHandler, absentValues(extendedHandler.fields)),
  extendedTimeout: optional(extendedTimeout, absentValues(extendedTimeout.fields)),
  sandboxType: optional(oneOf(['', ...SANDBOX_TYPES]), '', 'Empty: the default executor.'),
  rootfs: optional<FunctionRootfs | null>(rootfs, null),
  minInstance: optional(instances, LIMITS.functionInstances.defaultMin),
  maxInstance: optional(instances, LIMITS.functionInstances.defaultMax),
  concurrentNum: optional(
    integerOrDigits({ min: 1, max: LIMITS.functionConcurrency.max }),
    LIMITS.functionConcurrency.default,
  ),
  customResources: optional<FunctionSpec['customResources']>(record(resource), null),
  tags: optional<FunctionSpec['tags']>(record(shortText), null),
  layers: optional<FunctionSpec['layers']>(anyList(MAX_LIST_ITEMS), null, LAMBDA_LAYERS_DOC),
  device: optional(anyObject, {}),
  poolId: optional(text({ maxChars: 64 }), ''),
  idleTime: optional(integer({ min: -1, max: SECONDS.max }), 0, 'Seconds.'),
  autoScaleConfig: optional<AutoScaleConfig | null>(autoScaleConfig, null),
  schedulePolicies: optional<FunctionSpec['schedulePolicies']>(anyList(MAX_LIST_ITEMS), null),
  enableSessionCtx: optional(boolean, false),
  enableAgentSession: optional(boolean, false),
  isFuncPublic: optional(boolean, false),
  expose: optional<Expose | null>(
    EXPOSE_FUNCTION,
    null,
    'Gives a port of its instances an address: docs/guides/addresses.md.',
  ),
  inputSchema: optional<JsonObject | null>(
    inputSchema,
    null,
    'The JSON Schema of the event; `{}`: none. With it and a description, the function is a tool of the MCP server.',
  ),
  validateInput: optional(boolean, false, 'Events that do not fit `inputSchema` are refused before the call.'),
};

/** The body of a register. */
export const FUNCTION_REGISTER = object(FUNCTION_FIELDS, {
  schema: { examples: [{ name: '0@demo@hello', kind: 'agent', runtime: 'python3.11', cpu: 500, memory: 512 }] },
});

/** The latest revision, which every change of a function must name. */
export const revisionId = required(text({ maxChars: MAX_TEXT_CHARS, required: true }), 'The latest one.');

const CHANGES = kept(FUNCTION_FIELDS);
/** The body of an update. */
export const FUNCTION_UPDATE = object({
  revisionId,
  ...CHANGES,
  name: { ...CHANGES.name, doc: { description: OWN } },
  kind: { ...CHANGES.kind, doc: { description: OWN } },
  runtime: { ...CHANGES.runtime, doc: { description: OWN } },
});

const ABSENT = absentValues(FUNCTION_FIELDS);
/** Fields that identify a function. An update may repeat but not change them. */
const FIXED = ['name', 'runtime', 'kind'] as const;

/** Reads the body of a register. */
export function readRegister(body: JsonObject): Checked<FunctionSpec> {
  const problems = new Problems();
  noteMissing(FUNCTION_FIELDS, body, problems.add);
  const { present } = readPresent(FUNCTION_FIELDS, body, '', problems.add);
  const spec: FunctionSpec = { ...ABSENT, ...present };
  checkTogether(spec, problems);
  return problems.check(spec);
}

export interface FunctionUpdate {
  readonly revisionId: string;
  /** The fields that were sent. */
  readonly changes: Partial<FunctionSpec>;
}

/** Reads the body of an update and makes the checks that need no stored data. */
export function readUpdate(body: JsonObject): Checked<FunctionUpdate> {
  const problems = new Problems();
  const { present } = readPresent(FUNCTION_UPDATE.fields, body, '', problems.add);
  const { revisionId = '', kind, ...others } = present as Partial<FunctionSpec> & { revisionId?: string };
  // An empty kind means the function's own kind, as in a publish.
  const changes = body.kind === '' || kind === undefined ? others : { ...others, kind };
  checkInstances(changes, problems);
  return problems.check({ revisionId, changes });
}

/**
 * Returns a function after an update. A field that was sent replaces the whole old field; other fields stay.
 */
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
  return problems.check(merged);
}

/** Checks rules that span several fields. */
function checkTogether(spec: FunctionSpec, problems: Problems): void {
  checkInstances(spec, problems);
  if (spec.storageType === 'package' && parseCodeUrl(spec.codePath) === null) {
    problems.add('codePath', `must be ${CODE_URL_SHAPE} for storageType package, got "${spec.codePath}"`);
    return;
  }
  const wrongProfile = httpProfileProblem(spec.httpProfile, { ...spec, ...spec.extendedHandler });
  if (wrongProfile !== null) problems.add('httpProfile', wrongProfile);
  if (spec.expose?.port) checkAddress(spec, problems);
  if (spec.validateInput && !hasInputSchema(spec)) problems.add('validateInput', 'needs an inputSchema');
  checkLambdaLayers(spec, problems.add);
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

/** Returns true if the function has a schema of its event. The schema `{}` removes an earlier one. */
export function hasInputSchema({ inputSchema }: Pick<FunctionSpec, 'inputSchema'>): boolean {
  return inputSchema !== null && Object.keys(inputSchema).length > 0;
}

function checkAddress({ name }: FunctionSpec, problems: Problems): void {
  // Another check reports a wrong name.
  if (typeof name !== 'string' || !isFunctionName(name)) return;
  const [, namespace = '', short = ''] = name.split('@');
  const problem = addressProblem({ namespace, name: short });
  if (problem !== null)
    problems.add('expose', `${name} can have no address: ${problem.replace('its namespace', 'its service')}`);
}

function checkInstances({ minInstance, maxInstance }: Partial<FunctionSpec>, problems: Problems): void {
  if (minInstance === undefined || maxInstance === undefined || minInstance <= maxInstance) return;
  problems.add('minInstance', `must not be larger than maxInstance: ${minInstance} > ${maxInstance}`);
}

/**
 * The kinds of functions. `agent` and `faas` can run here; `yrlib` and `custom` are only stored and returned.
 */
export const FUNCTION_KINDS = ['agent', 'faas', 'yrlib', 'custom'] as const;
export type FunctionKind = (typeof FUNCTION_KINDS)[number];

/** The place of the code. `package`: a package that was uploaded to `/api/code`. */
export const STORAGE_TYPES = ['', 'local', 's3', 'copy', 'package'] as const;
export type StorageType = (typeof STORAGE_TYPES)[number];

/**
 * The registration of a caller, under the names of the wire. Fields that were not sent have their defaults.
 */
export interface FunctionSpec {
  readonly name: string;
  readonly kind: FunctionKind;
  readonly runtime: string;
  /** Millicores. */
  readonly cpu: number;
  /** MB. */
  readonly memory: number;
  /** Seconds. */
  readonly timeout: number;
  readonly handler: string;
  /** `''`: `http`. */
  readonly httpProfile: HttpProfileName;
  readonly environment: Variables;
  readonly description: string;
  readonly storageType: StorageType;
  readonly codePath: string;
  readonly dependencies: DependencyMode;
  readonly s3CodePath: S3CodePath | null;
  readonly extendedHandler: FunctionHandlers;
  /** Seconds. */
  readonly extendedTimeout: { readonly initializer: number; readonly pre_stop: number };
  readonly sandboxType: RequestedSandboxType;
  readonly rootfs: FunctionRootfs | null;
  readonly minInstance: number;
  readonly maxInstance: number;
  readonly concurrentNum: number;
  readonly customResources: Readonly<Record<string, number>> | null;
  readonly tags: Readonly<Record<string, string>> | null;
  readonly layers: readonly unknown[] | null;
  readonly device: JsonObject;
  readonly poolId: string;
  /** Seconds. */
  readonly idleTime: number;
  readonly autoScaleConfig: AutoScaleConfig | null;
  readonly schedulePolicies: readonly unknown[] | null;
  readonly enableSessionCtx: boolean;
  readonly enableAgentSession: boolean;
  readonly isFuncPublic: boolean;
  /** The port with an address of its own. */
  readonly expose: Expose | null;
  /** JSON Schema of the event. null or `{}`: none. */
  readonly inputSchema: JsonObject | null;
  /** Refuses events that do not fit `inputSchema`. */
  readonly validateInput: boolean;
}

export interface S3CodePath {
  readonly bucketId: string;
  readonly objectId: string;
  readonly bucketUrl: string;
  /** A secret, which no answer contains. */
  readonly token: string;
  readonly sha512: string;
}

export interface FunctionRootfs {
  readonly type: string;
  readonly imageurl: string;
  readonly user: string;
  readonly ports: readonly string[];
  readonly path: string;
  readonly readonly: boolean;
  readonly mounts: readonly MountSpec[];
}

export interface AutoScaleConfig {
  /** Milliseconds; 0: not set. */
  readonly slaQuota: number;
  /** Milliseconds. */
  readonly scaleDownTime: number;
  readonly burstScaleNum: number;
}

/** A stored version of a function. `$latest` can be edited; published versions never change. */
export interface FunctionVersion {
  readonly tenant: string;
  readonly business: string;
  /** `$latest`, or the number under which the version was published. */
  readonly version: string;
  /** The whole URN of this version. */
  readonly urn: string;
  readonly revisionId: string;
  readonly versionDesc: string;
  /** Creation time of the function. */
  readonly createTime: string;
  /** `''` for the latest version. */
  readonly publishTime: string;
  /** `''` until the first update. */
  readonly updateTime: string;
  readonly spec: FunctionSpec;
}

/** Returns the SHA-256 of the code package that a function uses, or null. */
export function codePackageOf({
  storageType,
  codePath,
}: Pick<FunctionSpec, 'storageType' | 'codePath'>): string | null {
  return storageType === 'package' ? parseCodeUrl(codePath) : null;
}

/**
 * Returns the host path whose absence makes a version `unavailable`; `''` when the code is not on this host.
 */
export function hostCodePath(spec: FunctionSpec): string {
  return spec.storageType === 'local' || spec.storageType === 'copy' ? spec.codePath : '';
}
