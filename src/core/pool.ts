import { variables } from './environment.ts';
import { messageOf } from './error.ts';
import { isJsonObject, type JsonObject } from './json.ts';
import { boolean, integer, type Kind, list, record, refine, text } from './kind.ts';
import { isLabelKey, isLabelValue, isOwnLabel, parseQuantity, quantityShape } from './kubernetes-formats.ts';
import * as shapes from './kubernetes-shapes.ts';
import { type Checked, Problems, quote } from './problem.ts';
import { absentValues, type Fields, kept, noteMissing, object, optional, readPresent, required } from './shape.ts';

/**
 * The settings of a pool that a caller sends, under the names of the wire. Unset texts are `''`, unset maps
 * null.
 */
export interface PoolSpec {
  readonly id: string;
  readonly group: string;
  readonly reuse: boolean;
  readonly size: number;
  readonly max_size: number;
  readonly image: string;
  readonly init_image: string;
  readonly labels: Readonly<Record<string, string>> | null;
  readonly environment: Readonly<Record<string, string>> | null;
  readonly volumes: string;
  readonly volume_mounts: string;
  readonly resources: PoolResources;
  readonly affinities: string;
  readonly node_selector: Readonly<Record<string, string>> | null;
  readonly runtime_class_name: string;
  readonly tolerations: string;
  readonly horizontal_pod_autoscaler_spec: string;
  readonly topology_spread_constraints: string;
  /** Seconds in force: 0 was replaced by the default. */
  readonly pod_pending_duration_threshold: number;
  /** Seconds; −1: never, 0: not configured. */
  readonly idle_recycle_time: { readonly reserved: number; readonly scaled: number };
  /** True if `max_size` exceeded `size` at creation. Never changes afterwards. */
  readonly scalable: boolean;
}

export interface PoolResources {
  readonly requests: Readonly<Record<string, string>>;
  readonly limits: Readonly<Record<string, string>>;
}

export interface Pool {
  readonly spec: PoolSpec;
  readonly status: PoolStatus;
  /** `Running`, or the reason why the pool does not run. */
  readonly msg: string;
  readonly readyCount: number;
}

export const POOL_STATUS = {
  new: 0,
  creating: 1,
  updateRequested: 2,
  updating: 3,
  running: 4,
  failed: 5,
  deleting: 6,
} as const;
export type PoolStatus = (typeof POOL_STATUS)[keyof typeof POOL_STATUS];

/** The message of a pool before any controller manages it. */
export const WAITING_MSG = 'waiting for a Kubernetes backend';

/**
 * Allowed transitions between states. The API sets `new`, `updateRequested` and `deleting`; a cluster's
 * controller sets the others. A pool that the controller has not seen (`new`) is updated and deleted in
 * place.
 */
const NEXT: Readonly<Record<PoolStatus, readonly PoolStatus[]>> = {
  [POOL_STATUS.new]: [POOL_STATUS.new, POOL_STATUS.creating],
  [POOL_STATUS.creating]: [
    POOL_STATUS.creating,
    POOL_STATUS.running,
    POOL_STATUS.failed,
    POOL_STATUS.updateRequested,
    POOL_STATUS.deleting,
  ],
  [POOL_STATUS.updateRequested]: [POOL_STATUS.updating, POOL_STATUS.deleting],
  [POOL_STATUS.updating]: [
    POOL_STATUS.updating,
    POOL_STATUS.running,
    POOL_STATUS.failed,
    POOL_STATUS.updateRequested,
    POOL_STATUS.deleting,
  ],
  [POOL_STATUS.running]: [
    POOL_STATUS.running,
    POOL_STATUS.updateRequested,
    POOL_STATUS.updating,
    POOL_STATUS.failed,
    POOL_STATUS.deleting,
  ],
  [POOL_STATUS.failed]: [
    POOL_STATUS.failed,
    POOL_STATUS.creating,
    POOL_STATUS.updateRequested,
    POOL_STATUS.updating,
    POOL_STATUS.running,
    POOL_STATUS.deleting,
  ],
  [POOL_STATUS.deleting]: [POOL_STATUS.deleting],
};

export function mayFollow(from: PoolStatus, to: PoolStatus): boolean {
  return NEXT[from].includes(to);
}

/** Returns the states from which a pool may enter `to`. */
export function statesBefore(to: PoolStatus): PoolStatus[] {
  return Object.values(POOL_STATUS).filter(from => mayFollow(from, to));
}

/** Returns the state after an update, or null when the pool accepts no update now. */
export function statusAfterUpdate(status: PoolStatus): PoolStatus | null {
  if (status === POOL_STATUS.new) return POOL_STATUS.new;
  return mayFollow(status, POOL_STATUS.updateRequested) ? POOL_STATUS.updateRequested : null;
}

