import type {} from '@fastify/swagger';
import type { FastifyInstance } from 'fastify';
import type { EntryMetrics } from '../telemetry/metrics.ts';
import type {} from './route-config.ts';

/** Maps each component that is not ready to the reason. Empty: all are ready. */
export type Readiness = Readonly<Record<string, string>>;

export interface SystemRouteOptions {
  readonly ready: () => Readiness | Promise<Readiness>;
  readonly metrics: Pick<EntryMetrics, 'render'>;
  /** Returns true if a tenant may see the metrics of all tenants. null: every request may. */
  readonly seesAllMetrics: ((tenant: string) => boolean) | null;
}

const OK = { type: 'object', required: ['status'], properties: { status: { type: 'string' } } } as const;
const json = (description: string, schema: object) => ({ description, content: { 'application/json': { schema } } });

const tags = ['system'];
const DOCS = {
  health: { tags, operationId: 'health', summary: 'The listener is up', response: { 200: json('It is.', OK) } },
  ready: {
    tags,
    operationId: 'ready',
    summary: 'Every component is ready',
    response: {
      200: json('All are.', OK),
      503: json('The components that are not, each with why.', {
        type: 'object',
        required: ['code', 'message', 'components'],
        properties: {
          code: { type: 'integer' },
          message: { type: 'string' },
          components: { type: 'object', additionalProperties: { type: 'string' } },
        },
      }),
    },
  },
  metrics: {
    tags,
    operationId: 'metrics',
    summary: 'Metrics of this process in the Prometheus text format',
    response: {
      200: { description: 'The metrics.', content: { 'text/plain': { schema: { type: 'string' } } } },
    },
  },
  openapi: {
    tags,
    operationId: 'openapi',
    summary: 'This document',
    response: { 200: json('OpenAPI 3.1.', { type: 'object' }) },
  },
};

/** Adds the routes of every entry: `/healthz`, `/readyz`, `/metrics`, `/openapi.json`. */
export function addSystemRoutes(app: FastifyInstance, { ready, metrics, seesAllMetrics }: SystemRouteOptions): void {
  app.get(
    '/healthz',
    {
      config: {
        access: 'public',
        anyHost: true,
        servesWhileStarting: true,
        docs: DOCS.health,
      },
    },
    async () => ({ status: 'ok' }),
  );

  app.get(
    '/readyz',
    {
      config: {
        access: 'public',
        anyHost: true,
        servesWhileStarting: true,
        docs: DOCS.ready,
      },
    },
    async (_request, reply) => {
      const components = await ready();
      const names = Object.keys(components);
      if (names.length === 0) return { status: 'ok' };
      return reply.code(503).send({ code: 503, message: `not ready: ${names.join(', ')}`, components });
    },
  );

  app.get(
    '/metrics',
    {
      config: {
        access: 'read',
        anyHost: true,
        servesWhileStarting: true,
        docs: DOCS.metrics,
      },
    },
    async ({ tenant }, reply) => {
      const seesAll = seesAllMetrics === null || seesAllMetrics(tenant);
      const { contentType, body } = await metrics.render(seesAll ? null : tenant);
      return reply.type(contentType).send(body);
    },
  );

  app.get(
    '/openapi.json',
    {
      config: {
        access: 'read',
        noEnvironments: true,
        docs: DOCS.openapi,
      },
    },
    async () => app.swagger(),
  );
}
