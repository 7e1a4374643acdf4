import { invalidRequest } from './error.ts';
import { Fields, invalidBody, parseJson } from './json.ts';
import { LIMITS } from './limits.ts';
import { type RuntimeEnv, readRuntimeEnv } from './runtime-env.ts';

/** The words of the Ray Jobs API; its client refuses any other. */
export type JobStatus = 'PENDING' | 'RUNNING' | 'STOPPED' | 'SUCCEEDED' | 'FAILED';

/** Ray's words for what went wrong; `''`: nothing did. */
export type JobErrorType =
  | ''
  | 'JOB_ENTRYPOINT_COMMAND_ERROR'
  | 'RUNTIME_ENV_SETUP_FAILURE'
  | 'JOB_SUPERVISOR_ACTOR_START_FAILURE'
  | 'JOB_SUPERVISOR_ACTOR_DIED';

/** What a job needs of a machine; what was not asked for is 0. */
export interface JobResources {
  readonly cpuMillis: number;
  readonly memoryMb: number;
  readonly gpus: number;
  readonly custom: Readonly<Record<string, number>>;
}

/** What was submitted, checked. */
export interface JobSpec {
  readonly entrypoint: string;
  readonly metadata: Readonly<Record<string, string>>;
  /** As it was sent, for the record. */
  readonly rawRuntimeEnv: Readonly<Record<string, unknown>>;
  readonly runtimeEnv: RuntimeEnv;
  readonly resources: JobResources;
  readonly rules: JobRules;
}

/** Set by metadata keys that begin with `rookery.`. */
export interface JobRules {
  /** How often it may run again after it failed. */
  readonly retries: number;
  /** Before the first retry; doubled for each further one. */
  readonly retryDelayMs: number;
  /** How long one run may take; 0 = as long as it likes. */
  readonly timeoutMs: number;
  /** Higher ones of a tenant start first. */
  readonly priority: number;
}

/** A job as everyone but its runner sees it. */
export interface Job {
  /** Orders jobs by their submission; unique. */
  readonly sequence: number;
  readonly tenant: string;
  readonly id: string;
  readonly spec: JobSpec;
  readonly status: JobStatus;
  readonly message: string;
  readonly errorType: JobErrorType;
  readonly exitCode: number | null;
  /** From 1. */
  readonly attempt: number;
  readonly nodeId: string;
  /** `''` before it started. */
  readonly instanceId: string;
  readonly pid: string;
  readonly submittedAtMs: number;
  readonly startedAtMs: number | null;
  readonly endedAtMs: number | null;
}

export interface JobSubmission {
  /** null: one has to be made up. */
  readonly id: string | null;
  readonly spec: JobSpec;
  /** The same for two bodies that ask for the same, whatever the order of their keys. */
  readonly fingerprint: string;
  /** For the answer: fields that were ignored. */
  readonly warnings: readonly string[];
}

/** What may stand in a URL unescaped, since Ray's client does not escape it. */
const ID = /^[A-Za-z0-9_~][A-Za-z0-9._~:@+=,-]{0,255}$/;
const RULE_PREFIX = 'rookery.';
const RULES: Readonly<Record<string, { readonly name: keyof JobRules; readonly min: number; readonly max: number }>> = {
  'rookery.retries': { name: 'retries', min: 0, max: 20 },
  'rookery.retry_delay_ms': { name: 'retryDelayMs', min: 0, max: 3_600_000 },
  'rookery.timeout_ms': { name: 'timeoutMs', min: 1, max: 2_000_000_000 },
  'rookery.priority': { name: 'priority', min: -1000, max: 1000 },
};
const DEFAULT_RULES: JobRules = { retries: 0, retryDelayMs: 1000, timeoutMs: 0, priority: 0 };
const MAX_AMOUNT = 1_000_000;
const MEBIBYTE = 1024 * 1024;

/** Reads the body of a submit. Fails with `invalid_request`, one plain sentence. */
export function readJobSubmission(bytes: Buffer | undefined): JobSubmission {
  const parsed = parseJson(bytes ?? Buffer.alloc(0));
  if (!parsed.ok) throw invalidBody(parsed.word);
  return submissionOf(parsed.value, '');
}

