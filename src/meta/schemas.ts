import { type TSchema, Type } from 'typebox';
import { META_CODES } from '../core/codes.ts';
import { FUNCTION_KINDS, STORAGE_TYPES } from '../core/function.ts';
import { LIMITS } from '../core/limits.ts';
import { SANDBOX_TYPES } from '../core/sandbox-types.ts';

/**
 * The shapes on the wire, for the OpenAPI document only: bodies are read by `core/`, and nothing that is sent passes a schema.
 * `null` counts as absent in every optional field, which a schema that lists each null would say less clearly.
 */
/** A text without a NUL character. */
const NO_NUL = '^[^\\u0000]*$';
/** Absolute; none of the forbidden directories, no `..`, no docker.sock. */
const SAFE_SOURCE =
  '^(?!.*\\.\\.)(?!.*docker\\.sock)(/+\\.)*/+(?!(etc|proc|sys|dev|boot|\\.)?(/|$))[^/\\u0000][^\\u0000]*$';
const PORT = '^((tcp|udp):)?([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$';
const NAME = '^0@[A-Za-z0-9]{1,16}@[a-z0-9-]{1,127}$';
const optional = <T extends TSchema>(schema: T) => Type.Optional(schema);
export const nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
export const textMap = Type.Record(Type.String(), Type.String());
const shortText = Type.String({ maxLength: 1024, pattern: NO_NUL });
const path = Type.String({ maxLength: 4096, pattern: NO_NUL });
const digitsOrInteger = (max: number, min: number) =>
  Type.Union([
    Type.Integer({ minimum: min, maximum: max }),
    Type.String({
      pattern: `^(${min === 0 ? '[0-9]{1,3}' : '[1-9][0-9]{0,2}'}|${max})$`,
      description: 'Decimal digits.',
    }),
  ]);
const environment = Type.Record(
  Type.String({ pattern: '^(?!ROOKERY_)[A-Za-z_][A-Za-z0-9_]*$' }),
  Type.String({ maxLength: 131_072, pattern: NO_NUL }),
  { additionalProperties: false },
);
const LEVELS = 'Values of any shape, at most 100 levels deep.';
const milliseconds = { maximum: 2 ** 31 - 1 };

export const FunctionName = Type.String({
  pattern: NAME,
  description: '`0@{service}@{funcName}`, such as `0@demo@hello`',
});

const ExtendedHandler = Type.Object({
  initializer: optional(shortText),
  pre_stop: optional(shortText),
});
const ExtendedTimeout = Type.Object({
  initializer: optional(
    Type.Integer({ minimum: 1, maximum: LIMITS.functionTimeoutSeconds.max, default: 30, description: 'Seconds.' }),
  ),
  pre_stop: optional(
    Type.Integer({ minimum: 0, maximum: LIMITS.functionPreStopSeconds, default: 0, description: 'Seconds.' }),
  ),
});

const Mount = Type.Object({
  source: Type.String({ pattern: SAFE_SOURCE, description: 'Absolute path on the host; not an unsafe one.' }),
  target: Type.String({ minLength: 1, maxLength: 4096, pattern: NO_NUL, description: 'Path inside the sandbox.' }),
  readonly: optional(Type.Boolean({ default: false })),
});

const Rootfs = Type.Object({
  type: optional(Type.String({ maxLength: 64, pattern: NO_NUL, description: '`image` for an image.' })),
  imageurl: optional(shortText),
  user: optional(Type.String({ maxLength: 256, pattern: NO_NUL, description: 'Empty: root.' })),
  ports: optional(
    Type.Array(Type.String({ pattern: PORT, description: '`[<proto>:]<port>`' }), { uniqueItems: true, maxItems: 100 }),
  ),
  path: optional(path),
  readonly: optional(Type.Boolean()),
  mounts: optional(Type.Array(Mount, { maxItems: 100 })),
});

const S3CodePath = Type.Object({
  bucketId: optional(shortText),
  objectId: optional(shortText),
  bucketUrl: optional(path),
  token: optional(Type.String({ maxLength: 16_384, pattern: NO_NUL, description: 'In no answer.' })),
  sha512: optional(Type.String({ pattern: '^([0-9A-Fa-f]{128})?$' })),
});

