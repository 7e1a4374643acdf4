import { integerOrDigits, isJsonObject, type JsonObject, Problems, text } from './field-reader.ts';
import type { Checked } from './function-fields.ts';
import { readRequiredText } from './function-fields.ts';
import { LIMITS } from './limits.ts';
import { noteAsked } from './unknown-fields.ts';
import { normalizeVersion } from './urn.ts';

/** How many instances of one function version and label stay reserved in one cluster. */
export interface ReservedCluster {
  readonly clusterId: string;
  readonly minInstance: number;
  readonly maxInstance: number;
}

/** The reserved instances of one label of a function version. */
export interface Reservation {
  readonly label: string;
  readonly clusters: readonly ReservedCluster[];
}

/** One cluster of a request; what was not sent is undefined. */
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

const readLabel = text({ maxChars: LIMITS.reservedLabelChars, required: true, pattern: LABEL, shape: LABEL_SHAPE });
const readCluster = text({ maxChars: LIMITS.clusterIdChars });
const readCount = integerOrDigits(0, LIMITS.functionInstances.max);

/** Reads the body of a create or update of reserved instances. `defaultCluster` is the cluster that is meant when none is named. */
export function readReservation(body: JsonObject, defaultCluster: string): Checked<ReservationRequest> {
  const problems = new Problems();
  const { funcName, version } = readBase(body, problems);
  const instanceLabel = readRequiredText(body, 'instanceLabel', problems);
  if (instanceLabel !== '') readLabel(instanceLabel, 'instanceLabel', problems.add);
  noteAsked(body, 'instanceConfigInfos');
  const clusters = readClusters(body.instanceConfigInfos, defaultCluster, problems);
  if (problems.any) return { ok: false, problems: problems.found };
  return { ok: true, value: { funcName, version, instanceLabel, clusters } };
}

/** Which reservations are meant by a query or a delete; `instanceLabel` `''` = all of the version. */
export function readReservationBase(source: JsonObject): Checked<Omit<ReservationRequest, 'clusters'>> {
  const problems = new Problems();
  const { funcName, version } = readBase(source, problems);
  const sent = source.instanceLabel;
  noteAsked(source, 'instanceLabel');
  const instanceLabel =
    sent === undefined || sent === null || sent === '' ? '' : (readLabel(sent, 'instanceLabel', problems.add) ?? '');
  return problems.any
    ? { ok: false, problems: problems.found }
    : { ok: true, value: { funcName, version, instanceLabel } };
}

function readBase(source: JsonObject, problems: Problems) {
  const funcName = readRequiredText(source, 'funcName', problems);
  const version = normalizeVersion(readRequiredText(source, 'version', problems));
  return { funcName, version };
}

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
    const read = <T>(
      name: string,
      reader: (value: unknown, path: string, problem: Problems['add']) => T | undefined,
    ) => {
      noteAsked(item, name);
      const value = item[name] ?? undefined;
      return value === undefined ? undefined : reader(value, `${path}.${name}`, problems.add);
    };
    const clusterId = read('clusterId', readCluster) || defaultCluster;
    const cluster = {
      clusterId,
      minInstance: read('minInstance', readCount),
      maxInstance: read('maxInstance', readCount),
    };
    if (seen.has(clusterId)) problems.add(`${path}.clusterId`, `repeats "${clusterId}"`);
    seen.add(clusterId);
    const { minInstance, maxInstance } = cluster;
    if (minInstance !== undefined && maxInstance !== undefined && minInstance > maxInstance) {
      problems.add(path, `minInstance must not be larger than maxInstance: ${minInstance} > ${maxInstance}`);
    }
    return [cluster];
  });
}

/** What a new reservation holds; an absent maximum is the function's own, or the minimum where that is larger. */
export function createClusters(requested: readonly ClusterRequest[], functionMax: number): ReservedCluster[] {
  return requested.map(({ clusterId, minInstance = 0, maxInstance }) => ({
    clusterId,
    minInstance,
    maxInstance: maxInstance ?? Math.max(minInstance, functionMax),
  }));
}

/**
 * A stored reservation with what an update changes: numbers that it does not send are kept, and so are clusters that it does
 * not name; a cluster that is new is created. Not ok when a minimum ends above its maximum.
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
  return problems.any ? { ok: false, problems: problems.found } : { ok: true, value: [...merged.values()] };
}