/** The same for a body that is part of another one, at `path`. */
export function submissionOf(value: unknown, path: string): JobSubmission {
  const fields = Fields.of(value, path);
  if (isDeeper(value, LIMITS.jobNesting)) {
    throw invalidBody(`${path || 'the body'} must not be nested deeper than ${LIMITS.jobNesting} levels`);
  }
  const entrypoint = fields.text('entrypoint');
  if (entrypoint === undefined) throw invalidBody(`${fields.pathOf('entrypoint')} is required`);
  checkSize(entrypoint, LIMITS.jobEntrypointBytes, fields.pathOf('entrypoint'));
  const jobId = fields.text('job_id');
  const id = fields.text('submission_id') ?? jobId ?? null;
  if (id !== null) checkJobId(id, fields.pathOf('submission_id'));
  const metadata = fields.textMap('metadata') ?? {};
  const rawRuntimeEnv = (fields.object('runtime_env') && (value as { runtime_env: object }).runtime_env) ?? {};
  const both = `${fields.pathOf('runtime_env')} and ${fields.pathOf('metadata')}, together and as JSON,`;
  checkSize(JSON.stringify([rawRuntimeEnv, metadata]), LIMITS.jobSettingsBytes, both);
  if (fields.has('entrypoint_label_selector')) refuseSelector(fields);
  const spec: JobSpec = {
    entrypoint,
    metadata,
    rawRuntimeEnv: rawRuntimeEnv as Record<string, unknown>,
    runtimeEnv: readRuntimeEnv(rawRuntimeEnv, fields.pathOf('runtime_env')),
    resources: readResources(fields),
    rules: readRules(metadata, fields.pathOf('metadata')),
  };
  const { entrypoint: command, resources } = spec;
  return {
    id,
    spec,
    fingerprint: canonical([command, metadata, rawRuntimeEnv, resources]),
    warnings: fields.warnings(),
  };
}

/** Fails with `invalid_request`. */
export function checkJobId(id: string, path: string): void {
  if (ID.test(id)) return;
  throw invalidRequest(
    `${path} must be 1 to 256 letters, digits or "._~:@+=,-", the first a letter, a digit, "_" or "~"; got ${JSON.stringify(id.slice(0, 80))}`,
  );
}

export function isEnded(status: JobStatus): boolean {
  return status !== 'PENDING' && status !== 'RUNNING';
}

/** The record of the API: every field of the specification's Job table, always, and Ray's `job_id` and `message`. */
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

/** Linux starts no program with a larger argument or variable: the job would be taken in, and then fail. */
function checkSize(text: string, maxBytes: number, path: string): void {
  const bytes = Buffer.byteLength(text);
  if (bytes > maxBytes) throw invalidBody(`${path} must have at most ${maxBytes} bytes, got ${bytes}`);
}

/** Looks no deeper than it has to. */
function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some(item => isDeeper(item, levels - 1));
}

function refuseSelector(fields: Fields): void {
  const selector = fields.textMap('entrypoint_label_selector') ?? {};
  if (Object.keys(selector).length === 0) return;
  throw invalidRequest(
    `${fields.pathOf('entrypoint_label_selector')} cannot be honoured: the machines of this service have no labels`,
  );
}

function readResources(fields: Fields): JobResources {
  const amount = { min: 0, max: MAX_AMOUNT };
  const memoryBytes = fields.number('entrypoint_memory', { min: 0, max: Number.MAX_SAFE_INTEGER }) ?? 0;
  const resources = fields.object('entrypoint_resources');
  const custom = (resources?.names() ?? []).map(name => [name, resources?.number(name, amount) ?? 0]);
  return {
    cpuMillis: Math.ceil((fields.number('entrypoint_num_cpus', amount) ?? 0) * 1000),
    memoryMb: Math.ceil(memoryBytes / MEBIBYTE),
    gpus: fields.number('entrypoint_num_gpus', amount) ?? 0,
    // Not by assignment: a name may be one that every object has.
    custom: Object.fromEntries(custom) as Record<string, number>,
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

/** JSON with its keys in order. */
function canonical(value: unknown): string {
  return JSON.stringify(value, (_key, item: unknown) =>
    typeof item === 'object' && item !== null && !Array.isArray(item)
      ? Object.fromEntries(Object.entries(item).sort(([a], [b]) => (a < b ? -1 : 1)))
      : item,
  );
}