const INT32 = 2 ** 31 - 1;
const MAX_JSON_CHARS = 65_536;
const DEFAULT_PENDING_SECONDS = 120;
const DEFAULT_GROUP = 'default';
const NO_RESOURCES: PoolResources = { requests: {}, limits: {} };
const ID = /^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$/;
const GROUP = /^[a-zA-Z0-9]([-a-zA-Z0-9]{0,38}[a-zA-Z0-9])?$/;
const ENVIRONMENT_NAME = /^[-._a-zA-Z][-._a-zA-Z0-9]*$/;
/** The two spellings of the label, which are both read. */
const RECYCLE_LABELS = ['svc-idle-to-recycle', 'yr-idle-to-recycle'];

/** A JSON text of a Kubernetes shape, kept as sent. An empty text is unset. */
function jsonOf(shape: Kind<unknown>, what: string): Kind<string> {
  const json = refine(text({ maxChars: MAX_JSON_CHARS }), (sent, path, problem) => {
    if (sent === '') return;
    let parsed: unknown;
    try {
      parsed = JSON.parse(sent);
    } catch (error) {
      return problem(path, `must be a JSON text: ${messageOf(error)}`);
    }
    shape.read(parsed, path, problem);
  });
  return { ...json, describe: () => ({ type: 'string', description: `${what} as a JSON text.` }) };
}

const label = refine(text({ maxChars: 63 }), (sent, path, problem) => {
  if (!isLabelValue(sent)) problem(path, `must be a valid label value, got "${sent}"`);
});

const labelMap = record(label, {
  check: key => {
    if (!isLabelKey(key)) return 'must be a valid label key';
    return isOwnLabel(key) ? 'cannot be set: labels under rookery.io/ belong to the platform' : undefined;
  },
});

const labels: Kind<Record<string, string>> = {
  ...labelMap,
  read(value, path, problem) {
    const read = labelMap.read(value, path, problem);
    let isWrong = read === undefined;
    for (const name of RECYCLE_LABELS) {
      const seconds = isJsonObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
      if (typeof seconds !== 'string' || seconds === 'unlimited' || /^\d+$/.test(seconds)) continue;
      isWrong = true;
      problem(`${path}.${name}`, `must be an integer of seconds, at least 0, or "unlimited", got ${quote(seconds)}`);
    }
    return isWrong ? undefined : read;
  },
};

const quantities = refine(
  record(text({ maxChars: 32, required: true }), {
    check: key => (isLabelKey(key) ? undefined : 'must be the name of a resource'),
  }),
  (read, path, problem) => {
    for (const name of ['cpu', 'memory']) if (!Object.hasOwn(read, name)) problem(`${path}.${name}`, 'is required');
    for (const [name, amount] of Object.entries(read)) {
      if (parseQuantity(name, amount) !== null) continue;
      problem(`${path}.${name}`, `must be ${quantityShape(name)}, got "${amount}"`);
    }
  },
);

const resources = refine(
  object<PoolResources>({
    requests: required(quantities, 'cpu as `500m`, memory as `512Mi` or `1Gi`.'),
    limits: required(quantities),
  }),
  ({ requests, limits }, path, problem) => {
    for (const [name, amount] of Object.entries(requests)) {
      const limit = Object.hasOwn(limits, name) ? limits[name] : undefined;
      if (limit === undefined || (parseQuantity(name, amount) ?? 0) <= (parseQuantity(name, limit) ?? 0)) continue;
      return problem(`${path}.requests.${name}`, `is greater than its limit: ${amount} > ${limit}`);
    }
  },
);

const named = (pattern: RegExp, shape: string) => text({ maxChars: 40, required: true, pattern, shape });
const count = integer({ min: 0, max: INT32 });
const idle = integer({ min: -1, max: INT32 });
const IDLE = 'Seconds; -1: never, 0: not configured.';
const image = text({ maxChars: 200 });

const groupName = named(GROUP, '1 to 40 letters, digits and "-", the first and the last no "-"');
/** Reads an empty group as the default. */
const group: Kind<string> = {
  describe: () => ({ type: 'string', maxLength: 40, pattern: `${GROUP.source}|^$` }),
  read: (value, path, problem) => (value === '' ? DEFAULT_GROUP : groupName.read(value, path, problem)),
};

const pendingSeconds: Kind<number> = {
  ...count,
  read(value, path, problem) {
    const seconds = count.read(value, path, problem);
    return seconds === 0 ? DEFAULT_PENDING_SECONDS : seconds;
  },
};

const idleRecycleTime = object<PoolSpec['idle_recycle_time']>({
  reserved: optional(idle, 0, IDLE),
  scaled: optional(idle, 0, IDLE),
});

const environment = variables(text(), {
  check: name =>
    ENVIRONMENT_NAME.test(name)
      ? undefined
      : 'must have a name of letters, digits, "-", "." and "_", the first no digit',
  pattern: ENVIRONMENT_NAME,
});

