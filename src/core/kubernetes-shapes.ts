import { isJsonObject } from './json.ts';
import {
  anyObject,
  boolean,
  integer,
  type Kind,
  kindOf,
  list as listOf,
  oneOf,
  record,
  refine,
  text,
  wrongAt,
} from './kind.ts';
import { isLabelKey, isLabelValue } from './kubernetes-formats.ts';

/**
 * Parts of Kubernetes objects that a pool carries as JSON texts. The checks are as strict as those of the API
 * server for the fields named here. A field that Kubernetes does not have is an error.
 */
const MAX_ITEMS = 100;
const INT32 = 2 ** 31 - 1;
const DNS_LABEL = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

type FieldKinds = Readonly<Record<string, Kind<unknown>>>;

/**
 * Accepts an object with only these fields; null counts as absent. `must` lists required fields, `rule`
 * checks fields together.
 */
function shape(
  fields: FieldKinds,
  must: readonly string[] = [],
  rule?: (value: Record<string, unknown>) => string | undefined,
) {
  return kindOf<Record<string, unknown>>({ type: 'object' }, (value, path, problem) => {
    if (!isJsonObject(value)) return wrongAt(path, 'must be an object', problem);
    let wrong = false;
    const note = (at: string, text: string) => {
      wrong = true;
      problem(at, text);
    };
    for (const name of must) if (value[name] == null) note(`${path}.${name}`, 'is required');
    const present: Record<string, unknown> = {};
    for (const [name, item] of Object.entries(value)) {
      if (item === null) continue;
      const field = Object.hasOwn(fields, name) ? fields[name] : undefined;
      if (field === undefined) note(`${path}.${name}`, `is no field of it; expected ${Object.keys(fields).join(', ')}`);
      else present[name] = field.read(item, `${path}.${name}`, note);
    }
    const broken = wrong ? undefined : rule?.(present);
    if (broken !== undefined) note(path, broken);
    return wrong ? undefined : present;
  });
}