const AutoScaleConfig = Type.Object({
  slaQuota: optional(
    Type.Union([Type.Literal(0), Type.Integer({ minimum: 500, ...milliseconds })], {
      description: 'Milliseconds; 0: not set.',
    }),
  ),
  scaleDownTime: optional(Type.Integer({ minimum: 0, ...milliseconds, default: 60_000, description: 'Milliseconds.' })),
  burstScaleNum: optional(
    Type.Integer({ minimum: 1, maximum: 100_000, default: 1000, description: 'Calls that may wait.' }),
  ),
});

const runtime = Type.String({
  minLength: 1,
  maxLength: 64,
  pattern: NO_NUL,
  description: '`python3.11`, `go`, `java17` …',
});
const cpu = Type.Integer({
  minimum: LIMITS.cpuMillis.min,
  maximum: LIMITS.cpuMillis.max,
  description: '1/1000 core',
});
const memory = Type.Integer({ minimum: LIMITS.memoryMb.min, maximum: LIMITS.memoryMb.max, description: 'MB' });

const changeable = {
  timeout: optional(
    Type.Integer({
      minimum: 1,
      maximum: LIMITS.functionTimeoutSeconds.max,
      default: LIMITS.functionTimeoutSeconds.default,
      description: 'Seconds.',
    }),
  ),
  handler: optional(
    Type.String({ maxLength: 1024, pattern: NO_NUL, description: '`module.function`; required for kind faas.' }),
  ),
  environment: optional(environment),
  description: optional(Type.String({ maxLength: LIMITS.functionDescriptionChars, pattern: NO_NUL })),
  storageType: optional(Type.Enum(STORAGE_TYPES, { description: 'Required for kind faas.' })),
  codePath: optional(path),
  s3CodePath: optional(S3CodePath),
  extendedHandler: optional(ExtendedHandler),
  extendedTimeout: optional(ExtendedTimeout),
  sandboxType: optional(Type.Enum(['', ...SANDBOX_TYPES], { description: 'Empty: the default executor.' })),
  rootfs: optional(Rootfs),
  minInstance: optional(digitsOrInteger(LIMITS.functionInstances.max, 0)),
  maxInstance: optional(digitsOrInteger(LIMITS.functionInstances.max, 0)),
  concurrentNum: optional(digitsOrInteger(LIMITS.functionConcurrency.max, 1)),
  customResources: optional(Type.Record(Type.String(), Type.Number({ minimum: 0 }))),
  tags: optional(Type.Record(Type.String(), shortText)),
  layers: optional(Type.Array(Type.Unknown(), { maxItems: 100, description: LEVELS })),
  device: optional(Type.Record(Type.String(), Type.Unknown(), { description: LEVELS })),
  poolId: optional(Type.String({ maxLength: 64, pattern: NO_NUL })),
  idleTime: optional(
    Type.Integer({ minimum: -1, maximum: LIMITS.functionTimeoutSeconds.max, description: 'Seconds.' }),
  ),
  autoScaleConfig: optional(AutoScaleConfig),
  schedulePolicies: optional(Type.Array(Type.Unknown(), { maxItems: 100, description: LEVELS })),
  enableSessionCtx: optional(Type.Boolean()),
  enableAgentSession: optional(Type.Boolean()),
  isFuncPublic: optional(Type.Boolean()),
};

export const Register = Type.Object(
  {
    name: FunctionName,
    kind: optional(Type.Enum(FUNCTION_KINDS, { default: 'yrlib' })),
    runtime,
    cpu,
    memory,
    ...changeable,
  },
  { examples: [{ name: '0@demo@hello', kind: 'agent', runtime: 'python3.11', cpu: 500, memory: 512 }] },
);

const RevisionId = Type.String({ minLength: 1, maxLength: 1024, pattern: NO_NUL, description: 'The latest one.' });

export const Update = Type.Object({
  revisionId: RevisionId,
  name: optional(Type.String({ description: 'If sent, the function’s own.', pattern: NAME })),
  kind: optional(Type.Enum(FUNCTION_KINDS, { description: 'If sent, the function’s own.' })),
  runtime: optional({ ...runtime, description: 'If sent, the function’s own.' }),
  cpu: optional(cpu),
  memory: optional(memory),
  ...changeable,
});

export const Publish = Type.Object({
  revisionId: RevisionId,
  versionNumber: optional(
    Type.String({ maxLength: 1024, pattern: NO_NUL, description: 'Empty or absent: made from the time.' }),
  ),
  versionDesc: optional(Type.String({ maxLength: LIMITS.functionDescriptionChars, pattern: NO_NUL })),
  kind: optional(Type.Enum(['', ...FUNCTION_KINDS], { description: 'If sent, the function’s own.' })),
});

