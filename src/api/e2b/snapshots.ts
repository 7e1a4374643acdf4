import { randomBytes } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { readSnapshot, readSnapshotList } from '../../core/e2b-templates.ts';
import { invalidRequest, messageOf } from '../../core/error.ts';
import { DEFAULT_TAG } from '../../core/template.ts';
import { timeoutSignal } from '../../lib/deadline.ts';
import { queryOf } from '../../lib/query-pairs.ts';
import type { TemplateBuild, Templates } from '../../registry/templates.ts';
import { findTemplate } from '../../templates/templates.ts';
import { type SandboxFilesOptions, storeSandboxFiles } from '../sandbox-files.ts';
import { type AddRoute, bodyOf } from './control.ts';
import type { E2bSandbox } from './sandboxes.ts';
import { NEW_TEMPLATE } from './template-builds.ts';

export interface SnapshotOptions extends SandboxFilesOptions {
  readonly templates: Templates;
  readonly instances: Pick<AgentInstances, 'access'>;
  readonly timeoutMs: number;
  /** Returns a sandbox of the tenant. Fails with `not_found`. */
  readonly find: (tenant: string, sandboxId: string) => Promise<E2bSandbox>;
}

/**
 * Adds the routes of snapshots, which are templates with the files of a sandbox. `change` are the options of
 * routes that change a sandbox.
 */
export function addSnapshotRoutes(add: AddRoute, change: Parameters<AddRoute>[2], options: SnapshotOptions): void {
  add('POST', ['/sandboxes/:sandboxID/snapshots'], change, async (request, reply) =>
    reply.code(201).send(toSnapshot(await makeSnapshot(request, options))),
  );
  add('GET', ['/snapshots'], { access: 'read' }, async (request, reply) => await list(request, reply, options));
}

async function makeSnapshot(
  request: FastifyRequest<{ Params: { sandboxID: string } }>,
  { templates, instances, timeoutMs, find, ...stores }: SnapshotOptions,
): Promise<TemplateBuild> {
  const { tenant, params } = request;
  const { instance, id: snapshotOf } = await find(tenant, params.sandboxID);
  const { name } = readSnapshot(bodyOf(request));
  if (findTemplate(name) !== undefined) throw invalidRequest(`the template ${name} belongs to the service`);
  const { spec } = instance;
  if (spec.rootfs.type === 'image') {
    throw invalidRequest(`sandboxes of images have no snapshots: ${spec.template} begins with one`);
  }
  const access = await instances.access(tenant, instance.id);
  const variables = Object.entries(spec.env).filter((pair): pair is [string, string] => typeof pair[1] === 'string');
  const state = {
    ...{ ...NEW_TEMPLATE, base: spec.template ?? NEW_TEMPLATE.base, ...spec.built },
    ...{ env: Object.fromEntries(variables), cpuMillis: spec.cpuMillis, memoryMb: spec.memoryMb, snapshotOf },
  };
  const isNamed = name !== '';
  const build = await templates.createBuild(
    tenant,
    isNamed ? name : `snapshot-${randomBytes(8).toString('hex')}`,
    state,
  );
  try {
    const sha256 = await storeSandboxFiles(stores, tenant, access, timeoutSignal(timeoutMs));
    const ready = { status: 'ready', sha256, spec: { ...state, isNamed }, tags: [DEFAULT_TAG] } as const;
    await templates.end(tenant, build.id, ready);
    return { ...build, ...ready, tags: {} };
  } catch (error) {
    await templates.end(tenant, build.id, { status: 'error', reason: messageOf(error), step: 'base' });
    throw error;
  }
}

async function list({ tenant, raw }: FastifyRequest, reply: FastifyReply, { templates }: SnapshotOptions) {
  const query = readSnapshotList(new URLSearchParams(queryOf(raw.url ?? '')));
  const all = (await templates.list(tenant)).filter(({ status, spec, name }) => {
    const { snapshotOf } = spec;
    if (status !== 'ready' || snapshotOf === undefined) return false;
    if (query.sandboxId !== '' && query.sandboxId !== snapshotOf) return false;
    return query.name === '' || query.name === name;
  });
  const start = query.nextToken === '' ? 0 : all.findIndex(({ id }) => id === query.nextToken);
  if (start < 0) throw invalidRequest('invalid query: nextToken names no snapshot');
  const next = all[start + query.limit];
  if (next !== undefined) reply.header('x-next-token', next.id);
  return all.slice(start, start + query.limit).map(toSnapshot);
}

function toSnapshot({ templateId, name, spec }: TemplateBuild): Record<string, unknown> {
  return {
    snapshotID: `${templateId}:${DEFAULT_TAG}`,
    names: spec.isNamed === true ? [`${name}:${DEFAULT_TAG}`] : [],
  };
}