const word = text({ maxChars: 1024 });
const required = text({ maxChars: 1024, required: true });
const list = (item: Kind<unknown>) => listOf(item, MAX_ITEMS);
const int32 = (min: number) => integer({ min, max: INT32 });
const dnsLabel = text({
  maxChars: 63,
  required: true,
  pattern: DNS_LABEL,
  shape: 'lowercase letters, digits and "-", the first and the last no "-"',
});
const labelKey = refine(required, (key, path, problem) => {
  if (!isLabelKey(key)) problem(path, `must be a label key, got "${key}"`);
});
const labelValue = refine(word, (label, path, problem) => {
  if (!isLabelValue(label)) problem(path, `must be a label value, got "${label}"`);
});
const keyProblem = (key: string) => (isLabelKey(key) ? undefined : 'must be a label key');
const absolutePath = text({ maxChars: 4096, required: true, pattern: /^\//, shape: 'an absolute path' });
const intOrPercent: Kind<unknown> = kindOf({}, (value, path, problem) =>
  typeof value === 'string' ? word.read(value, path, problem) : int32(0).read(value, path, problem),
);

/** A map of labels, as in `node_selector` and `matchLabels`. */
export const labelMap = record(labelValue, { check: keyProblem });

// ---- affinities, topology_spread_constraints

const selectorOperators = ['In', 'NotIn', 'Exists', 'DoesNotExist'] as const;

function requirement(operators: readonly string[]): Kind<unknown> {
  return shape(
    { key: labelKey, operator: oneOf(operators), values: list(word) },
    ['key', 'operator'],
    ({ operator, values }) => {
      const count = (values as unknown[] | undefined)?.length ?? 0;
      if (operator === 'Exists' || operator === 'DoesNotExist') {
        return count === 0 ? undefined : `must have no values with the operator ${operator}`;
      }
      if (operator === 'Gt' || operator === 'Lt') {
        return count === 1 ? undefined : `must have one value with the operator ${operator}`;
      }
      return count > 0 ? undefined : `must have values with the operator ${operator}`;
    },
  );
}

const labelSelector = shape({ matchLabels: labelMap, matchExpressions: list(requirement(selectorOperators)) });
const nodeRequirement = requirement([...selectorOperators, 'Gt', 'Lt']);
const nodeTerm = shape({ matchExpressions: list(nodeRequirement), matchFields: list(nodeRequirement) });
const weight = integer({ min: 1, max: 100 });

const podTerm = shape(
  {
    labelSelector,
    topologyKey: labelKey,
    namespaces: list(dnsLabel),
    namespaceSelector: labelSelector,
    matchLabelKeys: list(labelKey),
    mismatchLabelKeys: list(labelKey),
  },
  ['topologyKey'],
);
const podAffinity = shape({
  requiredDuringSchedulingIgnoredDuringExecution: list(podTerm),
  preferredDuringSchedulingIgnoredDuringExecution: list(
    shape({ weight, podAffinityTerm: podTerm }, ['weight', 'podAffinityTerm']),
  ),
});

export const affinities = shape({
  nodeAffinity: shape({
    requiredDuringSchedulingIgnoredDuringExecution: shape(
      { nodeSelectorTerms: list(nodeTerm) },
      ['nodeSelectorTerms'],
      ({ nodeSelectorTerms }) =>
        (nodeSelectorTerms as unknown[]).length > 0 ? undefined : 'must have nodeSelectorTerms',
    ),
    preferredDuringSchedulingIgnoredDuringExecution: list(
      shape({ weight, preference: nodeTerm }, ['weight', 'preference']),
    ),
  }),
  podAffinity,
  podAntiAffinity: podAffinity,
});

const policy = oneOf(['Honor', 'Ignore']);

export const topologySpreadConstraints = list(
  shape(
    {
      maxSkew: int32(1),
      topologyKey: labelKey,
      whenUnsatisfiable: oneOf(['DoNotSchedule', 'ScheduleAnyway']),
      labelSelector,
      matchLabelKeys: list(labelKey),
      minDomains: int32(1),
      nodeAffinityPolicy: policy,
      nodeTaintsPolicy: policy,
    },
    ['maxSkew', 'topologyKey', 'whenUnsatisfiable'],
    ({ minDomains, whenUnsatisfiable }) =>
      minDomains === undefined || whenUnsatisfiable === 'DoNotSchedule'
        ? undefined
        : 'may have minDomains only with whenUnsatisfiable DoNotSchedule',
  ),
);

// ---- tolerations

export const tolerations = list(
  shape(
    {
      key: labelKey,
      operator: oneOf(['', 'Exists', 'Equal']),
      value: word,
      effect: oneOf(['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute']),
      tolerationSeconds: integer({ min: Number.MIN_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER }),
    },
    [],
    ({ key, operator, value, effect, tolerationSeconds }) => {
      if (key === undefined && operator !== 'Exists') return 'must have the operator Exists when it has no key';
      if (operator === 'Exists' && value !== undefined && value !== '')
        return 'must have no value with the operator Exists';
      if (tolerationSeconds !== undefined && effect !== 'NoExecute') {
        return 'may have tolerationSeconds only with the effect NoExecute';
      }
      return undefined;
    },
  ),
);

// ---- volumes, volume_mounts

const keyToPath = shape({ key: required, path: required, mode: integer({ min: 0, max: 0o777 }) }, ['key', 'path']);
const mode = integer({ min: 0, max: 0o777 });

/**
 * Sources of a volume's files. Sources that the pool documentation covers are checked in detail, others by
 * name only.
 */
const VOLUME_SOURCES: FieldKinds = {
  hostPath: shape(
    {
      path: absolutePath,
      type: oneOf([
        '',
        'DirectoryOrCreate',
        'Directory',
        'FileOrCreate',
        'File',
        'Socket',
        'CharDevice',
        'BlockDevice',
      ]),
    },
    ['path'],
  ),
  persistentVolumeClaim: shape({ claimName: required, readOnly: boolean }, ['claimName']),
  emptyDir: shape({ medium: word, sizeLimit: word }),
  configMap: shape({ name: required, items: list(keyToPath), defaultMode: mode, optional: boolean }, ['name']),
  secret: shape({ secretName: required, items: list(keyToPath), defaultMode: mode, optional: boolean }, ['secretName']),
  nfs: shape({ server: required, path: absolutePath, readOnly: boolean }, ['server', 'path']),
  csi: anyObject,
  downwardAPI: anyObject,
  ephemeral: anyObject,
  fc: anyObject,
  image: anyObject,
  iscsi: anyObject,
  projected: anyObject,
};

const volume = shape({ name: dnsLabel, ...VOLUME_SOURCES }, ['name'], value => {
  const sources = Object.keys(value).filter(name => name !== 'name');
  if (sources.length === 1) return undefined;
  return `must have exactly one source (hostPath, persistentVolumeClaim …), got ${sources.length}`;
});

export const volumes = unique(volume, 'name');

export const volumeMounts = unique(
  shape(
    {
      name: required,
      mountPath: text({ maxChars: 4096, required: true, pattern: /^[^:]+$/, shape: 'a path without ":"' }),
      readOnly: boolean,
      recursiveReadOnly: oneOf(['Disabled', 'IfPossible', 'Enabled']),
      subPath: word,
      subPathExpr: word,
      mountPropagation: oneOf(['None', 'HostToContainer', 'Bidirectional']),
    },
    ['name', 'mountPath'],
    ({ subPath, subPathExpr }) =>
      subPath !== undefined && subPathExpr !== undefined ? 'may have subPath or subPathExpr, not both' : undefined,
  ),
  'mountPath',
);

function unique(item: Kind<Record<string, unknown>>, field: string): Kind<unknown[]> {
  return refine(listOf(item, MAX_ITEMS), (items, path, problem) => {
    const seen = new Set<unknown>();
    const repeated = items.findIndex(entry => seen.size === seen.add(entry[field]).size);
    if (repeated !== -1) problem(`${path}[${repeated}].${field}`, `repeats "${String(items[repeated]?.[field])}"`);
  });
}

// ---- horizontal_pod_autoscaler_spec

const metricTarget = shape(
  {
    type: oneOf(['Utilization', 'Value', 'AverageValue']),
    value: intOrPercent,
    averageValue: intOrPercent,
    averageUtilization: int32(1),
  },
  ['type'],
  target => {
    const field = { Utilization: 'averageUtilization', Value: 'value', AverageValue: 'averageValue' }[
      String(target.type)
    ];
    return field === undefined || target[field] !== undefined
      ? undefined
      : `must have ${field} with the type ${target.type}`;
  },
);
const metricIdentifier = shape({ name: required, selector: labelSelector }, ['name']);
const scaledObject = shape({ apiVersion: word, kind: required, name: required }, ['kind', 'name']);
const METRIC_SOURCES = {
  Resource: ['resource', shape({ name: required, target: metricTarget }, ['name', 'target'])],
  ContainerResource: [
    'containerResource',
    shape({ name: required, container: required, target: metricTarget }, ['name', 'container', 'target']),
  ],
  Pods: ['pods', shape({ metric: metricIdentifier, target: metricTarget }, ['metric', 'target'])],
  Object: [
    'object',
    shape({ describedObject: scaledObject, metric: metricIdentifier, target: metricTarget }, [
      'describedObject',
      'metric',
      'target',
    ]),
  ],
  External: ['external', shape({ metric: metricIdentifier, target: metricTarget }, ['metric', 'target'])],
} as const;

const metric = shape(
  { type: oneOf(Object.keys(METRIC_SOURCES)), ...Object.fromEntries(Object.values(METRIC_SOURCES)) },
  ['type'],
  value => {
    const wanted = METRIC_SOURCES[value.type as keyof typeof METRIC_SOURCES][0];
    const sources = Object.keys(value).filter(name => name !== 'type');
    return sources.length === 1 && sources[0] === wanted
      ? undefined
      : `must have the field ${wanted}, and no other source, with the type ${String(value.type)}`;
  },
);

const scalingRules = shape({
  stabilizationWindowSeconds: integer({ min: 0, max: 3600 }),
  selectPolicy: oneOf(['Max', 'Min', 'Disabled']),
  tolerance: intOrPercent,
  policies: list(
    shape({ type: oneOf(['Pods', 'Percent']), value: int32(1), periodSeconds: integer({ min: 1, max: 1800 }) }, [
      'type',
      'value',
      'periodSeconds',
    ]),
  ),
});

/** The pool owns `scaleTargetRef` and overwrites any value that was sent. */
export const horizontalPodAutoscalerSpec = shape(
  {
    scaleTargetRef: anyObject,
    minReplicas: int32(0),
    maxReplicas: int32(1),
    metrics: list(metric),
    behavior: shape({ scaleUp: scalingRules, scaleDown: scalingRules }),
  },
  ['maxReplicas'],
  ({ minReplicas, maxReplicas }) =>
    minReplicas === undefined || (minReplicas as number) <= (maxReplicas as number)
      ? undefined
      : `must not have minReplicas (${minReplicas}) above maxReplicas (${maxReplicas})`,
);
