import type { FastifyInstance } from 'fastify';
import { type Static, Type } from 'typebox';
import { permissionDenied } from '../../core/error.ts';

const Node = Type.Object(
  {
    id: Type.String(),
    epoch: Type.Integer({ description: 'One more with each start, and after each time that it was counted as dead.' }),
    address: Type.String({ description: '`host:port` where other replicas reach this node. Empty: none does.' }),
    roles: Type.Array(Type.String(), { description: 'None: it is about to go.' }),
    version: Type.String(),
    joined_at: Type.String({ format: 'date-time' }),
    shards: Type.Integer({ description: 'How many of the shards of functions it owns.' }),
    leases: Type.Array(Type.String(), { description: '`jobs` (their queue and the schedules), `sweeper`.' }),
  },
  { title: 'ClusterNode' },
);

const owner = (description: string) => Type.Union([Type.String(), Type.Null()], { description });

const Status = Type.Object(
  {
    node_id: Type.String({ description: 'The replica that answers.' }),
    storage: Type.Union([Type.Literal('sqlite'), Type.Literal('postgres')], {
      description: '`sqlite`: embedded, and so there is one replica.',
    }),
    is_member: Type.Boolean({ description: 'False: it has lost its place and tries to get a new one.' }),
    heartbeat_age_ms: Type.Integer({ description: 'How long ago its last heartbeat reached the database.' }),
    feed_behind_ms: Type.Integer({ description: 'How far it may be behind the changes of others.' }),
    shards: Type.Object({ total: Type.Integer(), owned: Type.Integer() }),
    jobs: owner('The node that dispatches jobs and schedules. Null: no node at the moment.'),
    sweeper: owner('The node that cleans up once for all.'),
    nodes: Type.Array(Node, { description: 'Those that are alive, by id.' }),
  },
  { title: 'Cluster' },
);

export type ClusterStatus = Static<typeof Status>;

export interface ClusterRoutesOptions {
  status(): ClusterStatus;
  /** Tenants whose tokens see the cluster, as with the metrics of all tenants. null: every token does. */
  readonly visibleTo: readonly string[] | null;
}

/** Adds the route that lists the replicas with their leases, as known to the answering replica. */
export function addClusterRoute(app: FastifyInstance, { status, visibleTo }: ClusterRoutesOptions): void {
  app.get(
    '/api/cluster',
    {
      config: {
        access: 'read',
        noEnvironments: true,
        docs: {
          tags: ['cluster'],
          operationId: 'getCluster',
          summary: 'The replicas of this service',
          description: 'With authentication on only for tokens of the tenants that `metrics.tenants` names.',
          response: { 200: { description: 'They.', content: { 'application/json': { schema: Status } } } },
        },
      },
    },
    async ({ tenant }) => {
      if (visibleTo !== null && !visibleTo.includes(tenant)) {
        throw permissionDenied('the cluster is shown to the tenants of metrics.tenants only');
      }
      return status();
    },
  );
}
