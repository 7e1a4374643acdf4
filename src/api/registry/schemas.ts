import { type TSchema, Type } from 'typebox';
import { META_CODES } from '../../core/codes.ts';
import { FUNCTION_KINDS, STORAGE_TYPES } from '../../core/function.ts';
import { Warnings } from '../../http/docs.ts';

/**
 * Shapes of answers, for the OpenAPI document only. No answer passes a schema at run time.
 * `core/` declares the shapes of requests.
 */
export const nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
export const textMap = Type.Record(Type.String(), Type.String());
/** The record of a function. Every field is always present, except optional ones. */
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
  dependencies: Type.Optional(Type.Enum(['auto'])),
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
  environment: Type.Record(Type.String(), Type.Union([Type.String(), Type.Object({ secret: Type.String() })])),
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

/** The answer of a handled request that failed. */
export const Failed = Type.Object({
  code: Type.Integer({ not: { const: 0 }, examples: codes }),
  message: Type.String(),
  warnings: Warnings,
});

export const Done = Type.Object({ code: Type.Literal(0), message: Type.Literal(''), warnings: Warnings });
export const Deleted = Type.Object({ code: Type.Literal(0), message: Type.Literal('SUCCESS'), warnings: Warnings });

const success = { code: Type.Literal(0), message: Type.Literal('SUCCESS') };
export const OneFunction = Type.Object({ ...success, function: FunctionRecord, warnings: Warnings });
export const Registered = Type.Object({
  ...success,
  functionVersionUrn: Type.String(),
  function: FunctionRecord,
  warnings: Warnings,
});

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
