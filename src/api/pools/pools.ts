import type { FastifyInstance, FastifyRequest } from 'fastify';
import { permissionDenied } from '../../core/error.ts';
import { MASK } from '../../core/mask.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import type { Pool } from '../../core/pool.ts';
import { POOL_UPDATE, POOLS_CREATE, readPoolUpdate } from '../../core/pool-fields.ts';
import { unknownFieldWarnings } from '../../core/unknown-fields.ts';
import { withWarnings } from '../../http/answer.ts';
import { wrongRequest } from '../../registry/errors.ts';
import { failedPools, type PoolRegistry } from '../../registry/pools.ts';
import { POOLS_DELETE_QUERY, POOLS_QUERY } from '../registry/queries.ts';
import { readNoFields, readObject, readRequest } from '../registry/requests.ts';
import { POOL_DOCS } from './pool-docs.ts';

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