/** Every field of a record, always there. */
export const FunctionRecord = Type.Object({
  id: Type.String({ description: 'The functionVersionUrn.' }),
  createTime: Type.String({ examples: ['2026-11-20 10:00:00.000 UTC'] }),
  updateTime: Type.String(),
  functionUrn: Type.String(),
  name: Type.String(),
  kind: Type.Enum(FUNCTION_KINDS),
  tenantId: Type.String(),
  businessId: Type.String(),
  productId: Type.String(),
  reversedConcurrency: Type.Integer(),
  description: Type.String(),
  tag: nullable(textMap),
  functionVersionUrn: Type.String(),
  revisionId: Type.String({ pattern: '^[0-9]{17}$' }),
  codeSize: Type.Integer(),
  codeSha256: Type.String(),
  storageType: Type.Enum(STORAGE_TYPES),
  codePath: Type.String(),
  bucketId: Type.String(),
  objectId: Type.String(),
  s3CodePath: nullable(
    Type.Object({ bucketId: Type.String(), objectId: Type.String(), bucketUrl: Type.String(), sha512: Type.String() }),
  ),
  handler: Type.String(),
  extendedHandler: Type.Object({ initializer: Type.String(), pre_stop: Type.String() }),
  extendedTimeout: Type.Object({ initializer: Type.Integer(), pre_stop: Type.Integer() }),
  layers: nullable(Type.Array(Type.Unknown())),
  cpu: Type.Integer(),
  memory: Type.Integer(),
  runtime: Type.String(),
  timeout: Type.Integer(),
  versionNumber: Type.String(),
  versionDesc: Type.String(),
  environment: textMap,
  customResources: nullable(Type.Record(Type.String(), Type.Number())),
  statefulFlag: Type.Integer(),
  lastModified: Type.String(),
  Published: Type.String(),
  created: Type.String(),
  sandboxType: Type.String(),
  rootfs: nullable(
    Type.Object({
      type: Type.String(),
      imageurl: Type.String(),
      user: Type.String(),
      ports: Type.Array(Type.String()),
      path: Type.String(),
      readonly: Type.Boolean(),
      mounts: Type.Array(Type.Object({ source: Type.String(), target: Type.String(), readonly: Type.Boolean() })),
    }),
  ),
  minInstance: Type.Integer(),
  maxInstance: Type.Integer(),
  concurrentNum: Type.Integer(),
  poolId: Type.String(),
  idleTime: Type.Integer(),
  autoScaleConfig: nullable(
    Type.Object({ slaQuota: Type.Integer(), scaleDownTime: Type.Integer(), burstScaleNum: Type.Integer() }),
  ),
  schedulePolicies: nullable(Type.Array(Type.Unknown())),
  enableSessionCtx: Type.Boolean(),
  enableAgentSession: Type.Boolean(),
  isFuncPublic: Type.Boolean(),
  funcLayer: Type.Array(Type.Unknown()),
  instanceNum: Type.Integer(),
  device: Type.Record(Type.String(), Type.Unknown()),
  status: Type.Enum(['', 'unavailable']),
});

const codes = Object.values(META_CODES).map(({ code }) => code);

/** What a handled request answers with when it did not succeed. */
export const Failed = Type.Object({
  code: Type.Integer({ not: { const: 0 }, examples: codes }),
  message: Type.String(),
});

export const Done = Type.Object({ code: Type.Literal(0), message: Type.Literal('') });
export const Deleted = Type.Object({ code: Type.Literal(0), message: Type.Literal('SUCCESS') });

const success = { code: Type.Literal(0), message: Type.Literal('SUCCESS') };
export const OneFunction = Type.Object({ ...success, function: FunctionRecord });
export const Registered = Type.Object({ ...success, functionVersionUrn: Type.String(), function: FunctionRecord });

export const FunctionList = Type.Object({
  code: Type.Literal(0),
  message: Type.Literal(''),
  result: Type.Object({ total: Type.Integer(), functions: Type.Array(FunctionRecord) }),
});

export const VersionList = Type.Object({
  code: Type.Literal(0),
  message: Type.Literal(''),
  functions: nullable(Type.Array(FunctionRecord)),
  pageInfo: Type.Object({ total: Type.Integer(), pageSize: Type.String(), pageIndex: Type.String() }),
});
