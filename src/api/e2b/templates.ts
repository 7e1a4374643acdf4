import { createHmac } from 'node:crypto';
import { rm } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { Transform } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import {
  checkTemplateName,
  isFilesHash,
  parseTemplateName,
  readTagAssign,
  readTagDrop,
  readTemplateBegin,
  readTemplateStart,
  templateMissing,
} from '../../core/e2b-templates.ts';
import { invalidRequest } from '../../core/error.ts';
import { LIMITS } from '../../core/limits.ts';
import { isRefusal } from '../../http/access/credentials.ts';
import { E2B_PREFIX } from '../../http/access/sandbox-host.ts';
import { forwardedOf } from '../../http/forwarding.ts';
import { drained } from '../../http/limits/drained.ts';
import type { OwnGate } from '../../http/route-config.ts';
import { streamToFile } from '../../lib/file-writes.ts';
import { queryOf } from '../../lib/query-pairs.ts';
import type { TemplateBuild, Templates } from '../../registry/templates.ts';
import { FILES_NAME } from '../../templates/built.ts';
import { findTemplate } from '../../templates/templates.ts';
import { LIVES_WITH_WORKER } from '../lives-with.ts';
import { schemeOf } from '../passthrough/addresses.ts';
import { ENVD_VERSION, refused } from './answers.ts';
import { type AddRoute, bodyOf } from './control.ts';
import { isSameText } from './sandboxes.ts';
import { NEW_TEMPLATE, type TemplateBuilds, type TemplateBuildsOptions } from './template-builds.ts';
import { INTERRUPTED } from './template-cleanup.ts';

export interface TemplateRoutesOptions extends Pick<TemplateBuildsOptions, 'templates' | 'files' | 'packages'> {
  readonly builds: TemplateBuilds;
  /** Signs URLs of uploads. */
  readonly key: Buffer;
}

const UPLOAD_URL = `${E2B_PREFIX}/template-files/:hash`;
const UPLOAD_MS = 3_600_000;
/** Entries of a log in one answer. */
const MAX_LOG_ENTRIES = 100;

type Params = Readonly<Record<string, string>>;
const paramsOf = ({ params }: FastifyRequest) => params as Params;
const nameIn = (params: Params) => parseTemplateName(params.templateID ?? '').name;

/** Adds the routes of templates that tenants build. */
export function addTemplateRoutes(app: FastifyInstance, add: AddRoute, options: TemplateRoutesOptions): void {
  const { templates, builds } = options;
  const read = { access: 'read' } as const;
  const write = { access: 'write' } as const;
  const { begin, start, status, upload } = buildHandlers(options);
  add('POST', ['/v3/templates'], write, begin);
  add('POST', ['/v2/templates/:templateID/builds/:buildID'], { ...write, livesWith: LIVES_WITH_WORKER }, start);
  add('GET', ['/templates/:templateID/builds/:buildID/status'], read, status);
  add('GET', ['/templates/:templateID/files/:hash'], write, upload);
  const list = async ({ tenant }: FastifyRequest) =>
    listOf((await templates.list(tenant)).filter(({ spec }) => spec.snapshotOf === undefined));
  add('GET', ['/templates', '/v2/templates'], read, list);
  add('DELETE', ['/templates/:templateID'], write, async (request, reply) => {
    const name = nameIn(paramsOf(request));
    if (!(await templates.delete(request.tenant, name))) throw templateMissing(name);
    builds.removeUnused();
    return reply.code(204).send();
  });
  addTagRoutes(add, options);
  addUploadRoute(app, options);
}

/** Adds the route that answers whether a template exists. */
export function addAliasRoute(add: AddRoute, templates: Pick<Templates, 'builds'>): void {
  add('GET', ['/templates/aliases/:alias'], { access: 'read' }, async request => {
    const { name } = parseTemplateName(paramsOf(request).alias ?? '');
    if (findTemplate(name) !== undefined) return { templateID: name, public: true };
    const ready = (await templates.builds(request.tenant, name)).find(build => build.status === 'ready');
    if (ready === undefined) throw templateMissing(name);
    return { templateID: ready.templateId, public: false };
  });
}

