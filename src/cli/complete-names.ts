import { Argument, type Command } from 'commander';
import { addClientOptions, Client, type ClientOptions } from './shared/client.ts';
import { readContexts } from './shared/contexts.ts';
import type { Context, Io } from './shared/io.ts';
import { NAMED_KINDS, type NamedKind } from './shared/named-kinds.ts';

/** The shell waits for the answer while it completes a word. */
const TIMEOUT_MS = 2000;
const MOST = 500;

/** Registers a command for completion scripts, which the help omits. */
export function register(program: Command, context: Context): void {
  const command = program
    .command('complete-names', { hidden: true })
    .description('Prints the names of one kind for completion scripts, one a line. Prints nothing when it fails.')
    .addArgument(new Argument('<kind>', 'what has the names').choices(NAMED_KINDS))
    .action(async (kind: NamedKind, options: ClientOptions) => {
      const names = await namesOf(context.io, kind, options).catch(() => []);
      for (const name of names) context.io.out.write(`${name}\n`);
    });
  addClientOptions(command);
}

async function namesOf(io: Io, kind: NamedKind, options: ClientOptions): Promise<readonly string[]> {
  if (kind === 'context') return Object.keys((await readContexts(io.environment)).servers);
  const client = await Client.open(options, io);
  const { path, entry, names } = LISTS[kind];
  return names(JSON.parse(await client.text('GET', path, { entry, timeoutMs: TIMEOUT_MS })) as never);
}

interface List {
  readonly path: string;
  readonly entry: 'frontend' | 'meta';
  /** Returns the names in an answer of `path`. */
  names(answer: never): readonly string[];
}

type WithName = readonly { readonly name: string }[];
type WithId = readonly { readonly id: string }[];

const LISTS: Readonly<Record<Exclude<NamedKind, 'context'>, List>> = {
  agent: {
    path: `/api/agent?namespace=default&limit=${MOST}`,
    entry: 'frontend',
    names: ({ instances }: { instances: WithName }) => instances.map(({ name }) => name),
  },
  function: {
    path: '/serverless/v1/functions?pageIndex=1&pageSize=100&versionNumber=latest',
    entry: 'meta',
    names: ({ result }: { result: { functions: WithName } }) => result.functions.map(({ name }) => name),
  },
  job: {
    path: '/api/jobs',
    entry: 'frontend',
    names: (jobs: readonly { submission_id: string }[]) => jobs.map(job => job.submission_id),
  },
  schedule: {
    path: '/api/job_schedules',
    entry: 'frontend',
    names: (schedules: WithId) => schedules.map(({ id }) => id),
  },
  pool: {
    path: '/serverless/v1/podpools?offset=1&limit=100',
    entry: 'meta',
    names: ({ result }: { result: { pools: WithId } }) => result.pools.map(({ id }) => id),
  },
  secret: {
    path: '/api/secrets',
    entry: 'frontend',
    names: ({ secrets }: { secrets: WithName }) => secrets.map(({ name }) => name),
  },
};
