import type { FastifyInstance, FastifyRequest } from 'fastify';
import { type TSchema, Type } from 'typebox';
import { MASK } from '../../core/environment.ts';
import { permissionDenied } from '../../core/error.ts';
import { describeParameters, readParameters, type Sent } from '../../core/parameter.ts';
import { POOL_UPDATE, POOLS_CREATE, type Pool, readPoolUpdate } from '../../core/pool.ts';
import { unknownFieldWarnings } from '../../core/unknown-names.ts';
import { withWarnings } from '../../http/answer.ts';
import { Warnings } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { wrongRequest } from '../../registry/errors.ts';
import { failedPools, type PoolRegistry } from '../../registry/pools.ts';
import { Done, handled, nullable, textMap, WRONG_BODY } from '../registry/docs.ts';
import { POOLS_DELETE_QUERY, POOLS_QUERY, readNoFields, readObject, readRequest } from '../registry/requests.ts';

/** The specification lists no 400 for pools. */
const wrongRequestStatus = 200;

/** Tenants of the operator, which may change pools. null: authentication is off, and every client may. */
export type PoolTenants = readonly string[] | null;

/** Adds operations 10 and 11 of the specification, and update and delete of pools. */
export function addPoolRoutes(app: FastifyInstance, pools: PoolRegistry, tenants: PoolTenants): void {
  const isOperator = (tenant: string) => tenants === null || tenants.includes(tenant);
  // Runs before the body is read. A pool's pods run instances of all tenants, so only the operator may change
  // pools.
  const onRequest = async ({ tenant }: FastifyRequest) => {
    if (!isOperator(tenant)) {
      throw permissionDenied(
        `pools belong to the operator of the cluster: the setting pools.tenants does not name the tenant ${tenant}`,
      );
    }
  };

  app.post(
    '/serverless/v1/podpools',
    { config: { access: 'write', wrongRequestStatus, docs: POOL_DOCS.create }, onRequest },
    async request => {
      const body = readObject(request.body);
      const { pools: sent } = body;
      if (sent === undefined || sent === null) throw wrongRequest(['pools is required']);
      if (!Array.isArray(sent)) throw wrongRequest(['pools must be an array']);
      if (sent.length === 0) throw wrongRequest(['pools must not be empty']);
      const created = await pools.create(sent);
      request.warnings = unknownFieldWarnings(POOLS_CREATE, body);
      if (created.failedIds.length > 0) throw failedPools(created);
      return withWarnings({ code: 0, message: '', result: { failed_pools: null } }, request.warnings);
    },
  );

  app.get<{ Querystring: Sent }>(
    '/serverless/v1/podpools',
    { config: { access: 'read', wrongRequestStatus, docs: POOL_DOCS.list } },
    async ({ query, tenant }) => {
      const { limit, offset, ...filter } = readParameters(POOLS_QUERY, query);
      const found = await pools.list(filter, offset.index, limit);
      return {
        code: 0,
        message: '',
        result: {
          count: found.count,
          pools: found.pools.map(pool => ({
            ...poolRecord(pool, pools.antiAffinities(pool)),
            environment: isOperator(tenant) ? pool.spec.environment : masked(pool.spec.environment),
          })),
        },
      };
    },
  );

  app.put<{ Params: { id: string } }>(
    '/serverless/v1/podpools/:id',
    { config: { access: 'write', wrongRequestStatus, docs: POOL_DOCS.update }, onRequest },
    async request => {
      await pools.update(request.params.id, readRequest(request, POOL_UPDATE, readPoolUpdate));
      return withWarnings({ code: 0, message: '' }, request.warnings);
    },
  );

  app.delete<{ Querystring: Sent }>(
    '/serverless/v1/podpools',
    { config: { access: 'write', wrongRequestStatus, docs: POOL_DOCS.delete }, onRequest },
    async request => {
      readNoFields(request);
      const filter = readParameters(POOLS_DELETE_QUERY, request.query);
      if (filter.id === '' && filter.group === '') throw wrongRequest(['one of id and group is required']);
      await pools.delete(filter);
      return withWarnings({ code: 0, message: '' }, request.warnings);
    },
  );
}

