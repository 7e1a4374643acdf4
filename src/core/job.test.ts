import { expect, test } from 'vitest';
import { type Job, jobRecord, readJobSubmission } from './job.ts';
import { readBody } from './json.ts';

const read = (body: unknown) => readJobSubmission(readBody(Buffer.from(JSON.stringify(body))), '');

function nested(levels: number): unknown {
  return levels === 0 ? 1 : { a: nested(levels - 1) };
}

test.each([
  ['a missing entrypoint', {}, 'invalid request body: entrypoint is required'],
  ['an entrypoint of a wrong type', { entrypoint: 5 }, 'invalid request body: entrypoint must be a string'],
  ['a metadata value of a wrong type', { entrypoint: '', metadata: { a: 1 } }, 'metadata.a must be a string'],
  ['a runtime_env of a wrong type', { entrypoint: '', runtime_env: [] }, 'runtime_env must be an object'],
  [
    'a negative number of processors',
    { entrypoint: '', entrypoint_num_cpus: -1 },
    'entrypoint_num_cpus must be between',
  ],
  ['an id that cannot stand in a path', { entrypoint: '', submission_id: 'a/b' }, 'submission_id must be 1 to 256'],
  ['an id that leads elsewhere', { entrypoint: '', submission_id: '..' }, 'submission_id must be 1 to 256'],
  ['a selector of labels', { entrypoint: '', entrypoint_label_selector: { a: 'b' } }, 'cannot be honoured'],
  [
    'an entrypoint longer than the kernel accepts',
    { entrypoint: 'x'.repeat(128_001) },
    'entrypoint must have at most 128000 bytes, got 128001',
  ],
  [
    'a runtime_env and metadata longer than a variable may be',
    { entrypoint: '', metadata: { a: 'x'.repeat(70_000) }, runtime_env: { env_vars: { A: 'x'.repeat(70_000) } } },
    'runtime_env and metadata, together and as JSON, must have at most 128000 bytes',
  ],
  ['a body that is nested too deeply', { entrypoint: '', zzz: nested(101) }, 'the body must not be nested deeper'],
  ['an unknown rule', { entrypoint: '', metadata: { 'rookery.retry': '1' } }, 'is not a rule of jobs'],
  ['a rule out of range', { entrypoint: '', metadata: { 'rookery.retries': '21' } }, 'a whole number from 0 to 20'],
])('a job with %s is refused with a message', (_what, body, sentence) => {
  expect(() => read(body)).toThrow(expect.objectContaining({ code: 'invalid_request' }));
  expect(() => read(body)).toThrow(sentence);
});

test('a body that is not JSON is refused with the message of the parser', () => {
  expect(() => readBody(Buffer.from('{'))).toThrow(/^invalid request body: /);
  expect(() => readBody(undefined)).toThrow(/^invalid request body: /);
});

test('nulls count as absent, unknown keys are ignored, and an empty entrypoint is accepted', () => {
  const { id, spec } = read({ entrypoint: '', submission_id: null, runtime_env: null, metadata: null, zzz: 1 });
  expect(id).toBeNull();
  expect(spec).toMatchObject({ entrypoint: '', metadata: {}, rawRuntimeEnv: {} });
});

test('resources are converted to millicores and MiB', () => {
  const { spec } = read({
    entrypoint: 'x',
    entrypoint_num_cpus: 0.5,
    entrypoint_memory: 1_500_000,
    entrypoint_num_gpus: 1,
    entrypoint_resources: { license: 2 },
  });
  expect(spec.resources).toEqual({ cpuMillis: 500, memoryMb: 2, gpus: 1, custom: { license: 2 } });
});

test('a custom resource may be named __proto__ or constructor', () => {
  const body = '{"entrypoint": "x", "entrypoint_resources": {"__proto__": 1, "constructor": 2}}';
  const { custom } = readJobSubmission(readBody(Buffer.from(body)), '').spec.resources;
  expect(Object.entries(custom)).toEqual([
    ['__proto__', 1],
    ['constructor', 2],
  ]);
});

test('retries, priority and timeout are read from the metadata', () => {
  const metadata = { 'rookery.retries': '3', 'rookery.priority': '-5', 'rookery.timeout_ms': '1000', owner: 'me' };
  expect(read({ entrypoint: 'x', metadata }).spec.rules).toEqual({
    retries: 3,
    retryDelayMs: 1000,
    timeoutMs: 1000,
    priority: -5,
  });
});

test('equal submissions have the same fingerprint when their keys have another order', () => {
  const one = read({ entrypoint: 'x', metadata: { a: '1', b: '2' }, submission_id: 'j' });
  const other = read({ submission_id: 'j', metadata: { b: '2', a: '1' }, entrypoint: 'x', runtime_env: {} });
  expect(one.fingerprint).toBe(other.fingerprint);
  expect(read({ entrypoint: 'y', metadata: { a: '1', b: '2' } }).fingerprint).not.toBe(one.fingerprint);
});

test('the record of a job has every field of the Job table before the job starts', () => {
  const job: Job = {
    sequence: 1,
    tenant: 't',
    id: 'j',
    spec: read({ entrypoint: 'x' }).spec,
    status: 'PENDING',
    message: 'Job has not started yet.',
    errorType: '',
    exitCode: null,
    attempt: 1,
    nodeId: 'n',
    instanceId: '',
    pid: '',
    submittedAtMs: 1_755_484_077_000,
    startedAtMs: null,
    endedAtMs: null,
  };
  expect(jobRecord(job)).toMatchObject({
    type: 'SUBMISSION',
    job_id: null,
    submission_id: 'j',
    driver_info: { id: '', node_ip_address: '', pid: '' },
    status: 'PENDING',
    entrypoint: 'x',
    message: 'Job has not started yet.',
    error_type: '',
    start_time: '1755484077000',
    end_time: null,
    metadata: {},
    runtime_env: {},
    driver_agent_http_address: '',
    driver_node_id: '',
    driver_exit_code: null,
  });
});
