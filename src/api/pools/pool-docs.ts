import { type TSchema, Type } from 'typebox';
import { describeParameters } from '../../core/parameter.ts';
import { POOL_UPDATE, POOLS_CREATE } from '../../core/pool-fields.ts';
import { Warnings } from '../../http/docs.ts';
import type { RouteDocs } from '../../http/route-config.ts';
import { handled, WRONG_BODY } from '../registry/docs.ts';
import { POOLS_DELETE_QUERY, POOLS_QUERY } from '../registry/queries.ts';
import { Done, nullable, textMap } from '../registry/schemas.ts';

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
