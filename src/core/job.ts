import { invalidRequest } from './error.ts';
import { failAtFirst, invalidBody } from './json.ts';
import { type Kind, number, record, refine, text } from './kind.ts';
import { LIMITS } from './limits.ts';
import { isTooDeep } from './problem.ts';
import { RUNTIME_ENV, type RuntimeEnv, readRuntimeEnv } from './runtime-env.ts';
import { Form, maybe, object, optional, required, type ValueOf } from './shape.ts';
import { MEBIBYTE } from './units.ts';

/** The words of the Ray Jobs API, whose client refuses any other. */
export const JOB_STATUSES = ['PENDING', 'RUNNING', 'STOPPED', 'SUCCEEDED', 'FAILED'] as const;
export type JobStatus = (typeof JOB_STATUSES)[number];

/** Ray's words for the kind of failure; `''`: no failure. */
export type JobErrorType =
  | ''
  | 'JOB_ENTRYPOINT_COMMAND_ERROR'
  | 'RUNTIME_ENV_SETUP_FAILURE'
  | 'JOB_SUPERVISOR_ACTOR_START_FAILURE'
  | 'JOB_SUPERVISOR_ACTOR_DIED';

/** The resources that a job requests; 0: none of that kind. */
export interface JobResources {
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly gpus: number;
  readonly custom: Readonly<Record<string, number>>;
}

/** A checked submission. */
export interface JobSpec {
  readonly entrypoint: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** The unchecked `runtime_env`, for the record. */
  readonly rawRuntimeEnv: Readonly<Record<string, unknown>>;
  readonly runtimeEnv: RuntimeEnv;
  readonly resources: JobResources;
  readonly rules: JobRules;
}

/** Rules that metadata keys set; these keys begin with `rookery.`. */
export interface JobRules {
  /** Number of further runs after failures. */
  readonly retries: number;
  /** Delay before the first retry; each further retry doubles the delay. */
  readonly retryDelayMs: number;
  /** Longest duration of a run; 0: no bound. */
  readonly timeoutMs: number;
  /** The tenant's jobs with higher values start first. */
  readonly priority: number;
}

/** A job as all components except its runner see it. */
export interface Job {
  /** Unique number that orders jobs by submission. */
  readonly sequence: number;
  readonly tenant: string;
  readonly id: string;
  readonly spec: JobSpec;
  readonly status: JobStatus;
  readonly message: string;
  readonly errorType: JobErrorType;
  readonly exitCode: number | null;
  /** Starts at 1. */
  readonly attempt: number;
  readonly nodeId: string;
  /** `''` before the start. */
  readonly instanceId: string;
  readonly pid: string;
  readonly submittedAtMs: number;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
}

export interface JobSubmission {
  /** Null: the service chooses an id. */
  readonly id: string | null;
  readonly spec: JobSpec;
  /** Equal for bodies with equal meaning, whatever the order of their keys. */
  readonly fingerprint: string;
}

/** Ids use characters that a URL allows unescaped, because Ray's client does not escape ids. */
const JOB_ID = /^[A-Za-z0-9_~][A-Za-z0-9._~:@+=,-]{0,255}$/;
const RULE_PREFIX = 'rookery.';
const RULES: Readonly<Record<string, { readonly name: keyof JobRules; readonly min: number; readonly max: number }>> = {
  'rookery.retries': { name: 'retries', min: 0, max: 20 },
  'rookery.retry_delay_ms': { name: 'retryDelayMs', min: 0, max: 3_600_000 },
  'rookery.timeout_ms': { name: 'timeoutMs', min: 1, max: 2_000_000_000 },
  'rookery.priority': { name: 'priority', min: -1000, max: 1000 },
};
const DEFAULT_RULES: JobRules = { retries: 0, retryDelayMs: 1000, timeoutMs: 0, priority: 0 };
const MAX_AMOUNT = 1_000_000;

const amount = number({ min: 0, max: MAX_AMOUNT });

