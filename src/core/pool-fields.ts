import { messageOf } from './error.ts';
import {
  absentValues,
  boolean,
  type FieldTable,
  integer,
  isJsonObject,
  type JsonObject,
  mapOf,
  objectOf,
  Problems,
  quote,
  type Read,
  readPresent,
  text,
} from './field-reader.ts';
import type { Checked } from './function-fields.ts';
import { isLabelKey, isLabelValue, isOwnLabel } from './kubernetes-label.ts';
import * as shapes from './kubernetes-shapes.ts';
import type { PoolResources, PoolSpec } from './pool.ts';
import { parseQuantity, quantityShape } from './quantity.ts';
import { noteAsked } from './unknown-fields.ts';

const INT32 = 2 ** 31 - 1;
const MAX_JSON_CHARS = 65_536;
const DEFAULT_PENDING_SECONDS = 120;
const ID = /^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$/;
const GROUP = /^[a-zA-Z0-9]([-a-zA-Z0-9]{0,38}[a-zA-Z0-9])?$/;
const ENVIRONMENT_NAME = /^[-._a-zA-Z][-._a-zA-Z0-9]*$/;
/** Both spellings are read. */
const RECYCLE_LABELS = ['svc-idle-to-recycle', 'yr-idle-to-recycle'];

/** A JSON text of a Kubernetes shape; kept as it was sent. An empty one is unset. */
function jsonOf(shape: Read<unknown>): Read<string> {
  return (value, path, problem) => {
    const sent = text({ maxChars: MAX_JSON_CHARS })(value, path, problem);
    if (sent === undefined || sent === '') return sent;
    let parsed: unknown;
    try {
      parsed = JSON.parse(sent);
    } catch (error) {
      return problem(path, `must be a JSON text: ${messageOf(error)}`) as undefined;
    }
    return shape(parsed, path, problem) === undefined ? undefined : sent;
  };
}

const label: Read<string> = (value, path, problem) => {
  const sent = text({ maxChars: 63 })(value, path, problem);
  if (sent === undefined || isLabelValue(sent)) return sent;
  return problem(path, `must be a valid label value, got "${sent}"`) as undefined;
};

const labels: Read<Record<string, string>> = (value, path, problem) => {
  const read = mapOf(label, key => {
    if (!isLabelKey(key)) return 'must be a valid label key';
    return isOwnLabel(key) ? 'cannot be set: labels under rookery.io/ belong to the platform' : undefined;
  })(value, path, problem);
  let wrong = read === undefined;
  for (const name of RECYCLE_LABELS) {
    const seconds = isJsonObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
    if (typeof seconds !== 'string' || seconds === 'unlimited' || /^\d+$/.test(seconds)) continue;
    wrong = true;
    problem(`${path}.${name}`, `must be an integer of seconds, at least 0, or "unlimited", got ${quote(seconds)}`);
  }
  return wrong ? undefined : read;
};

const quantities: Read<Record<string, string>> = (value, path, problem) => {
  const read = mapOf(text({ maxChars: 32, required: true }), key =>
    isLabelKey(key) ? undefined : 'must be the name of a resource',
  )(value, path, problem);
  if (read === undefined) return undefined;
  let wrong = false;
  const note = (at: string, what: string) => {
    wrong = true;
    problem(at, what);
  };
  for (const name of ['cpu', 'memory']) if (!Object.hasOwn(read, name)) note(`${path}.${name}`, 'is required');
  for (const [name, amount] of Object.entries(read)) {
    if (parseQuantity(name, amount) === null)
      note(`${path}.${name}`, `must be ${quantityShape(name)}, got "${amount}"`);
  }
  return wrong ? undefined : read;
};

const resources: Read<PoolResources> = (value, path, problem) => {
  if (!isJsonObject(value)) return problem(path, 'must be an object') as undefined;
  const read = (name: 'requests' | 'limits') => {
    const sent = value[name];
    noteAsked(value, name);
    if (sent === undefined || sent === null) return problem(`${path}.${name}`, 'is required') as undefined;
    return quantities(sent, `${path}.${name}`, problem);
  };
  const requests = read('requests');
  const limits = read('limits');
  if (requests === undefined || limits === undefined) return undefined;
  for (const [name, amount] of Object.entries(requests)) {
    const limit = Object.hasOwn(limits, name) ? limits[name] : undefined;
    if (limit === undefined || (parseQuantity(name, amount) ?? 0) <= (parseQuantity(name, limit) ?? 0)) continue;
    return problem(`${path}.requests.${name}`, `is greater than its limit: ${amount} > ${limit}`) as undefined;
  }
  return { requests, limits };
};

