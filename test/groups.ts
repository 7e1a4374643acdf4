/** A group of test files that prove one thing together; `npm test` prints one line for each group. */
export interface Group {
  readonly name: string;
  /** Subject that a passing group proves, for its line in the output. */
  readonly proves: string;
  readonly files: RegExp;
}

/**
 * Groups in the order in which they run, slow ones first. A file belongs to the first pattern that matches.
 */
export const GROUPS: readonly Group[] = [
  { name: 'documents', proves: 'the commands and claims of the pages', files: /^test\/docs\// },
  {
    name: 'kubernetes',
    proves: 'pods, pools, chart, jobs as Jobs',
    files: /kubernetes|^(src|test)\/pools\/|^test\/faults\//,
  },
  { name: 'docker', proves: 'containers: start, access, escape attempts', files: /docker|e2e\/image/ },
  { name: 'supervisor', proves: 'programs of supervisord: start, access, escape attempts', files: /supervisor/ },
  {
    name: 'replicas',
    proves: 'PostgreSQL, leases, forwarding, takeover',
    files: /^src\/cluster\/|replicas|postgres|cluster-|test\/(parts\/replica|races|http\/cluster)/,
  },
  { name: 'runtimes', proves: 'Python, Node.js, Go, Java, HTTP programs', files: /^test\/runtimes\/|e2e\/.*runtime/ },
  {
    name: 'sandboxes',
    proves: 'isolation, limits, files, terminals, networks, escape attempts',
    files: /^(src|test)\/sandbox\/|e2e\/(agent-io|agent-ports|host-paths|leftovers|installed)/,
  },
  {
    name: 'agents',
    proves: 'create, invoke, restart, delete, survive crashes',
    files: /^(src|test)\/(agents|instances|runtime)\/|e2e\/(agent|registered|secrets|start|uncaught|long-times)/,
  },
  {
    name: 'functions',
    proves: 'versions, scaling, sessions, streams, asynchronous calls',
    files: /^(src|test)\/(functions|registry|meta)\/|^src\/(code|api\/(pools|registry))\/|e2e\/(function|code)/,
  },
  { name: 'e2b', proves: 'the E2B SDKs, unmodified', files: /^(src\/api|test)\/(e2b|envd)\// },
  { name: 'jobs', proves: 'queue, retries, schedules, Ray client', files: /^(src|test)\/jobs\// },
  { name: 'builds', proves: 'dependencies of code, environments of jobs', files: /^src\/builds\/|e2e\/dependencies/ },
  {
    name: 'storage',
    proves: 'durable writes, migrations, recovery, full disks',
    files: /^src\/(data-dir|object-store|storage)\/|^test\/(suites|history|fuzz|soak)\/|e2e\/history/,
  },
  {
    name: 'http',
    proves: 'routes, limits, tokens, addresses, OpenAPI',
    files: /^(src|test)\/(api|http|openapi)\/|e2e\/(viewer|serve|traces)/,
  },
  { name: 'events', proves: 'the event log and its readers', files: /^src\/events\/|e2e\/events/ },
  { name: 'dashboard', proves: 'pages, charts, views in a browser', files: /^dashboard\/|e2e\/dashboard/ },
  {
    name: 'clients',
    proves: 'command line, deploy, Python and TypeScript clients',
    files: /^(src|test)\/cli\/|^clients\/|e2e\/(client|deploy|walk)|^test\/engines\//,
  },
  { name: 'rules', proves: 'requests, settings, errors, metrics', files: /^src\/(core|config|lib|telemetry)\// },
  { name: 'project', proves: 'scripts, composition, the parts of the tests', files: /./ },
];

/** Returns the group of a test file; `path` is relative to the root of the repository. */
export function groupOf(path: string): Group {
  const group = GROUPS.find(({ files }) => files.test(path));
  if (group === undefined) throw new Error(`no group has ${path}`);
  return group;
}