/** Masks the values of an environment and keeps the names. */
function masked(environment: Pool['spec']['environment']): Pool['spec']['environment'] {
  return environment && Object.fromEntries(Object.keys(environment).map(name => [name, MASK]));
}

function poolRecord({ spec, status, msg, readyCount }: Pool, antiAffinities: string) {
  const { id, group, size, max_size, resources, ...optional } = spec;
  return {
    id,
    group,
    size,
    max_size,
    status,
    msg,
    ready_count: readyCount,
    resources,
    ...optional,
    pod_anti_affinities: antiAffinities,
  };
}

const tags = ['pool'];
const WHO = 'With authentication on only for developers of the tenants that `pools.tenants` names; others get 403.';
const optional = <T extends TSchema>(schema: T) => Type.Optional(schema);
const id = Type.String({ pattern: '^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$' });

const PoolRecord = Type.Object({
  id: Type.String(),
  group: Type.String(),
  size: Type.Integer(),
  max_size: Type.Integer(),
  status: Type.Integer({
    minimum: 0,
    maximum: 6,
    description: '0 new, 1 creating, 2 update requested, 3 updating, 4 running, 5 failed, 6 deleting',
  }),
  msg: Type.String(),
  ready_count: Type.Integer(),
  resources: Type.Object({ requests: textMap, limits: textMap }),
  reuse: Type.Boolean(),
  image: Type.String(),
  init_image: Type.String(),
  labels: nullable(textMap),
  environment: nullable(textMap),
  volumes: Type.String(),
  volume_mounts: Type.String(),
  affinities: Type.String(),
  node_selector: nullable(textMap),
  runtime_class_name: Type.String(),
  tolerations: Type.String(),
  horizontal_pod_autoscaler_spec: Type.String(),
  topology_spread_constraints: Type.String(),
  pod_pending_duration_threshold: Type.Integer(),
  idle_recycle_time: Type.Object({ reserved: Type.Integer(), scaled: Type.Integer() }),
  scalable: Type.Boolean(),
  pod_anti_affinities: Type.String(),
});

const ok = { code: Type.Literal(0), message: Type.Literal('') };
const Created = Type.Object({ ...ok, result: Type.Object({ failed_pools: Type.Null() }), warnings: Warnings });
const CreateFailed = Type.Object({
  code: Type.Integer({ not: { const: 0 } }),
  message: Type.String({ description: 'Why, one sentence for each pool, joined by `;`.' }),
  result: optional(
    Type.Object({ failed_pools: Type.Array(Type.String(), { description: 'The others were created.' }) }),
  ),
  warnings: Warnings,
});

/** The OpenAPI documentation of pools. */
export const POOL_DOCS = {
  create: {
    tags,
    operationId: 'createPools',
    summary: 'Create pod pools, each on its own',
    description: `${WHO} Then \`image\` and \`init_image\` must be in \`pools.images\`.`,
    body: POOLS_CREATE.describe(),
    response: { 200: handled('They are created; their status tells how far.', Created, CreateFailed), ...WRONG_BODY },
  },
  list: {
    tags,
    operationId: 'listPools',
    summary: 'Query pod pools, newest change first',
    description:
      'Every role may query. With authentication on the values of `environment` are masked unless `pools.tenants` names the tenant.',
    querystring: describeParameters(POOLS_QUERY),
    response: {
      200: handled(
        'One page.',
        Type.Object({ ...ok, result: Type.Object({ count: Type.Integer(), pools: Type.Array(PoolRecord) }) }),
      ),
    },
  },
  update: {
    tags,
    operationId: 'updatePool',
    summary: 'Update the size of a pod pool',
    description: WHO,
    params: Type.Object({ id }),
    body: POOL_UPDATE.describe(),
    response: { 200: handled('The update is asked for.', Done), ...WRONG_BODY },
  },
  delete: {
    tags,
    operationId: 'deletePools',
    summary: 'Delete a pod pool, or the pools of a group',
    description: `One of \`id\` and \`group\` is needed; with both, a pool has to match both. ${WHO}`,
    querystring: describeParameters(POOLS_DELETE_QUERY),
    response: { 200: handled('They are deleted, or deleting.', Done), ...WRONG_BODY },
  },
} as const satisfies Record<string, RouteDocs>;
