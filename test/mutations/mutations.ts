/** A fault that `npm run mutations` inserts to check that the tests of `npm test` find it. */
export interface Mutation {
  readonly fault: string;
  readonly file: string;
  /** Text that occurs exactly once in the file. */
  readonly find: string;
  readonly replace: string;
  /** Tests that should find the fault: paths, or parts of paths, of files that `npm test` runs. */
  readonly tests: readonly string[];
}

export const MUTATIONS: readonly Mutation[] = [
  {
    fault: 'a lost row: an agent whose row was refused counts as written',
    file: 'src/storage/queries/instances.ts',
    find: 'return inserted.length === 1;',
    replace: 'return inserted.length < 2;',
    tests: ['test/agents', 'src/storage/stores.test.ts'],
  },
  {
    fault: 'a missing fence: a replica writes under a lease that it has lost',
    file: 'src/storage/queries/leases.ts',
    find: 'if (row === undefined) throw fenced(',
    replace: 'if (row === undefined && held.epoch < 0) throw fenced(',
    tests: ['src/cluster/fence.test.ts'],
  },
  {
    fault: 'an unescaped path: `..` in a host path is accepted',
    file: 'src/core/host-path.ts',
    find: "path.includes('..') || ",
    replace: '',
    tests: ['src/core/host-path.test.ts', 'src/core'],
  },
  {
    fault: 'a call that hangs: a closed connection does not fail its calls',
    file: 'src/runtime/channel.ts',
    find: 'for (const pending of this.#pending.removeAll()) pending.fail(error);',
    replace: 'this.#pending.removeAll();',
    tests: ['src/runtime'],
  },
  {
    fault: 'a leaked group: the control groups of a sandbox stay',
    file: 'src/sandbox/host/host-driver.ts',
    find: 'emptied.then(() => removeGroups(groups))',
    replace: 'emptied.then(() => groups !== null)',
    tests: ['test/sandbox/process-life.test.ts'],
  },
  {
    fault: 'a wrong code: a handler that raises is answered with 4003',
    file: 'src/core/codes.ts',
    find: '    4002,',
    replace: '    4003,',
    tests: ['src/core', 'test/runtimes', 'test/agents'],
  },
  {
    fault: 'a swallowed error: a failed write of a group is answered as written',
    file: 'src/storage/writes/durable.ts',
    find: "if ('error' in outcome) fail(outcome.error);",
    replace: "if ('error' in outcome) done(undefined);",
    tests: ['src/storage'],
  },
  {
    fault: 'an off-by-one in paging: the last agent of a page is missing',
    file: 'src/agents/agent-records.ts',
    find: 'found.slice(0, limit)',
    replace: 'found.slice(0, limit - 1)',
    tests: ['test/agents'],
  },
  {
    fault: 'a wrong tenant: the agent of another tenant is found',
    file: 'src/agents/agent-records.ts',
    find: 'if (record === null || record.tenant !== tenant) throw',
    replace: 'if (record === null) throw',
    tests: ['test/agents'],
  },
  {
    fault: 'a missing bound: a body in chunks may be larger than its limit',
    file: 'src/http/limits/bodies.ts',
    find: 'if (body.bytes + length > body.maxBytes) {',
    replace: 'if (length > body.maxBytes) {',
    tests: ['src/http/limits/bodies.test.ts'],
  },
  {
    fault: 'a broken migration: a column of restarts is missing',
    file: 'src/storage/migrations/0012-restart-policy.ts',
    find: ".addColumn('restart_at_ms', 'bigint'",
    replace: ".addColumn('restart_at', 'bigint'",
    tests: ['src/storage', 'test/agents'],
  },
  {
    fault: 'an unflushed write: a write is answered before the disk has it',
    file: 'src/storage/writes/durable.ts',
    find: '      await this.#flushed();',
    replace: '      void this.#flushed().catch(noop);',
    tests: ['src/storage/writes/durable.test.ts'],
  },
];
