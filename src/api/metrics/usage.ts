import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import { describeParameters, type ParametersOf, readParameters, type Sent } from '../../core/parameter.ts';
import type { UsageKind } from '../../telemetry/call-counts.ts';
import type { UsageOfNodes } from '../../telemetry/usage.ts';
import { badQuery, parsed, required } from '../query.ts';

export interface UsageRoutesOptions {
  readonly usage: Pick<UsageOfNodes, 'read'>;
}

const known = (description: string) => Type.Union([Type.Number(), Type.Null()], { description });

const Usage = Type.Object(
  {
    usage: Type.Record(
      Type.String(),
      Type.Object({
        calls: Type.Integer({ description: 'Calls that ended in the last 55 to 60 minutes.' }),
        errors: Type.Integer({ description: 'Those of them that failed.' }),
        p99_ms: known('Null without calls.'),
        cpu_millis: known('Thousandths of a processor, between the two newest readings. Null: unknown.'),
        memory_mb: known('Memory at the newest reading. Null: unknown.'),
        instances: Type.Optional(Type.Integer({ description: 'Only of a function: its running instances.' })),
      }),
      { description: 'By the id of an agent, or the name of a function. Without calls and readings it is absent.' },
    ),
    nodes: Type.Array(Type.String(), { description: 'The replicas whose numbers are included.' }),
    silent_nodes: Type.Array(Type.String(), { description: 'Replicas that live and did not answer.' }),
  },
  { title: 'Usage' },
);

const KINDS: Readonly<Record<string, UsageKind>> = { agents: 'agent', functions: 'function' };

const USAGE_QUERY = {
  of: required(
    parsed<UsageKind | undefined>({ enum: Object.keys(KINDS) }, undefined, (text, name) => {
      const kind = Object.hasOwn(KINDS, text) ? KINDS[text] : undefined;
      if (kind === undefined) throw badQuery(name, `one of ${Object.keys(KINDS).join(', ')}`, text);
      return kind;
    }),
  ),
};

/** Adds `GET /api/metrics/usage`, which answers for all agents or functions of the tenant at once. */
export function addUsageRoute(app: FastifyInstance, { usage }: UsageRoutesOptions): void {
  app.get<{ Querystring: Sent }>(
    '/api/metrics/usage',
    {
      config: {
        access: 'read',
        noEnvironments: true,
        docs: {
          tags: ['metrics'],
          operationId: 'getUsage',
          summary: 'Calls, errors, p99, CPU and memory of all agents, or of all functions',
          description:
            'Calls of about the last hour, since the start of each replica. Replicas read CPU and memory of their sandboxes every 10 seconds, or less often above 64 sandboxes. Of several replicas the sums, and of p99 the highest.',
          querystring: describeParameters(USAGE_QUERY),
          response: {
            200: { description: 'The usage.', content: { 'application/json': { schema: Usage } } },
          },
        },
      },
    },
    async ({ tenant, query }) => {
      const { of } = readParameters<ParametersOf<typeof USAGE_QUERY>>(USAGE_QUERY, query);
      return await usage.read(of, tenant);
    },
  );
}
