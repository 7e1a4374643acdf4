import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import type { AgentInstances } from '../../agents/contract.ts';
import { invalidRequest, notFound, permissionDenied } from '../../core/error.ts';
import { describeParameters, type ParametersOf, readParameters, type Sent } from '../../core/parameter.ts';
import { errorDocs } from '../../http/docs.ts';
import { functionKey } from '../../telemetry/function-metrics.ts';
import type { HistoryOfNodes, HistorySubject } from '../../telemetry/history.ts';
import { type HistoryRange, RANGES } from '../../telemetry/series-history.ts';
import { anyText, badQuery, parsed } from '../query.ts';

export interface HistoryRoutesOptions {
  readonly history: Pick<HistoryOfNodes, 'read'>;
  /** Tenants whose tokens see the metrics of the whole service. null: every token does. */
  readonly visibleTo: readonly string[] | null;
}

const History = Type.Object(
  {
    step_seconds: Type.Integer({ description: 'Between two points.' }),
    start: Type.Integer({ description: 'When the step of the first point began, seconds since 1970.' }),
    series: Type.Record(Type.String(), Type.Array(Type.Union([Type.Number(), Type.Null()])), {
      description:
        'A list of points for each name, the oldest first; null: not known. `calls` and `errors` of each step, `p50_ms` and `p99_ms` of its calls; of a function also `instances` and `instances_ready`; of the service also levels: CPU, memory, instances, open calls, jobs. Of several replicas sums, and of percentiles the highest.',
    }),
    nodes: Type.Array(Type.String(), { description: 'The replicas whose numbers are in it.' }),
    silent_nodes: Type.Array(Type.String(), {
      description: 'Replicas that live and did not answer: their numbers are missing.',
    }),
  },
  { title: 'MetricsHistory' },
);

const HISTORY_QUERY = {
  range: parsed<HistoryRange>({ enum: RANGES, default: '1h' }, '1h', (text, name) => {
    const range = RANGES.find(known => known === text);
    if (range === undefined) throw badQuery(name, `one of ${RANGES.join(', ')}`, text);
    return range;
  }),
  agent: anyText({ description: 'The id of an agent: its calls.' }),
  function: anyText({ description: 'The name of a function: its calls, all versions together.' }),
  node: anyText({ description: 'The id of a replica: its part of the numbers. Default: all of them together.' }),
};

/** Adds `GET /api/metrics/history`, which needs no other service to store past metrics. */
export function addHistoryRoute(
  app: FastifyInstance,
  {
    history: historyOf,
    visibleTo,
    instances,
  }: HistoryRoutesOptions & { readonly instances: Pick<AgentInstances, 'get'> },
): void {
  app.get<{ Querystring: Sent }>(
    '/api/metrics/history',
    {
      config: {
        access: 'read',
        noEnvironments: true,
        docs: {
          tags: ['metrics'],
          operationId: 'getMetricsHistory',
          summary: 'The last 15 minutes, hour, 6 or 24 hours of metrics',
          description:
            'Of the replicas that live, each since its start: steps of 10 seconds; of 2 minutes for `6h`, of 5 minutes for `24h`. Without `agent` and `function` the numbers of the whole service; with authentication on only for tokens of the tenants that `metrics.tenants` names.',
          querystring: describeParameters(HISTORY_QUERY),
          response: {
            200: { description: 'They.', content: { 'application/json': { schema: History } } },
            404: errorDocs('`instance not found: <id>`, `node not found: <id>`'),
          },
        },
      },
    },
    async ({ tenant, query }) => {
      const asked = readParameters<ParametersOf<typeof HISTORY_QUERY>>(HISTORY_QUERY, query);
      const { range, agent, function: name, node = null } = asked;
      if (agent !== undefined && name !== undefined) throw invalidRequest('invalid query: agent or function, not both');
      let subject: HistorySubject = null;
      if (agent !== undefined) {
        // Fails with `not_found` for an agent of another tenant.
        await instances.get(tenant, agent);
        subject = { kind: 'agent', key: agent };
      } else if (name !== undefined) subject = { kind: 'function', key: functionKey(tenant, name) };
      else if (visibleTo !== null && !visibleTo.includes(tenant)) {
        throw permissionDenied('the numbers of the service are shown to the tenants of metrics.tenants only');
      }
      const history = await historyOf.read(subject, range, node);
      if (history === null) throw notFound(`node not found: ${node}`);
      return history;
    },
  );
}
