import type { Command } from 'commander';
import { age } from '../../lib/age.ts';
import { addClientOptions, Client, type ClientOptions } from '../shared/client.ts';
import type { Context, Io } from '../shared/io.ts';
import { printFields, printJson, printTable } from '../shared/print.ts';

/** The fields of the answer of `GET /api/cluster` that are shown. */
interface ClusterStatus {
  readonly node_id: string;
  readonly storage: 'sqlite' | 'postgres';
  readonly is_member: boolean;
  readonly heartbeat_age_ms: number;
  readonly feed_behind_ms: number;
  readonly shards: { readonly total: number; readonly owned: number };
  readonly jobs: string | null;
  readonly nodes: readonly Node[];
}

interface Node {
  readonly id: string;
  readonly address: string;
  readonly roles: readonly string[];
  readonly version: string;
  readonly joined_at: string;
  readonly shards: number;
  readonly leases: readonly string[];
}

/** Adds the command `rookery cluster`, which shows the replicas of a service. */
export function register(program: Command, context: Context): void {
  const cluster = program
    .command('cluster')
    .summary('look at the replicas of the service')
    .description('The replicas of a service over PostgreSQL.');
  addClientOptions(cluster.command('status'))
    .summary('show which replicas there are and who owns what')
    .description('Shows the live replicas, their roles, versions and leases, and how far the answering one is behind.')
    .option('--json', 'print JSON')
    .action(async options => showStatus(context.io, options));
}

async function showStatus(io: Io, options: ClientOptions & { readonly json?: boolean }): Promise<void> {
  const client = await Client.open(options, io);
  const text = await client.text('GET', '/api/cluster');
  const status = JSON.parse(text) as ClusterStatus;
  if (options.json === true) {
    printJson(io, status);
    return;
  }
  if (status.storage === 'sqlite') io.out.write('One node with embedded storage.\n');
  else {
    const { total, owned } = status.shards;
    printFields(io, [
      ['answered by', answeredBy(status)],
      ['shards', owned === total ? `all ${total} are owned` : `${owned} of ${total} are owned`],
      ['jobs', status.jobs ?? 'no node dispatches them at the moment'],
      ['feed', `${status.feed_behind_ms} ms behind`],
    ]);
  }
  io.out.write('\n');
  printTable(io, COLUMNS, status.nodes);
}

/**
 * Returns the id of the answering node. A node that is no member receives no news of the others, so the text
 * says how old its data is.
 */
function answeredBy({ node_id: id, is_member: isMember, heartbeat_age_ms: ageMs }: ClusterStatus): string {
  if (isMember) return id;
  const seconds = Math.round(ageMs / 1000);
  return `${id}, which has lost its place in the cluster: the rest is what it knew ${seconds} s ago`;
}

const COLUMNS = [
  { title: 'NODE', text: (node: Node) => node.id },
  { title: 'ADDRESS', text: ({ address }: Node) => (address === '' ? '-' : address) },
  { title: 'ROLES', text: ({ roles }: Node) => (roles.length === 0 ? 'leaving' : roles.join(',')) },
  { title: 'VERSION', text: (node: Node) => node.version },
  { title: 'SHARDS', text: (node: Node) => String(node.shards) },
  { title: 'LEASES', text: ({ leases }: Node) => (leases.length === 0 ? '-' : leases.join(',')) },
  { title: 'AGE', text: (node: Node) => age(node.joined_at) },
];
