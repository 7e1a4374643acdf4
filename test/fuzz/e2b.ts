import { readSignedUrl } from '../../src/api/e2b/sandboxes.ts';
import * as requests from '../../src/core/e2b.ts';
import * as templates from '../../src/core/e2b-templates.ts';
import { ServiceError } from '../../src/core/error.ts';
import { type JsonObject, readBody } from '../../src/core/json.ts';
import { Random } from '../parts/random.ts';
import type { Fuzzer } from './fuzzer.ts';

/** Readers of bodies of the control API, by name. */
const BODIES: Readonly<Record<string, (body: JsonObject) => unknown>> = {
  create: requests.readE2bCreate,
  connect: requests.readE2bConnect,
  timeout: requests.readE2bTimeout,
  refresh: requests.readE2bRefresh,
  fork: requests.readE2bFork,
  pause: requests.checkE2bPause,
  templateBegin: templates.readTemplateBegin,
  templateStart: templates.readTemplateStart,
  tagAssign: templates.readTagAssign,
  tagDrop: templates.readTagDrop,
  snapshot: templates.readSnapshot,
};
/** Readers of queries, by name. */
const QUERIES: Readonly<Record<string, (query: URLSearchParams) => unknown>> = {
  list: requests.readE2bList,
  seconds: query => requests.readE2bSeconds('limit', query),
  snapshots: templates.readSnapshotList,
  signedUrl: query => readSignedUrl(query, 'read'),
};

const TEXTS = [
  '',
  'base',
  'a:b',
  ':',
  '::',
  'team/x:default',
  '__proto__',
  '\u0000',
  '\ud800',
  'x'.repeat(5000),
  '%',
  '%2',
];
const VALUES: readonly unknown[] = [
  ...TEXTS,
  null,
  true,
  false,
  0,
  1,
  -1,
  1.5,
  1e308,
  21,
  [],
  {},
  [''],
  [null],
  { a: 'b' },
];
const FIELDS = [
  ...[
    'templateID',
    'timeout',
    'metadata',
    'envVars',
    'autoPause',
    'autoPauseMemory',
    'autoResume',
    'network',
    'mcp',
    'iam',
  ],
  ...[
    'volumeMounts',
    'count',
    'memory',
    'duration',
    'name',
    'alias',
    'tags',
    'target',
    'cpuCount',
    'memoryMB',
    'fromImage',
  ],
  ...['fromTemplate', 'steps', 'type', 'args', 'filesHash', 'startCmd', 'readyCmd', 'enabled', 'allowPublicTraffic'],
];
const STEP_TYPES = ['COPY', 'RUN', 'WORKDIR', 'USER', 'ENV', 'X'];
const PARAMETERS = [
  'metadata',
  'state',
  'order',
  'limit',
  'nextToken',
  'startedAfter',
  'template',
  'name',
  'signature',
  'path',
];
const PARAMETER_VALUES = [
  ...['running,paused', 'asc', '1', '100', '101', '-1', '1e9', 'a%3Db%252520c', '%25', '2026-11-30T00:00:00+01:00'],
  ...['2026-99-99T99:99:99Z', '9'.repeat(400), 'a%3Db%26__proto__%3Dc', 'v1_', '+', '%E2%82', ''],
];

/** Passes hostile bodies and queries to the readers of E2B's control API, which refuse or understand them. */
export const fuzzE2b: Fuzzer = async ({ seed, maxIterations, maxSeconds }) => {
  const faults: string[] = [];
  const counts = { read: 0, refused: 0 };
  const endMs = performance.now() + maxSeconds * 1000;
  let iterations = 0;
  while (iterations < maxIterations && performance.now() < endMs && faults.length < 20) {
    const own = seed + iterations++;
    const random = new Random(own);
    const isBody = random.chance(0.7);
    const name = random.pick(Object.keys(isBody ? BODIES : QUERIES));
    try {
      if (isBody) BODIES[name]?.(readBody(mutated(random, Buffer.from(JSON.stringify(bodyOf(random, 0))))));
      else QUERIES[name]?.(new URLSearchParams(queryOf(random)));
      counts.read += 1;
    } catch (error) {
      if (error instanceof ServiceError && error.code === 'invalid_request') counts.refused += 1;
      else faults.push(`seed ${own}: ${name}: ${error instanceof Error ? error.stack : String(error)}`);
    }
  }
  if (Object.keys(Object.prototype).length > 0) faults.push('the prototype of objects has changed');
  return { iterations, faults, counts };
};

/** Returns a body that is often correct, with fields of wrong types. */
function bodyOf(random: Random, depth: number): object {
  const body: Record<string, unknown> = {};
  if (depth === 0 && random.chance(0.6)) {
    Object.assign(body, { templateID: 'base', timeout: 60, target: 'a', name: 'a', tags: ['b'], memory: false });
    if (random.chance(0.5)) {
      body.steps = [{ type: random.pick(STEP_TYPES), args: [random.pick(TEXTS), 'b'], filesHash: 'a'.repeat(64) }];
    }
  }
  for (let count = random.below(4); count > 0; count--) {
    const isDeep = depth < 3 && random.chance(0.3);
    body[random.pick(FIELDS)] = isDeep ? bodyOf(random, depth + 1) : random.pick(VALUES);
  }
  return body;
}

function queryOf(random: Random): string {
  const pairs: string[] = [];
  for (let count = random.below(5); count > 0; count--) {
    pairs.push(`${random.pick(PARAMETERS)}=${random.pick(PARAMETER_VALUES)}`);
  }
  return mutated(random, Buffer.from(pairs.join('&'))).toString('latin1');
}

/** Changes or cuts off some bytes, in a fifth of all cases. */
function mutated(random: Random, bytes: Buffer): Buffer {
  if (bytes.length === 0 || random.chance(0.8)) return bytes;
  const at = random.below(bytes.length);
  if (random.chance(0.5)) return bytes.subarray(0, at);
  return Buffer.concat([bytes.subarray(0, at), random.bytes(1), bytes.subarray(at + 1)]);
}
