import { isJsonObject, type JsonObject } from './json.ts';
import { described, integerOrDigits, list, refine, text } from './kind.ts';
import { LIMITS } from './limits.ts';
import { type Checked, Problems } from './problem.ts';
import { kept, maybe, object, optional, readPresent, required, type ValueOf } from './shape.ts';
import { NAME_OR_URN_PATTERN, normalizeVersion } from './urn.ts';

/** The number of reserved instances of a function version and label in a cluster. */
export interface ReservedCluster {
  readonly clusterId: string;
  readonly minInstance: number;
  readonly maxInstance: number;
}

/** The reserved instances of a label of a function version. */
export interface Reservation {
  readonly label: string;
  readonly clusters: readonly ReservedCluster[];
}

/** A cluster of a request; fields that were not sent are undefined. */
export interface ClusterRequest {
  readonly clusterId: string;
  readonly minInstance: number | undefined;
  readonly maxInstance: number | undefined;
}

export interface ReservationRequest {
  readonly funcName: string;
  /** Normalized. */
  readonly version: string;
  readonly instanceLabel: string;
  readonly clusters: readonly ClusterRequest[];
}

const LABEL = /^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$/;
const LABEL_SHAPE = 'letters, digits, "-", "_" and ".", the first and the last a letter or a digit';

const MAX_NAME_CHARS = 1024;

const name = text({ maxChars: MAX_NAME_CHARS, required: true });
const label = text({ maxChars: LIMITS.reservedLabelChars, required: true, pattern: LABEL, shape: LABEL_SHAPE });
const count = integerOrDigits({ min: 0, max: LIMITS.functionInstances.max });

const CLUSTER_FIELDS = {
  clusterId: optional(text({ maxChars: LIMITS.clusterIdChars }), ''),
  minInstance: maybe(count),
  maxInstance: maybe(count),
};

const BASE_FIELDS = {
  funcName: required(
    described(name, { pattern: NAME_OR_URN_PATTERN }),
    '`0@{service}@{funcName}`, such as `0@demo@hello`, or a URN of the function; the version of a URN must be `version`.',
  ),
  version: required(name),
};

const WRITE_FIELDS = {
  ...BASE_FIELDS,
  instanceLabel: required(
    refine(name, (value, path, problem) => void label.read(value, path, problem), label.describe()),
  ),
};

/** The body of a create or update of reserved instances. */
export const RESERVATION = object({
  ...WRITE_FIELDS,
  instanceConfigInfos: required(list(object<ValueOf<typeof CLUSTER_FIELDS>>(CLUSTER_FIELDS)), {
    minItems: 1,
    description: 'Each cluster once.',
  }),
});

const SELECT_FIELDS = {
  ...BASE_FIELDS,
  instanceLabel: optional(
    text({ maxChars: LIMITS.reservedLabelChars, pattern: LABEL, shape: LABEL_SHAPE }),
    '',
    'Absent: all.',
  ),
};

/** Selects the reservations for a query or a delete. */
export const RESERVATION_SELECT = object<ValueOf<typeof SELECT_FIELDS>>(SELECT_FIELDS);

/**
 * A partial selection, for requests that may put each field in one of two places. A later check reports
 * fields that are missing in both.
 */
export const RESERVATION_PART = object<Partial<ValueOf<typeof SELECT_FIELDS>>>(kept(SELECT_FIELDS));

/**
 * Reads the body of a create or update of reserved instances. `defaultCluster` replaces an absent cluster.
 */
export function readReservation(body: JsonObject, defaultCluster: string): Checked<ReservationRequest> {
  const problems = new Problems();
  const { present } = readPresent<ValueOf<typeof WRITE_FIELDS>>(WRITE_FIELDS, body, '', problems.add);
  const { funcName = '', version = '', instanceLabel = '' } = present;
  const clusters = readClusters(body.instanceConfigInfos, defaultCluster, problems);
  return problems.check({ funcName, version: normalizeVersion(version), instanceLabel, clusters });
}

/** Reads the selection of a query or a delete; `instanceLabel` `''` selects all labels of the version. */
export function readReservationBase(source: JsonObject): Checked<Omit<ReservationRequest, 'clusters'>> {
  const problems = new Problems();
  const { present } = readPresent(RESERVATION_SELECT.fields, source, '', problems.add);
  const { funcName = '', version = '', instanceLabel = '' } = present;
  return problems.check({ funcName, version: normalizeVersion(version), instanceLabel });
}

/** Reads all clusters, continuing after a wrong one: problems of the next ones are still valid. */
function readClusters(value: unknown, defaultCluster: string, problems: Problems): ClusterRequest[] {
  const field = 'instanceConfigInfos';
  if (value === undefined || value === null) problems.add(field, 'is required');
  else if (!Array.isArray(value)) problems.add(field, 'must be an array');
  else if (value.length === 0) problems.add(field, 'must not be empty');
  if (!Array.isArray(value)) return [];
  const seen = new Set<string>();
  return value.flatMap((item, index) => {
    const path = `${field}[${index}]`;
    if (!isJsonObject(item)) {
      problems.add(path, 'must be an object');
      return [];
    }
    const { present } = readPresent<ValueOf<typeof CLUSTER_FIELDS>>(CLUSTER_FIELDS, item, path, problems.add);
    const { minInstance, maxInstance } = present;
    const clusterId = present.clusterId || defaultCluster;
    if (seen.has(clusterId)) problems.add(`${path}.clusterId`, `repeats "${clusterId}"`);
    seen.add(clusterId);
    if (minInstance !== undefined && maxInstance !== undefined && minInstance > maxInstance) {
      problems.add(path, `minInstance must not be larger than maxInstance: ${minInstance} > ${maxInstance}`);
    }
    return [{ clusterId, minInstance, maxInstance }];
  });
}

/**
 * Returns the clusters of a new reservation. An absent maximum is the larger of the function's maximum and
 * the minimum.
 */
export function createClusters(requested: readonly ClusterRequest[], functionMax: number): ReservedCluster[] {
  return requested.map(({ clusterId, minInstance = 0, maxInstance }) => ({
    clusterId,
    minInstance,
    maxInstance: maxInstance ?? Math.max(minInstance, functionMax),
  }));
}

/**
 * Returns a stored reservation after an update. The reservation keeps numbers that the update does not send
 * and clusters that it does not name; a new cluster is created. Fails if a minimum exceeds its maximum.
 */
export function updateClusters(
  stored: readonly ReservedCluster[],
  requested: readonly ClusterRequest[],
  functionMax: number,
): Checked<ReservedCluster[]> {
  const problems = new Problems();
  const merged = new Map(stored.map(cluster => [cluster.clusterId, cluster]));
  for (const request of requested) {
    const old = merged.get(request.clusterId);
    const [created] = createClusters([request], functionMax) as [ReservedCluster];
    const minInstance = request.minInstance ?? old?.minInstance ?? created.minInstance;
    const maxInstance = request.maxInstance ?? old?.maxInstance ?? created.maxInstance;
    if (minInstance > maxInstance) {
      problems.add(
        `instanceConfigInfos of ${request.clusterId}`,
        `minInstance must not be larger than maxInstance: ${minInstance} > ${maxInstance}`,
      );
    }
    merged.set(request.clusterId, { clusterId: request.clusterId, minInstance, maxInstance });
  }
  return problems.check([...merged.values()]);
}
