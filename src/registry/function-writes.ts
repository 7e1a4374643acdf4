import { codeUrl } from '../core/code-package.ts';
import { codePackageOf, type FunctionSpec, type FunctionUpdate, mergeUpdate } from '../core/function.ts';
import { lambdaLayersOf } from '../core/lambda-layers.ts';
import { LIMITS } from '../core/limits.ts';
import {
  DEFAULT_VERSION_GAP_MS,
  defaultVersionNumber,
  formatTimestamp,
  nextRevisionId,
  type PublishRequest,
} from '../core/revision.ts';
import { formatUrn, isVersionNumber, LATEST, VERSION_FORMAT } from '../core/urn.ts';
import type { WriteTransaction } from '../storage/database.ts';
import { useCodePackage } from '../storage/queries/code-packages.ts';
import {
  aloneWithFunction,
  deleteVersions,
  hasVersion,
  holdLatest,
  insertVersion,
  type NewFunctionRow,
  noteDefaultPublish,
  publishedVersions,
  updateLatest,
} from '../storage/queries/functions.ts';
import { deleteReservations } from '../storage/queries/reservations.ts';
import { missingSecret } from '../storage/queries/secrets.ts';
import { publishChange } from './change-feed.ts';
import {
  duplicateVersion,
  functionExists,
  functionNotFound,
  staleRevision,
  tooManyVersions,
  versionNotFound,
  wrongForStored,
} from './errors.ts';
import { fromStored, toStored } from './function-record.ts';

/** Written version, with its record as JSON text. */
export interface WrittenFunction {
  readonly urn: string;
  readonly record: string;
}

/**
 * Changes of functions: write operations of `DurableWrites`. Exactly one of several concurrent changes with
 * the same name, number or revision wins. `FunctionRegistry` lists their errors.
 */
export async function registerFunction(
  transaction: WriteTransaction,
  row: NewFunctionRow,
  nowMs: number,
): Promise<void> {
  await aloneWithFunction(transaction, row.tenant, row.name);
  await holdUsed(transaction, row.tenant, fromStored(row).spec, nowMs);
  if (!(await insertVersion(transaction, row))) throw functionExists(row.name);
  await publishChange(transaction, row.tenant, row.name);
}

export async function publishFunction(
  transaction: WriteTransaction,
  tenant: string,
  name: string,
  request: PublishRequest,
  nowMs: number,
): Promise<WrittenFunction & { readonly version: string }> {
  await aloneWithFunction(transaction, tenant, name);
  const latest = await holdLatest(transaction, tenant, name);
  if (latest === null) throw functionNotFound(name);
  const fn = fromStored(latest);
  if (request.kind !== '' && request.kind !== fn.spec.kind) {
    throw wrongForStored(`kind of ${name} is "${fn.spec.kind}", got "${request.kind}"`);
  }
  if (request.revisionId !== fn.revisionId) throw staleRevision();
  const isDefault = request.versionNumber === '';
  const version = isDefault ? defaultVersionNumber(nowMs) : request.versionNumber;
  if (!isVersionNumber(version)) {
    throw wrongForStored(`versionNumber must be ${VERSION_FORMAT}; got "${version}"`);
  }
  const previousMs = Number(latest.default_published_at_ms);
  if (isDefault && previousMs !== 0 && Math.abs(nowMs - previousMs) <= DEFAULT_VERSION_GAP_MS) {
    throw duplicateVersion(name);
  }
  const versions = await publishedVersions(transaction, tenant, name);
  if (versions.includes(version)) throw duplicateVersion(name);
  if (versions.length >= LIMITS.publishedVersions) throw tooManyVersions(LIMITS.publishedVersions);
  const urn = formatUrn({ business: fn.business, tenant, name, version });
  const { versionDesc } = request;
  await holdUsed(transaction, tenant, fn.spec, nowMs);
  const row = toStored({ ...fn, version, urn, versionDesc, publishTime: formatTimestamp(nowMs), updateTime: '' });
  if (!(await insertVersion(transaction, { ...row, default_published_at_ms: 0 }))) throw duplicateVersion(name);
  if (isDefault) await noteDefaultPublish(transaction, tenant, name, nowMs);
  await publishChange(transaction, tenant, name);
  return { version, urn, record: row.record };
}

export async function updateFunction(
  transaction: WriteTransaction,
  tenant: string,
  name: string,
  { revisionId, changes }: FunctionUpdate,
  nowMs: number,
): Promise<WrittenFunction> {
  await aloneWithFunction(transaction, tenant, name);
  const latest = await holdLatest(transaction, tenant, name);
  if (latest === null) throw functionNotFound(name);
  const fn = fromStored(latest);
  if (revisionId !== fn.revisionId) throw staleRevision();
  const merged = mergeUpdate(fn.spec, changes);
  if (!merged.ok) throw wrongForStored(merged.problems.join('; '));
  await holdUsed(transaction, tenant, merged.value, nowMs);
  const row = toStored({
    ...fn,
    spec: merged.value,
    revisionId: nextRevisionId(nowMs, fn.revisionId),
    updateTime: formatTimestamp(nowMs),
  });
  await updateLatest(transaction, { ...row, default_published_at_ms: latest.default_published_at_ms });
  await publishChange(transaction, tenant, name);
  return { urn: fn.urn, record: row.record };
}

/** Deletes one published version; null: the whole function. */
export async function deleteFunction(
  transaction: WriteTransaction,
  tenant: string,
  name: string,
  version: string | null,
): Promise<void> {
  await aloneWithFunction(transaction, tenant, name);
  const gone = await deleteVersions(transaction, tenant, name, version);
  if (gone.length === 0) {
    const known = version !== null && (await hasVersion(transaction, { tenant, name, version: LATEST }));
    if (known) throw versionNotFound(name, version, await publishedVersions(transaction, tenant, name));
    throw functionNotFound(name);
  }
  await deleteReservations(transaction, tenant, name, version, null);
  await publishChange(transaction, tenant, name);
}

/**
 * Checks that the packages and the secrets of a function exist, in the transaction that writes the reference.
 * From then on the reference protects them from removal.
 */
async function holdUsed(
  transaction: WriteTransaction,
  tenant: string,
  spec: FunctionSpec,
  nowMs: number,
): Promise<void> {
  const sha256 = codePackageOf(spec);
  if (sha256 !== null && !(await useCodePackage(transaction, tenant, sha256, nowMs))) {
    throw wrongForStored(`codePath: the code package does not exist: ${spec.codePath}`);
  }
  for (const layer of lambdaLayersOf(spec)) {
    if (await useCodePackage(transaction, tenant, layer, nowMs)) continue;
    throw wrongForStored(`layers: the code package does not exist: ${codeUrl(layer)}`);
  }
  const missing = await missingSecret(transaction, tenant, spec.environment);
  if (missing !== null) {
    throw wrongForStored(`environment.${missing.variable}: secret does not exist: ${missing.secret}`);
  }
}
