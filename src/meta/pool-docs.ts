import { type TSchema, Type } from 'typebox';
import { LIMITS } from '../core/limits.ts';
import type { RouteDocs } from '../http/route-config.ts';
import { handled, WRONG_BODY } from './docs.ts';
import { Done, nullable, textMap } from './schemas.ts';

const tags = ['pool'];
const optional = <T extends TSchema>(schema: T) => Type.Optional(schema);
const count = Type.Integer({ minimum: 0, maximum: 2 ** 31 - 1 });
const idle = Type.Integer({ minimum: -1, description: 'Seconds; -1: never, 0: not configured.' });
const jsonText = (what: string) => Type.String({ description: `${what} as a JSON text.` });

const resources = Type.Object({
  requests: Type.Record(Type.String(), Type.String(), { description: 'cpu as `500m`, memory as `512Mi` or `1Gi`.' }),
  limits: Type.Record(Type.String(), Type.String()),
});
const id = Type.String({ pattern: '^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$' });
const hpa = jsonText('A HorizontalPodAutoscalerSpec');

const NewPool = Type.Object({
  id,
  group: optional(Type.String({ pattern: '^[a-zA-Z0-9]([-a-zA-Z0-9]{0,38}[a-zA-Z0-9])?$', default: 'default' })),
  reuse: optional(Type.Boolean()),
  size: optional(count),
  max_size: optional({ ...count, description: '0 or absent: the size.' }),
  image: optional(Type.String({ maxLength: 200 })),
  init_image: optional(Type.String({ maxLength: 200 })),
  labels: optional(textMap),
  environment: optional(textMap),
  volumes: optional(jsonText('An array of Volumes')),
  volume_mounts: optional(jsonText('An array of VolumeMounts')),
  resources,
  affinities: optional(jsonText('An Affinity')),
  node_selector: optional(textMap),
  runtime_class_name: optional(Type.String({ maxLength: 64 })),
  tolerations: optional(jsonText('An array of Tolerations')),
  horizontal_pod_autoscaler_spec: optional(hpa),
  topology_spread_constraints: optional(jsonText('An array of TopologySpreadConstraints')),
  pod_pending_duration_threshold: optional({ ...count, description: 'Seconds; 0: 120.' }),
  idle_recycle_time: optional(Type.Object({ reserved: optional(idle), scaled: optional(idle) })),
});

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
  resources,
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
const Created = Type.Object({ ...ok, result: Type.Object({ failed_pools: Type.Null() }) });
const CreateFailed = Type.Object({
  code: Type.Integer({ not: { const: 0 } }),
  message: Type.String({ description: 'Why, one sentence for each pool, joined by `;`.' }),
  result: optional(
    Type.Object({ failed_pools: Type.Array(Type.String(), { description: 'The others were created.' }) }),
  ),
});

/** What OpenAPI shows of the operations of pools. */
export const POOL_DOCS = {
  create: {
    tags,
    operationId: 'createPools',
    summary: 'Create pod pools, each on its own',
    body: Type.Object({ pools: Type.Array(NewPool, { minItems: 1 }) }),
    response: { 200: handled('They are created; their status tells how far.', Created, CreateFailed), ...WRONG_BODY },
  },
  list: {
    tags,
    operationId: 'listPools',
    summary: 'Query pod pools, newest change first',
    querystring: Type.Object({
      id: optional(Type.String({ description: 'Exact.' })),
      group: optional(Type.String({ description: 'Exact.' })),
      offset: optional(Type.Integer({ minimum: 0, default: 1, description: 'The page, from 1; 0 means 1.' })),
      limit: optional(Type.Integer({ minimum: 1, maximum: LIMITS.poolList.max, default: LIMITS.poolList.default })),
    }),
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
    params: Type.Object({ id }),
    body: Type.Object({
      size: optional(count),
      max_size: optional(count),
      horizontal_pod_autoscaler_spec: optional(hpa),
    }),
    response: { 200: handled('The update is asked for.', Done), ...WRONG_BODY },
  },
  delete: {
    tags,
    operationId: 'deletePools',
    summary: 'Delete a pod pool, or the pools of a group',
    description: 'One of `id` and `group` is needed; with both, a pool has to match both.',
    querystring: Type.Object({ id: optional(Type.String()), group: optional(Type.String()) }),
    response: { 200: handled('They are deleted, or deleting.', Done) },
  },
} as const satisfies Record<string, RouteDocs>;
