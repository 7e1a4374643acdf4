import { alone } from '../alone.ts';
import type { Database, WriteTransaction } from '../database.ts';
import type { TemplateBuildTable, TemplateFilesTable } from '../schema.ts';

/** Age of an uploaded archive after which clients upload it again. */
const FILES_MS = 30 * 24 * 3_600_000;
/** Age of a build without tags after which its record is deleted. */
const UNTAGGED_MS = 24 * 3_600_000;

const lockOf = (tenant: string) => `templates: ${tenant}`;

/** The fields of a build that change until its end. */
export type TemplateBuildChange = Pick<TemplateBuildTable, 'status' | 'updated_at_ms'> &
  Partial<Pick<TemplateBuildTable, 'reason' | 'step' | 'sha256' | 'spec'>>;

/**
 * Stores a build, which gets the template id of earlier builds of its name. Deletes old builds without tags.
 * Returns the template id; null when the tenant has `most` builds already, or this one.
 */
export async function insertTemplateBuild(
  transaction: WriteTransaction,
  row: TemplateBuildTable,
  most: number,
): Promise<string | null> {
  await alone(transaction, lockOf(row.tenant));
  await transaction
    .deleteFrom('template_builds')
    .where('tenant', '=', row.tenant)
    .where('tags', '=', '{}')
    .where('updated_at_ms', '<', row.created_at_ms - UNTAGGED_MS)
    .execute();
  const builds = await buildsOfTenant(transaction, row.tenant);
  if (builds.length >= most) return null;
  const templateId = builds.find(({ name }) => name === row.name)?.template_id ?? row.template_id;
  const inserted = await transaction
    .insertInto('template_builds')
    .values({ ...row, template_id: templateId })
    .onConflict(conflict => conflict.doNothing())
    .returning('id')
    .execute();
  return inserted.length === 1 ? templateId : null;
}

/**
 * Changes a build that has not ended, and gives it the tags `tags` of the template. Returns false when it
 * does not exist or has ended.
 */
export async function updateTemplateBuild(
  transaction: WriteTransaction,
  tenant: string,
  id: string,
  change: TemplateBuildChange,
  tags: readonly string[],
): Promise<boolean> {
  await alone(transaction, lockOf(tenant));
  const build = (await buildsOfTenant(transaction, tenant)).find(each => each.id === id);
  if (build === undefined || build.status === 'ready' || build.status === 'error') return false;
  await transaction.updateTable('template_builds').set(change).where('id', '=', id).execute();
  if (tags.length > 0) await moveTags(transaction, build, tags, change.updated_at_ms);
  return true;
}

/** Gives tags to the build of a template that has the tag `from`. Returns the build's id, or null. */
export async function putTemplateTags(
  transaction: WriteTransaction,
  { tenant, name, from, tags, nowMs }: TagChange & { readonly from: string; readonly nowMs: number },
): Promise<string | null> {
  await alone(transaction, lockOf(tenant));
  const builds = await buildsOfTenant(transaction, tenant);
  const build = builds.find(each => isNamed(each, name) && from in tagsOf(each));
  if (build === undefined) return null;
  await moveTags(transaction, build, tags, nowMs);
  return build.id;
}

/** Deletes tags of a template. Returns false when it has none of them. */
export async function dropTemplateTags(
  transaction: WriteTransaction,
  { tenant, name, tags }: TagChange,
): Promise<boolean> {
  await alone(transaction, lockOf(tenant));
  const builds = (await buildsOfTenant(transaction, tenant)).filter(each => isNamed(each, name));
  return (await removeTags(transaction, builds, tags)) > 0;
}

/** Deletes all builds of a template. Returns false when it does not exist. */
export async function deleteTemplate(transaction: WriteTransaction, tenant: string, name: string): Promise<boolean> {
  await alone(transaction, lockOf(tenant));
  const { numDeletedRows } = await transaction
    .deleteFrom('template_builds')
    .where('tenant', '=', tenant)
    .where(eb => eb.or([eb('name', '=', name), eb('template_id', '=', name)]))
    .executeTakeFirstOrThrow();
  return numDeletedRows > 0n;
}