const named = (pattern: RegExp, shape: string) => text({ maxChars: 40, required: true, pattern, shape });
const count = integer(0, INT32);
const idle = integer(-1, INT32);
const image = text({ maxChars: 200 });
const NO_RESOURCES: PoolResources = { requests: {}, limits: {} };
const UPDATABLE = ['size', 'max_size', 'horizontal_pod_autoscaler_spec'] as const;

const POOL_FIELDS: FieldTable<Omit<PoolSpec, 'scalable'>> = {
  id: { read: named(ID, '1 to 40 lowercase letters, digits and "-", the first and the last no "-"'), absent: '' },
  group: {
    read: (value, path, problem) =>
      value === ''
        ? 'default'
        : named(GROUP, '1 to 40 letters, digits and "-", the first and the last no "-"')(value, path, problem),
    absent: 'default',
  },
  reuse: { read: boolean, absent: false },
  size: { read: count, absent: 0 },
  max_size: { read: count, absent: 0 },
  image: { read: image, absent: '' },
  init_image: { read: image, absent: '' },
  labels: { read: labels, absent: null },
  environment: {
    read: mapOf(text({ maxChars: 131_072 }), name =>
      ENVIRONMENT_NAME.test(name)
        ? undefined
        : 'must have a name of letters, digits, "-", "." and "_", the first no digit',
    ),
    absent: null,
  },
  volumes: { read: jsonOf(shapes.volumes), absent: '' },
  volume_mounts: { read: jsonOf(shapes.volumeMounts), absent: '' },
  resources: { read: resources, absent: NO_RESOURCES },
  affinities: { read: jsonOf(shapes.affinities), absent: '' },
  node_selector: { read: shapes.labelMap, absent: null },
  runtime_class_name: { read: text({ maxChars: 64 }), absent: '' },
  tolerations: { read: jsonOf(shapes.tolerations), absent: '' },
  horizontal_pod_autoscaler_spec: { read: jsonOf(shapes.horizontalPodAutoscalerSpec), absent: '' },
  topology_spread_constraints: { read: jsonOf(shapes.topologySpreadConstraints), absent: '' },
  pod_pending_duration_threshold: {
    read: (value, path, problem) => {
      const seconds = count(value, path, problem);
      return seconds === 0 ? DEFAULT_PENDING_SECONDS : seconds;
    },
    absent: DEFAULT_PENDING_SECONDS,
  },
  idle_recycle_time: {
    read: objectOf({ reserved: { read: idle, absent: 0 }, scaled: { read: idle, absent: 0 } }),
    absent: { reserved: 0, scaled: 0 },
  },
};

/** Reads one pool of a create. */
export function readPool(body: JsonObject): Checked<PoolSpec> {
  const problems = new Problems();
  for (const field of ['id', 'resources']) {
    if (body[field] === undefined || body[field] === null) problems.add(field, 'is required');
  }
  const { present } = readPresent(POOL_FIELDS, body, '', problems.add);
  const pool = { ...absentValues(POOL_FIELDS), ...present };
  const max_size = pool.max_size === 0 ? pool.size : pool.max_size;
  const spec = { ...pool, max_size, scalable: max_size > pool.size };
  // A size that is itself wrong is no size to compare with.
  if (UPDATABLE.every(field => (body[field] ?? null) === null || present[field] !== undefined))
    checkSizes(spec, problems);
  return problems.any ? { ok: false, problems: problems.found } : { ok: true, value: spec };
}

/** What an update of a pool sends; absent fields are kept. */
export type PoolUpdate = Partial<Pick<PoolSpec, (typeof UPDATABLE)[number]>>;

export function readPoolUpdate(body: JsonObject): Checked<PoolUpdate> {
  const problems = new Problems();
  const { size, max_size, horizontal_pod_autoscaler_spec } = POOL_FIELDS;
  const { present } = readPresent({ size, max_size, horizontal_pod_autoscaler_spec }, body, '', problems.add);
  return problems.any || present === undefined ? { ok: false, problems: problems.found } : { ok: true, value: present };
}

/** A pool with what an update changes. A maximum that is 0, and the unsent one of a fixed pool, follow the size. */
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
  return problems.any ? { ok: false, problems: problems.found } : { ok: true, value: merged };
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
