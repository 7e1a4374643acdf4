import { randomUUID } from 'node:crypto';
import { resourceExhausted } from '../core/error.ts';
import { LIMITS } from '../core/limits.ts';
import type { TemplateSpec } from '../core/template.ts';
import type { Database } from '../storage/database.ts';
import {
  deleteTemplate,
  dropTemplateTags,
  findTemplateFiles,
  insertTemplateBuild,
  isNamed,
  listOpenBuilds,
  listTemplateBuilds,
  putTemplateFiles,
  putTemplateTags,
  tagsOf,
  updateTemplateBuild,
} from '../storage/queries/templates.ts';
import type { TemplateBuildTable } from '../storage/schema.ts';
import type { DurableWrites } from '../storage/writes/durable.ts';

/** Build of a template. */
export interface TemplateBuild {
  readonly id: string;
  readonly tenant: string;
  readonly templateId: string;
  readonly name: string;
  readonly status: TemplateBuildTable['status'];
  readonly reason: string;
  readonly step: string;
  /** Times of the assignments by tag, milliseconds since 1970. */
  readonly tags: Readonly<Record<string, number>>;
  /** The package with its files; `''`: it has none. */
  readonly sha256: string;
  readonly spec: TemplateSpec;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

/** The end of a build. */
export type TemplateOutcome =
  | {
      readonly status: 'ready';
      readonly sha256: string;
      readonly spec: TemplateSpec;
      readonly tags: readonly string[];
    }
  | { readonly status: 'error'; readonly reason: string; readonly step: string };

/** Records of the templates that tenants build. */
export class Templates {
  readonly #database: Database;
  readonly #writes: DurableWrites;

  constructor({ database, writes }: { readonly database: Database; readonly writes: DurableWrites }) {
    this.#database = database;
    this.#writes = writes;
  }

  /** Records a new build, which waits for its start. Fails with `resource_exhausted`. */
  async createBuild(tenant: string, name: string, spec: TemplateSpec): Promise<TemplateBuild> {
    const nowMs = Date.now();
    const row: TemplateBuildTable = {
      ...{ id: randomUUID(), tenant, name, status: 'waiting', reason: '', step: '', tags: '{}', sha256: '' },
      ...{ spec: JSON.stringify(spec), created_at_ms: nowMs, updated_at_ms: nowMs },
      template_id: randomUUID().replaceAll('-', '').slice(0, 20),
    };
    const { kept } = LIMITS.templateBuilds;
    const templateId = await this.#writes.write(insertTemplateBuild, row, kept);
    if (templateId === null)
      throw resourceExhausted(`there are ${kept} builds of templates already; delete a template`);
    return toBuild({ ...row, template_id: templateId });
  }

  /** Records that a build runs. Repeated every few seconds. Returns false if it was deleted or has ended. */
  async running(tenant: string, id: string): Promise<boolean> {
    const change = { status: 'building', updated_at_ms: Date.now() } as const;
    return await this.#writes.write(updateTemplateBuild, tenant, id, change, []);
  }

  /** Records the end of a build. Returns false if it was deleted or has ended already. */
  async end(tenant: string, id: string, outcome: TemplateOutcome): Promise<boolean> {
    const updated_at_ms = Date.now();
    if (outcome.status === 'error') {
      return await this.#writes.write(updateTemplateBuild, tenant, id, { ...outcome, updated_at_ms }, []);
    }
    const { status, sha256, spec, tags } = outcome;
    const change = { status, sha256, spec: JSON.stringify(spec), updated_at_ms };
    return await this.#writes.write(updateTemplateBuild, tenant, id, change, tags);
  }

  /** Returns all builds of a tenant, newest first. */
  async list(tenant: string): Promise<readonly TemplateBuild[]> {
    return (await listTemplateBuilds(this.#database, tenant)).map(toBuild);
  }

  /** Returns the builds with these ids, and all builds that have begun and not ended, of every tenant. */
  async openBuilds(ids: readonly string[]): Promise<readonly TemplateBuild[]> {
    return (await listOpenBuilds(this.#database, ids)).map(toBuild);
  }

  /** Returns all builds of the template with this name or id, newest first; none if it does not exist. */
  async builds(tenant: string, name: string): Promise<readonly TemplateBuild[]> {
    const rows = await listTemplateBuilds(this.#database, tenant);
    return rows.filter(row => isNamed(row, name)).map(toBuild);
  }

  /** Returns the finished build with this tag. null: there is none. */
  async find(tenant: string, name: string, tag: string): Promise<TemplateBuild | null> {
    return (await this.builds(tenant, name)).find(({ status, tags }) => status === 'ready' && tag in tags) ?? null;
  }

  /** Gives tags to the build that has the tag `from`. Returns its id; null if there is none. */
  async assignTags(tenant: string, name: string, from: string, tags: readonly string[]): Promise<string | null> {
    return await this.#writes.write(putTemplateTags, { tenant, name, from, tags, nowMs: Date.now() });
  }

  /** Removes tags. Returns false if the template has none of them. */
  async removeTags(tenant: string, name: string, tags: readonly string[]): Promise<boolean> {
    return await this.#writes.write(dropTemplateTags, { tenant, name, tags });
  }

  /** Deletes a template by name or id. Sandboxes that were made from it stay. */
  async delete(tenant: string, name: string): Promise<boolean> {
    return await this.#writes.write(deleteTemplate, tenant, name);
  }

  /** Records the package with the files that a client has uploaded under its own hash. */
  async putFiles(tenant: string, hash: string, sha256: string): Promise<void> {
    await this.#writes.write(putTemplateFiles, { tenant, hash, sha256, created_at_ms: Date.now() });
  }

  /** Returns the package with uploaded files, which may have been removed since; null if there is none. */
  async findFiles(tenant: string, hash: string): Promise<string | null> {
    return await findTemplateFiles(this.#database, tenant, hash);
  }
}

function toBuild(row: TemplateBuildTable): TemplateBuild {
  const { id, tenant, template_id: templateId, name, status, reason, step, sha256, spec } = row;
  return {
    ...{ id, tenant, templateId, name, status, reason, step, sha256 },
    tags: tagsOf(row),
    spec: JSON.parse(spec) as TemplateSpec,
    createdAtMs: Number(row.created_at_ms),
    updatedAtMs: Number(row.updated_at_ms),
  };
}