const overlap: Kind<'skip' | 'allow'> = {
  ...refine(text() as Kind<'skip' | 'allow'>, (value, path, problem) => {
    if (value !== 'skip' && value !== 'allow') problem(path, 'must be skip or allow');
  }),
  describe: () => ({ enum: ['skip', 'allow'] }),
};

const SUBMIT_FIELDS = {
  entrypoint: required(text(), 'One line for `/bin/sh -c`.'),
  job_id: maybe(text(), 'An older name of `submission_id`, which wins.'),
  submission_id: maybe(text(), { pattern: JOB_ID.source, description: 'Made up when absent.' }),
  metadata: optional(record(text()), {}),
  runtime_env: optional(RUNTIME_ENV, {}),
  entrypoint_label_selector: optional(
    record(text()),
    {},
    {
      maxProperties: 0,
      description: 'Machines have no labels.',
    },
  ),
  entrypoint_memory: optional(number({ min: 0, max: Number.MAX_SAFE_INTEGER }), 0, 'Bytes.'),
  entrypoint_resources: optional(record(amount, {}, 0), {}),
  entrypoint_num_cpus: optional(amount, 0),
  entrypoint_num_gpus: optional(amount, 0),
};

/** The body of a submit. */
export const JOB_SUBMIT = object<ValueOf<typeof SUBMIT_FIELDS>>(SUBMIT_FIELDS, { schema: { title: 'JobSubmit' } });

const MAX_SCHEDULE_ID_CHARS = 200;

const SCHEDULE_FIELDS = {
  schedule_id: maybe(text(), { maxLength: MAX_SCHEDULE_ID_CHARS, pattern: JOB_ID.source }),
  cron: required(text({ required: true }), 'Five or six fields.'),
  timezone: optional(text(), 'UTC'),
  overlap: optional(overlap, 'skip'),
  job: required(JOB_SUBMIT),
};

/** The body of a schedule, which submits a job at set times. */
export const JOB_SCHEDULE = object<ValueOf<typeof SCHEDULE_FIELDS>>(SCHEDULE_FIELDS);

/**
 * Reads a submission from a body, or from the part of a body at `path`. Fails with `invalid_request` and one
 * plain sentence.
 */
export function readJobSubmission(value: unknown, path: string): JobSubmission {
  const form = new Form(JOB_SUBMIT, value, path, failAtFirst);
  if (isTooDeep(value, LIMITS.jobNesting)) {
    throw invalidBody(`${path || 'the body'} must not be nested deeper than ${LIMITS.jobNesting} levels`);
  }
  const { entrypoint } = form.read('entrypoint');
  checkSize(entrypoint, LIMITS.jobEntrypointBytes, form.at('entrypoint'));
  const { job_id, submission_id } = form.read('job_id', 'submission_id');
  const id = submission_id ?? job_id ?? null;
  if (id !== null) checkJobId(id, form.at('submission_id'));
  const { metadata, runtime_env } = form.read('metadata', 'runtime_env');
  const both = `${form.at('runtime_env')} and ${form.at('metadata')}, together and as JSON,`;
  checkSize(JSON.stringify([runtime_env, metadata]), LIMITS.jobSettingsBytes, both);
  const { entrypoint_label_selector } = form.read('entrypoint_label_selector');
  refuseSelector(entrypoint_label_selector, form.at('entrypoint_label_selector'));
  const spec: JobSpec = {
    entrypoint,
    metadata,
    rawRuntimeEnv: runtime_env,
    runtimeEnv: readRuntimeEnv(runtime_env, form.at('runtime_env')),
    resources: readResources(form),
    rules: readRules(metadata, form.at('metadata')),
  };
  const fingerprint = canonical([entrypoint, metadata, runtime_env, spec.resources]);
  return { id, spec, fingerprint };
}