/** Stores the package of uploaded files, in place of an older one of the same hash. */
export async function putTemplateFiles(transaction: WriteTransaction, row: TemplateFilesTable): Promise<void> {
  await alone(transaction, lockOf(row.tenant));
  await transaction
    .deleteFrom('template_files')
    .where('tenant', '=', row.tenant)
    .where(eb => eb.or([eb('hash', '=', row.hash), eb('created_at_ms', '<', row.created_at_ms - FILES_MS)]))
    .execute();
  await transaction.insertInto('template_files').values(row).execute();
}

/** Returns the package of uploaded files; null when there is none. */
export async function findTemplateFiles(database: Database, tenant: string, hash: string): Promise<string | null> {
  const row = await database
    .selectFrom('template_files')
    .select('sha256')
    .where('tenant', '=', tenant)
    .where('hash', '=', hash)
    .executeTakeFirst();
  return row?.sha256 ?? null;
}

/** Returns a tenant's builds, newest first. */
export async function listTemplateBuilds(database: Database, tenant: string): Promise<readonly TemplateBuildTable[]> {
  return await buildsOfTenant(database, tenant);
}

/** Returns the builds with these ids, and all builds that have begun and not ended, of every tenant. */
export async function listOpenBuilds(database: Database, ids: readonly string[]): Promise<TemplateBuildTable[]> {
  return await database
    .selectFrom('template_builds')
    .selectAll()
    .where(eb => eb.or([eb('status', '=', 'building'), ...(ids.length > 0 ? [eb('id', 'in', ids)] : [])]))
    .execute();
}

/** Returns true if the build is of the template with this name or id. */
export function isNamed(build: Pick<TemplateBuildTable, 'name' | 'template_id'>, name: string): boolean {
  return build.name === name || build.template_id === name;
}

/** Returns the time of the assignment by tag. */
export function tagsOf({ tags }: Pick<TemplateBuildTable, 'tags'>): Readonly<Record<string, number>> {
  return JSON.parse(tags) as Record<string, number>;
}

interface TagChange {
  readonly tenant: string;
  /** Name or id of the template. */
  readonly name: string;
  readonly tags: readonly string[];
}

async function buildsOfTenant(queries: Pick<Database, 'selectFrom'>, tenant: string): Promise<TemplateBuildTable[]> {
  return await queries
    .selectFrom('template_builds')
    .selectAll()
    .where('tenant', '=', tenant)
    .orderBy('created_at_ms', 'desc')
    .orderBy('id')
    .execute();
}

/** Gives tags to a build, and takes them from the other builds of its template. */
async function moveTags(
  transaction: WriteTransaction,
  build: TemplateBuildTable,
  tags: readonly string[],
  nowMs: number,
): Promise<void> {
  const builds = await buildsOfTenant(transaction, build.tenant);
  const others = builds.filter(each => each.template_id === build.template_id && each.id !== build.id);
  await removeTags(transaction, others, tags);
  await writeTags(transaction, build.id, { ...tagsOf(build), ...Object.fromEntries(tags.map(tag => [tag, nowMs])) });
}

/** Returns the number of removed tags. */
async function removeTags(
  transaction: WriteTransaction,
  builds: readonly TemplateBuildTable[],
  tags: readonly string[],
): Promise<number> {
  let removed = 0;
  for (const build of builds) {
    const all = Object.entries(tagsOf(build));
    const left = all.filter(([tag]) => !tags.includes(tag));
    if (left.length === all.length) continue;
    removed += all.length - left.length;
    await writeTags(transaction, build.id, Object.fromEntries(left));
  }
  return removed;
}

async function writeTags(transaction: WriteTransaction, id: string, tags: Record<string, number>): Promise<void> {
  await transaction
    .updateTable('template_builds')
    .set({ tags: JSON.stringify(tags) })
    .where('id', '=', id)
    .execute();
}