function addTagRoutes(add: AddRoute, { templates, builds }: TemplateRoutesOptions): void {
  add('POST', ['/templates/tags'], { access: 'write' }, async (request, reply) => {
    const { target, tags } = readTagAssign(bodyOf(request));
    const buildID = await templates.assignTags(request.tenant, target.name, target.tag, tags);
    if (buildID === null) throw templateMissing(`${target.name}:${target.tag}`);
    builds.removeUnused();
    return reply.code(201).send({ tags, buildID });
  });
  add('DELETE', ['/templates/tags'], { access: 'write' }, async (request, reply) => {
    const { name, tags } = readTagDrop(bodyOf(request));
    if (!(await templates.removeTags(request.tenant, name, tags))) throw templateMissing(`${name}:${tags[0]}`);
    builds.removeUnused();
    return reply.code(204).send();
  });
  add('GET', ['/templates/:templateID/tags'], { access: 'read' }, async request => {
    const name = nameIn(paramsOf(request));
    const builds = await templates.builds(request.tenant, name);
    if (builds.length === 0) throw templateMissing(name);
    const tags = builds.flatMap(({ id, tags }) => Object.entries(tags).map(([tag, atMs]) => ({ tag, id, atMs })));
    return tags
      .toSorted((one, other) => other.atMs - one.atMs)
      .map(({ tag, id, atMs }) => ({ tag, buildID: id, createdAt: new Date(atMs).toISOString() }));
  });
}

function buildHandlers({ templates, builds, packages, key }: TemplateRoutesOptions) {
  const find = async (request: FastifyRequest) => {
    const { templateID = '', buildID } = paramsOf(request);
    const build = (await templates.builds(request.tenant, templateID)).find(({ id }) => id === buildID);
    if (build === undefined) throw templateMissing(templateID);
    return build;
  };

  const begin = async (request: FastifyRequest, reply: FastifyReply) => {
    const { name, tags, cpuMillis, memoryMb } = readTemplateBegin(bodyOf(request));
    checkTemplateName({ name }, tags);
    if (findTemplate(name) !== undefined) throw invalidRequest(`the template ${name} belongs to the service`);
    const spec = { ...NEW_TEMPLATE, cpuMillis, memoryMb, tags };
    const build = await templates.createBuild(request.tenant, name, spec);
    const names = { aliases: [name], names: [name], tags };
    return reply.code(202).send({ templateID: build.templateId, buildID: build.id, public: false, ...names });
  };

  const start = async (request: FastifyRequest, reply: FastifyReply) => {
    const build = await find(request);
    await builds.startBuild(request.tenant, build, build.spec.tags ?? [], readTemplateStart(bodyOf(request)));
    return reply.code(202).send();
  };

  const status = async (request: FastifyRequest) => {
    const build = await find(request);
    const offset = Number(new URLSearchParams(queryOf(request.raw.url ?? '')).get('logsOffset') ?? 0);
    if (!Number.isInteger(offset) || offset < 0) throw invalidRequest('invalid query: logsOffset must be 0 or more');
    const shown = builds.isLost(build) ? { ...build, ...INTERRUPTED } : build;
    const reason = shown.status === 'error' ? { reason: { message: shown.reason, step: shown.step } } : {};
    const logEntries = builds.log(build, offset, MAX_LOG_ENTRIES);
    return { templateID: build.templateId, buildID: build.id, status: shown.status, logs: [], logEntries, ...reason };
  };

  const upload = async (request: FastifyRequest, reply: FastifyReply) => {
    const { hash = '' } = paramsOf(request);
    if (!isFilesHash(hash)) throw invalidRequest('the hash of files must have 64 hexadecimal digits');
    const sha256 = await templates.findFiles(request.tenant, hash);
    const present = sha256 !== null && (await packages.find(request.tenant, sha256)) !== null;
    const until = Date.now() + UPLOAD_MS;
    const query = new URLSearchParams({ tenant: request.tenant, until: String(until) });
    query.set('signature', signUpload(key, hash, query));
    const origin = `${schemeOf(request.raw)}://${request.headers.host ?? ''}`;
    return reply
      .code(201)
      .send({ present, url: `${origin}${UPLOAD_URL.replace(':hash', hash)}?${query}`, headers: {} });
  };

  return { begin, start, status, upload };
}