/** Checks the id of a schedule. Fails with `invalid_request`. */
export function checkScheduleId(id: string): void {
  checkJobId(id, 'schedule_id');
  if (id.length <= MAX_SCHEDULE_ID_CHARS) return;
  throw invalidBody(`schedule_id must have at most ${MAX_SCHEDULE_ID_CHARS} characters`);
}

/** Checks the id of a job. Fails with `invalid_request`. */
function checkJobId(id: string, path: string): void {
  if (JOB_ID.test(id)) return;
  throw invalidRequest(
    `${path} must be 1 to 256 letters, digits or "._~:@+=,-", the first a letter, a digit, "_" or "~"; got ${JSON.stringify(id.slice(0, 80))}`,
  );
}

export function isEnded(status: JobStatus): boolean {
  return status !== 'PENDING' && status !== 'RUNNING';
}

/**
 * Returns the record of the API: every field of the specification's Job table, plus Ray's `job_id` and
 * `message`.
 */
export function jobRecord(job: Job): Record<string, unknown> {
  const hasStarted = job.pid !== '';
  return {
    type: 'SUBMISSION',
    job_id: null,
    submission_id: job.id,
    driver_info: {
      id: job.instanceId,
      node_ip_address: hasStarted ? '127.0.0.1' : '',
      pid: job.pid,
    },
    status: job.status,
    entrypoint: job.spec.entrypoint,
    message: job.message,
    error_type: job.errorType,
    start_time: String(job.submittedAtMs),
    end_time: job.endedAtMs === null ? null : String(job.endedAtMs),
    metadata: job.spec.metadata,
    runtime_env: job.spec.rawRuntimeEnv,
    driver_agent_http_address: '',
    driver_node_id: hasStarted ? job.nodeId : '',
    driver_exit_code: job.exitCode,
    attempt: job.attempt,
    max_attempts: job.spec.rules.retries + 1,
    run_time: job.startedAtMs === null ? null : String(job.startedAtMs),
  };
}

/**
 * Refuses texts that are too large. Linux starts no program with a larger argument or variable, so an
 * accepted job would fail later.
 */
function checkSize(text: string, maxBytes: number, path: string): void {
  const bytes = Buffer.byteLength(text);
  if (bytes > maxBytes) throw invalidBody(`${path} must have at most ${maxBytes} bytes, got ${bytes}`);
}

function refuseSelector(selector: Readonly<Record<string, string>>, path: string): void {
  if (Object.keys(selector).length === 0) return;
  throw invalidRequest(`${path} cannot be honoured: the machines of this service have no labels`);
}

function readResources(form: Form<ValueOf<typeof SUBMIT_FIELDS>>): JobResources {
  const asked = form.read('entrypoint_memory', 'entrypoint_resources', 'entrypoint_num_cpus', 'entrypoint_num_gpus');
  return {
    cpuMillis: Math.ceil(asked.entrypoint_num_cpus * 1000),
    memoryMb: Math.ceil(asked.entrypoint_memory / MEBIBYTE),
    gpus: asked.entrypoint_num_gpus,
    custom: asked.entrypoint_resources,
  };
}

function readRules(metadata: Readonly<Record<string, string>>, path: string): JobRules {
  const rules: Record<string, number> = {};
  for (const [key, text] of Object.entries(metadata)) {
    if (!key.startsWith(RULE_PREFIX)) continue;
    const rule = RULES[key];
    if (rule === undefined) {
      throw invalidBody(`${path}.${key} is not a rule of jobs; there are ${Object.keys(RULES).join(', ')}`);
    }
    const value = /^-?\d{1,12}$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= rule.min && value <= rule.max)) {
      throw invalidBody(`${path}.${key} must be a whole number from ${rule.min} to ${rule.max}, as a string`);
    }
    rules[rule.name] = value;
  }
  return { ...DEFAULT_RULES, ...rules };
}

/** Returns JSON with sorted keys. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, item: unknown) =>
    typeof item === 'object' && item !== null && !Array.isArray(item)
      ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
      : item,
  );
}
