import { type TSchema, Type } from 'typebox';
import { META_CODES } from '../../core/codes.ts';
import { FUNCTION_KINDS, FUNCTION_REGISTER, FUNCTION_UPDATE, STORAGE_TYPES } from '../../core/function.ts';
import { describeParameters } from '../../core/parameter.ts';
import { RESERVATION, RESERVATION_PART, RESERVATION_SELECT } from '../../core/reservation.ts';
import { PUBLISH } from '../../core/revision.ts';
import { errorDocs, Warnings } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { FUNCTION_DELETE_QUERY, FUNCTION_QUERY, FUNCTIONS_QUERY, VERSIONS_QUERY } from './requests.ts';

/** Documents an answer with status 200: the success, or the failure that also has status 200. */
export function handled(description: string, success: TSchema, failure: TSchema = Failed): object {
  return {
    description: `${description} Other codes than 0 are failures; see docs/reference/errors.md.`,
    content: { 'application/json': { schema: Type.Union([success, failure]) } },
  };
}

/** Error answers of every operation with a body. */
export const WRONG_BODY = { 400: errorDocs('130600: the body is not JSON, or no object.') };
export const WRONG_REQUEST = {
  400: errorDocs('4104: the request is wrong by itself. 130600: the body is no JSON object.'),
};

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
  httpProfile: Type.Optional(Type.String()),
  dependencies: Type.Optional(Type.Enum(['auto'])),
  bucketId: Type.String(),
  objectId: Type.String(),
  s3CodePath: nullable(
    Type.Object({ bucketId: Type.String(), objectId: Type.String(), bucketUrl: Type.String(), sha512: Type.String() }),
  ),
  handler: Type.String(),
  extendedHandler: Type.Object({
    initializer: Type.String(),
    pre_stop: Type.String(),
    alarm: Type.Optional(Type.String()),
    sleep: Type.Optional(Type.String()),
  }),
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
  inputSchema: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  validateInput: Type.Optional(Type.Boolean()),
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

const functionTags = ['function'];
const byName = Type.Object({
  name: Type.String({ minLength: 1, description: 'The name `0@{service}@{funcName}`, or a URN of the function.' }),
});

/** The OpenAPI documentation of functions. */
export const FUNCTION_DOCS = {
  register: {
    tags: functionTags,
    operationId: 'registerFunction',
    summary: 'Register a function',
    description: 'When it has answered, the function survives a power cut.',
    body: FUNCTION_REGISTER.describe(),
    response: { 200: handled('It is registered.', Registered), ...WRONG_REQUEST },
  },
  list: {
    tags: functionTags,
    operationId: 'listFunctions',
    summary: 'List all versions of all functions, newest change first',
    querystring: describeParameters(FUNCTIONS_QUERY),
    response: { 200: handled('One page.', FunctionList) },
  },
  get: {
    tags: functionTags,
    operationId: 'getFunction',
    summary: 'Query one version of a function',
    description: 'When the name is a URN with its version, `versionNumber` may be left out.',
    params: byName,
    querystring: describeParameters(FUNCTION_QUERY),
    response: { 200: handled('The version.', OneFunction), ...WRONG_REQUEST },
  },
  update: {
    tags: functionTags,
    operationId: 'updateFunction',
    summary: 'Update the latest revision of a function',
    description: 'Fields that are absent are kept; a field that is sent replaces the old one whole.',
    params: byName,
    body: FUNCTION_UPDATE.describe(),
    response: { 200: handled('It is updated.', OneFunction), ...WRONG_REQUEST },
  },
  delete: {
    tags: functionTags,
    operationId: 'deleteFunction',
    summary: 'Delete a function, or one published version of it',
    params: byName,
    querystring: describeParameters(FUNCTION_DELETE_QUERY),
    response: { 200: handled('It is deleted.', Deleted), ...WRONG_REQUEST },
  },
  versions: {
    tags: functionTags,
    operationId: 'listVersions',
    summary: 'Query all versions of a function, newest change first',
    params: byName,
    querystring: describeParameters(VERSIONS_QUERY),
    response: { 200: handled('One page; `functions` is null when there is no such function.', VersionList) },
  },
  publish: {
    tags: functionTags,
    operationId: 'publishFunction',
    summary: 'Publish the latest revision of a function as a version',
    params: byName,
    body: PUBLISH.describe(),
    response: { 200: handled('It is published, and never changes.', OneFunction), ...WRONG_BODY },
  },
} as const satisfies Record<string, RouteDocs>;

const reservationTags = ['reserved instances'];
const clusters = Type.Array(
  Type.Object({ clusterId: Type.String(), minInstance: Type.Integer(), maxInstance: Type.Integer() }),
);
const Written = Type.Object({
  code: Type.Literal(0),
  message: Type.Literal(''),
  instanceConfigInfos: clusters,
  reserveInsBaseInfo: Type.Object({ funcName: Type.String(), version: Type.String(), instanceLabel: Type.String() }),
  warnings: Warnings,
});
const Listed = Type.Object({
  code: Type.Literal(0),
  message: Type.Literal(''),
  total: Type.Integer(),
  results: Type.Array(Type.Object({ instanceLabel: Type.String(), instanceConfigInfos: clusters })),
});

/** The OpenAPI documentation of reserved instances. */
export const RESERVATION_DOCS = {
  create: {
    tags: reservationTags,
    operationId: 'createReservedInstances',
    summary: 'Create or replace the reserved instances of a label',
    body: RESERVATION.describe(),
    response: { 200: handled('They are reserved.', Written), ...WRONG_REQUEST },
  },
  update: {
    tags: reservationTags,
    operationId: 'updateReservedInstances',
    summary: 'Update the reserved instances of a label that were created before',
    description: 'Clusters that are not named, and numbers that are not sent, are kept.',
    body: RESERVATION.describe(),
    response: { 200: handled('They are updated.', Written), ...WRONG_REQUEST },
  },
  list: {
    tags: reservationTags,
    operationId: 'listReservedInstances',
    summary: 'Query the reserved instances of a function version',
    querystring: RESERVATION_SELECT.describe(),
    response: { 200: handled('All labels, or the one that was named.', Listed), ...WRONG_REQUEST },
  },
  delete: {
    tags: reservationTags,
    operationId: 'deleteReservedInstances',
    summary: 'Delete the reserved instances of one label, or of all labels of a version',
    description:
      'Each field may stand in the query or in a JSON body; what the body does not have is taken from the query. `funcName` and `version` are required in one of the two.',
    querystring: RESERVATION_PART.describe(),
    body: RESERVATION_PART.describe(),
    isBodyOptional: true,
    response: { 200: handled('They are deleted.', Done), ...WRONG_REQUEST },
  },
} as const satisfies Record<string, RouteDocs>;
