import { readdirSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The tests of a run. `quick` (`npm test`) has one cell of each matrix in full. `rest` has the tests that
 * `quick` omits, and `full` (`npm run test:full`) has both.
 */
export type Scope = 'quick' | 'rest' | 'full';

const TEST_ROOTS = ['clients/typescript/src', 'dashboard/src', 'scripts', 'src', 'test'];

/**
 * Environment variable that passes the scope from `scripts/test.ts` to Vitest and the tests; default `full`.
 */
export const SCOPE_VARIABLE = 'ROOKERY_TEST_SCOPE';

export function currentScope(): Scope {
  const scope = process.env[SCOPE_VARIABLE] ?? 'full';
  if (scope !== 'quick' && scope !== 'rest' && scope !== 'full') throw new Error(`there is no scope "${scope}"`);
  return scope;
}

/** Paths of files that only the full run has, relative to the root and grouped by matrix. */
export const LEFT_FOR_FULL: Readonly<Record<string, readonly string[]>> = {
  docker: [
    'test/e2b/image-templates.test.ts',
    'test/e2b/images.test.ts',
    'test/e2b/pods.test.ts',
    'test/e2e/docker-survival.test.ts',
    'test/e2e/image.test.ts',
    'test/parts/docker.test.ts',
    'test/sandbox/docker-access.test.ts',
    'test/sandbox/docker-accounts.test.ts',
    'test/sandbox/docker-custom-image.test.ts',
    'test/sandbox/docker-daemon.test.ts',
    'test/sandbox/docker-escape-files.test.ts',
    'test/sandbox/docker-escape.test.ts',
    'test/sandbox/docker-life.test.ts',
    'test/sandbox/docker-pull.test.ts',
    'test/sandbox/docker.test.ts',
    'test/sandbox/network-policy.test.ts',
  ],
  supervisor: [
    'test/sandbox/supervisor-access.test.ts',
    'test/sandbox/supervisor-escape-files.test.ts',
    'test/sandbox/supervisor-escape.test.ts',
    'test/sandbox/supervisor-life.test.ts',
    'test/sandbox/supervisor-processes.test.ts',
    'test/sandbox/supervisor.test.ts',
  ],
  kubernetes: [
    'test/e2e/kubernetes-ends.test.ts',
    'test/faults/api-server.test.ts',
    'test/faults/kubelet.test.ts',
    'test/jobs/kubernetes.test.ts',
    'test/kubernetes/chart-installation.test.ts',
    'test/kubernetes/chart-replicas.test.ts',
    'test/kubernetes/chart.test.ts',
    'test/kubernetes/doctor.test.ts',
    'test/kubernetes/requests.test.ts',
    'test/parts/kubernetes.test.ts',
    'test/pools/claims.test.ts',
    'test/pools/rules.test.ts',
    'test/runtimes/pod.test.ts',
    'test/sandbox/kubernetes-access.test.ts',
    'test/sandbox/kubernetes-account-files.test.ts',
    'test/sandbox/kubernetes-escape-files.test.ts',
    'test/sandbox/kubernetes-escape.test.ts',
    'test/sandbox/kubernetes-life.test.ts',
    'test/sandbox/kubernetes-pod.test.ts',
    'test/sandbox/kubernetes-watch.test.ts',
    'test/sandbox/kubernetes.test.ts',
  ],
  postgres: [
    'src/cluster/feed.test.ts',
    'src/cluster/lost-nodes.test.ts',
    'src/cluster/membership.test.ts',
    'src/cluster/shards.test.ts',
    'src/storage/queries/lost-nodes.test.ts',
    'src/storage/postgres/postgres-faults.test.ts',
    'src/storage/postgres/postgres-schema.test.ts',
    'test/e2e/cluster-history.test.ts',
    'test/e2e/code-replicas.test.ts',
    'test/e2e/events-replicas.test.ts',
    'test/e2e/replicas-database.test.ts',
    'test/jobs/postgres.test.ts',
    'test/lambda/replicas.test.ts',
    'test/mcp/replicas.test.ts',
    'test/parts/postgres.test.ts',
    'test/races/races.test.ts',
  ],
  e2b: [
    'test/e2b/charts.test.ts',
    'test/e2b/code-interpreter.test.ts',
    'test/e2b/commands.test.ts',
    'test/e2b/files.test.ts',
    'test/e2b/frameworks.test.ts',
    'test/e2b/javascript.test.ts',
    'test/e2b/old-clients.test.ts',
    'test/e2b/sandboxes.test.ts',
    'test/e2b/survival.test.ts',
    'test/e2b/templates.test.ts',
    'test/e2b/tenants.test.ts',
    'test/mcp/clients.test.ts',
  ],
  runtimes: [
    'test/e2e/go-durable-agents.test.ts',
    'test/e2e/java-durable-agents.test.ts',
    'test/e2e/node-versions.test.ts',
    'test/runtimes/go.test.ts',
    'test/runtimes/http.test.ts',
    'test/runtimes/java.test.ts',
  ],
  lambda: [
    'test/lambda/changes.test.ts',
    'test/lambda/frameworks.test.ts',
    'test/lambda/layers-drivers.test.ts',
    'test/lambda/layers.test.ts',
    'test/lambda/streams.test.ts',
  ],
  browser: [
    'test/e2e/dashboard-call.test.ts',
    'test/e2e/dashboard-copies.test.ts',
    'test/e2e/dashboard-events.test.ts',
    'test/e2e/dashboard-functions.test.ts',
    'test/e2e/dashboard-new-agent.test.ts',
    'test/e2e/dashboard.test.ts',
  ],
  engines: ['test/engines/client.test.ts'],
  'ordinary user': [
    'test/sandbox/ordinary-user.test.ts',
    'test/sandbox/user-limits.test.ts',
    'test/sandbox/user-network.test.ts',
  ],
  'long forms': [
    'test/e2e/agent-lifetimes.test.ts',
    'test/e2e/alarms.test.ts',
    'test/e2e/call-follow.test.ts',
    'test/e2e/call-recordings.test.ts',
    'test/e2e/call-replay.test.ts',
    'test/e2e/dependencies.test.ts',
    'test/e2e/durable-files.test.ts',
    'test/e2e/durable-updates.test.ts',
    'test/e2e/function-soak.test.ts',
    'test/e2e/history-disk.test.ts',
    'test/e2e/history.test.ts',
    'test/e2e/init-mcp.test.ts',
    'test/e2e/installed.test.ts',
    'test/e2e/long-times.test.ts',
    'test/e2e/replacements.test.ts',
    'test/e2e/replay-all.test.ts',
    'test/e2e/walk.test.ts',
    'test/fuzz/frames.test.ts',
    'test/fuzz/http-bridge.test.ts',
    'test/fuzz/passthrough.test.ts',
    'test/instances/every-step.test.ts',
    'test/instances/full-machine.test.ts',
    'test/jobs/bad-times.test.ts',
    'test/jobs/counts.test.ts',
    'test/jobs/crash.test.ts',
    'test/jobs/ray-client.test.ts',
    'test/openapi/documents.test.ts',
    'test/sandbox/zygote-end.test.ts',
  ],
};

/** Files that run in every scope and cover different items of an axis in each (`inScope`). */
const IN_EVERY_SCOPE: readonly string[] = [
  'test/docs/commands.test.ts',
  'test/runtimes/nodejs.test.ts',
  'test/runtimes/python-units.test.ts',
];

const FULL_ONLY = new Set(Object.values(LEFT_FOR_FULL).flat());

/** Returns true if a run of `scope` includes a test file. */
export function isInScope(file: string, scope: Scope): boolean {
  if (scope === 'full' || IN_EVERY_SCOPE.includes(file)) return true;
  return FULL_ONLY.has(file) === (scope === 'rest');
}

/** Returns the paths of all test files, relative to `root`. */
export function testFiles(root: string): readonly string[] {
  return TEST_ROOTS.flatMap(folder =>
    readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
      .filter(name => name.endsWith('.test.ts'))
      .map(name => join(folder, name)),
  );
}

/** Returns the paths of the test files that a run of `scope` leaves out, relative to `root`. */
export function filesOutside(scope: Scope, root: string): readonly string[] {
  return testFiles(root).filter(file => !isInScope(file, scope));
}

/**
 * Returns the items of a matrix axis that a scope covers. `items` begins with the oldest; `quick` covers both
 * ends.
 */
export function inScope<Item>(items: readonly Item[], scope: Scope): readonly Item[] {
  const isEnd = (index: number) => index === 0 || index === items.length - 1;
  if (scope === 'full') return items;
  return items.filter((_, index) => isEnd(index) === (scope === 'quick'));
}