function signUpload(key: Buffer, hash: string, query: URLSearchParams): string {
  const covered = JSON.stringify(['e2b-upload', hash, query.get('tenant'), query.get('until')]);
  return createHmac('sha256', key).update(covered).digest('hex');
}

/** Adds the route to which clients send files of a build. Its URL is signed, and needs no key. */
function addUploadRoute(app: FastifyInstance, { templates, files, packages, key }: TemplateRoutesOptions): void {
  const route = { url: UPLOAD_URL, access: 'public', longLived: true, livesWith: LIVES_WITH_WORKER } as const;
  const gate: OwnGate = async ({ raw, params }) => {
    const by = forwardedOf(raw);
    if (by !== undefined) return { tenant: by.tenant, role: by.role, untilMs: by.untilMs, route };
    const verdict = await app.gate(raw, route);
    if (isRefusal(verdict)) return verdict;
    const tenant = tenantOfUpload(raw, (params as Params).hash ?? '', key);
    if (tenant !== null) return { tenant, role: 'developer', route };
    await drained(raw);
    return refused(401, 'the URL of the upload is not valid, or has expired');
  };
  app.register(async scope => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
    scope.put<{ Params: { hash: string } }>(
      UPLOAD_URL,
      { config: { ...route, gate } },
      async ({ tenant, params, raw }, reply) => {
        const path = files.newPath();
        try {
          await streamToFile([raw, bounded(packages.maxBytes)], path, { flags: 'wx', mode: 0o600 });
          await templates.putFiles(tenant, params.hash, await files.put(tenant, FILES_NAME, path));
          return reply.code(200).send();
        } finally {
          raw.resume();
          await rm(path, { force: true });
        }
      },
    );
  });
}

function tenantOfUpload(raw: IncomingMessage, hash: string, key: Buffer): string | null {
  const query = new URLSearchParams(queryOf(raw.url ?? ''));
  if (!isFilesHash(hash) || !isSameText(query.get('signature') ?? '', signUpload(key, hash, query))) return null;
  return Number(query.get('until')) > Date.now() ? query.get('tenant') : null;
}

/** Drops bytes above the bound, and fails at the end then, so that the client can read the answer. */
function bounded(maxBytes: number): Transform {
  let bytes = 0;
  return new Transform({
    transform: (chunk: Buffer, _encoding, done) => {
      bytes += chunk.length;
      done(null, bytes > maxBytes ? undefined : chunk);
    },
    flush: done => {
      const most = `the files are larger than ${maxBytes} bytes`;
      done(bytes > maxBytes ? invalidRequest(most, { number: 413 }) : null);
    },
  });
}

/** Returns the templates of a tenant's builds, newest first. */
function listOf(builds: readonly TemplateBuild[]): readonly Record<string, unknown>[] {
  const ids = [...new Set(builds.map(({ templateId }) => templateId))];
  return ids.map(id => {
    const own = builds.filter(({ templateId }) => templateId === id);
    return templateView(own[0] as TemplateBuild, own);
  });
}

function templateView(newest: TemplateBuild, all: readonly TemplateBuild[]): Record<string, unknown> {
  const { templateId, name, spec } = newest;
  const memoryMB = spec.memoryMb ?? LIMITS.memoryMb.default;
  return {
    ...{ templateID: templateId, buildID: newest.id, public: false, aliases: [name], names: [name] },
    cpuCount: Math.max(1, Math.ceil((spec.cpuMillis ?? LIMITS.cpuMillis.default) / 1000)),
    ...{ memoryMB, diskSizeMB: memoryMB, envdVersion: ENVD_VERSION },
    createdAt: new Date(Math.min(...all.map(({ createdAtMs }) => createdAtMs))).toISOString(),
    updatedAt: new Date(Math.max(...all.map(({ updatedAtMs }) => updatedAtMs))).toISOString(),
    ...{ createdBy: null, lastSpawnedAt: null, spawnCount: 0, buildCount: all.length, buildStatus: newest.status },
  };
}