const POOL_FIELDS: Fields<Omit<PoolSpec, 'scalable'>> = {
  id: required(named(ID, '1 to 40 lowercase letters, digits and "-", the first and the last no "-"')),
  group: optional(group, DEFAULT_GROUP),
  reuse: optional(boolean, false),
  size: optional(count, 0),
  max_size: optional(count, 0, '0 or absent: the size.'),
  image: optional(image, ''),
  init_image: optional(image, ''),
  labels: optional<PoolSpec['labels']>(labels, null),
  environment: optional<PoolSpec['environment']>(environment, null),
  volumes: optional(jsonOf(shapes.volumes, 'An array of Volumes'), ''),
  volume_mounts: optional(jsonOf(shapes.volumeMounts, 'An array of VolumeMounts'), ''),
  resources: required(resources),
  affinities: optional(jsonOf(shapes.affinities, 'An Affinity'), ''),
  node_selector: optional<PoolSpec['node_selector']>(shapes.labelMap, null),
  runtime_class_name: optional(text({ maxChars: 64 }), ''),
  tolerations: optional(jsonOf(shapes.tolerations, 'An array of Tolerations'), ''),
  horizontal_pod_autoscaler_spec: optional(
    jsonOf(shapes.horizontalPodAutoscalerSpec, 'A HorizontalPodAutoscalerSpec'),
    '',
  ),
  topology_spread_constraints: optional(
    jsonOf(shapes.topologySpreadConstraints, 'An array of TopologySpreadConstraints'),
    '',
  ),
  pod_pending_duration_threshold: optional(pendingSeconds, DEFAULT_PENDING_SECONDS, 'Seconds; 0: the default.'),
  idle_recycle_time: optional(idleRecycleTime, absentValues(idleRecycleTime.fields)),
};

/** The body of a create. Each pool is read on its own. */
export const POOLS_CREATE = object({ pools: required(list(object(POOL_FIELDS)), { minItems: 1 }) });

const UPDATABLE = ['size', 'max_size', 'horizontal_pod_autoscaler_spec'] as const;
const { size, max_size, horizontal_pod_autoscaler_spec } = kept(POOL_FIELDS);
/** The body of an update. Absent fields keep their values. */
export const POOL_UPDATE = object({ size, max_size: { ...max_size, doc: {} }, horizontal_pod_autoscaler_spec });

/** Reads one pool of a create. */
export function readPool(body: JsonObject): Checked<PoolSpec> {
  const problems = new Problems();
  noteMissing(POOL_FIELDS, body, problems.add);
  const { present } = readPresent(POOL_FIELDS, body, '', problems.add);
  const pool = { ...absentValues(POOL_FIELDS), id: '', resources: NO_RESOURCES, ...present };
  const max_size = pool.max_size === 0 ? pool.size : pool.max_size;
  const spec = { ...pool, max_size, scalable: max_size > pool.size };
  // Sizes are compared only if none is itself wrong.
  if (UPDATABLE.every(field => (body[field] ?? null) === null || present[field] !== undefined))
    checkSizes(spec, problems);
  return problems.check(spec);
}

/** An update of a pool. Absent fields keep their values. */
export type PoolUpdate = Partial<Pick<PoolSpec, (typeof UPDATABLE)[number]>>;

export function readPoolUpdate(body: JsonObject): Checked<PoolUpdate> {
  const problems = new Problems();
  const { present } = readPresent(POOL_UPDATE.fields, body, '', problems.add);
  return problems.check(present as PoolUpdate);
}

/**
 * Returns a pool after an update. The maximum follows the size if it is 0, or if a fixed pool does not send
 * it.
 */
export function mergePoolUpdate(stored: PoolSpec, update: PoolUpdate): Checked<PoolSpec> {
  const problems = new Problems();
  const size = update.size ?? stored.size;
  const kept = stored.scalable ? stored.max_size : size;
  const max_size = update.max_size === 0 ? size : (update.max_size ?? kept);
  const merged = { ...stored, ...update, size, max_size };
  checkSizes(merged, problems);
  if (!stored.scalable && max_size > size) {
    problems.add(
      '',
      'max_size greater than size is not possible: whether a pool can scale is fixed when it is created',
    );
  }
  return problems.check(merged);
}

function checkSizes(
  spec: Pick<PoolSpec, 'size' | 'max_size' | 'horizontal_pod_autoscaler_spec'>,
  problems: Problems,
): void {
  if (spec.max_size < spec.size) problems.add('', 'max_size is less than size');
  if (spec.max_size > spec.size && spec.horizontal_pod_autoscaler_spec !== '') {
    problems.add('', 'max_size greater than size and horizontal_pod_autoscaler_spec cannot be set at the same time');
  }
}
