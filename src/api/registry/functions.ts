import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { FUNCTION_REGISTER, FUNCTION_UPDATE, readRegister, readUpdate } from '../../core/function.ts';
import { LIMITS } from '../../core/limits.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { PUBLISH, readPublish } from '../../core/revision.ts';
import { LATEST } from '../../core/urn.ts';
import { JSON_TYPE, withWarnings } from '../../http/answer.ts';
import { wrongRequest } from '../../registry/errors.ts';
import { knownName, type NamedFunction, readFunctionName } from '../../registry/function-record.ts';
import type { Registry } from '../../registry/registry.ts';
import { FUNCTION_DOCS } from './docs.ts';
import {
  FUNCTION_DELETE_QUERY,
  FUNCTION_QUERY,
  FUNCTIONS_QUERY,
  readNoFields,
  readRequest,
  VERSIONS_QUERY,
  warningsMember,
} from './requests.ts';

interface ByName {
  Params: { name: string };
  Querystring: Sent;
}

/** The specification lists no 400 for these operations. */
const wrongRequestStatus = 200;

/**
 * Adds operations 5 to 8 of the specification (query, list, publish), and update and delete.
 * Records are sent as the stored bytes.
 */
export function addFunctionRoutes(app: FastifyInstance, registry: Registry): void {
  const { functions, business } = registry;
  const listing = registry.listing((total, records) =>
    Buffer.from(`{"code":0,"message":"","result":{"total":${total},"functions":[${records.join(',')}]}}`),
  );
  const named = (request: FastifyRequest<ByName>): NamedFunction =>
    readFunctionName(request.params.name, request.tenant, business);

  app.get<{ Querystring: Sent }>(
    '/serverless/v1/functions',
    { config: { access: 'read', wrongRequestStatus, docs: FUNCTION_DOCS.list } },
    async (request, reply) => {
      const { versionNumber, name, pageIndex, pageSize } = readParameters(FUNCTIONS_QUERY, request.query);
      const filter = { tenant: request.tenant, version: versionNumber, namePart: name };
      return reply.type(JSON_TYPE).send(await listing.page(filter, pageIndex.index, pageSize));
    },
  );

  app.get<ByName>(
    '/serverless/v1/functions/:name',
    { config: { access: 'read', docs: FUNCTION_DOCS.get } },
    async (request, reply) => {
      const { versionNumber } = readParameters(FUNCTION_QUERY, request.query);
      const fn = named(request);
      const version = oneVersion(fn.version, versionNumber);
      if (version === null) throw wrongRequest(['versionNumber is required']);
      return sendFunction(reply, await functions.read(request.tenant, knownName(fn), version));
    },
  );

  app.put<ByName>(
    '/serverless/v1/functions/:name',
    { config: { access: 'write', docs: FUNCTION_DOCS.update } },
    async (request, reply) => {
      const update = readRequest(request, FUNCTION_UPDATE, readUpdate);
      const fn = named(request);
      onlyLatest(fn, 'updated');
      if (update.changes.name !== undefined && update.changes.name !== fn.name) {
        throw wrongRequest([`name of a function cannot change: it is "${fn.name}", got "${update.changes.name}"`]);
      }
      return sendFunction(reply, (await functions.update(request.tenant, knownName(fn), update)).record);
    },
  );

  app.delete<ByName>(
    '/serverless/v1/functions/:name',
    { config: { access: 'write', docs: FUNCTION_DOCS.delete } },
    async request => {
      readNoFields(request);
      const { versionNumber } = readParameters(FUNCTION_DELETE_QUERY, request.query);
      const fn = named(request);
      const version = oneVersion(fn.version, versionNumber) ?? LATEST;
      await functions.delete(request.tenant, knownName(fn), version);
      return withWarnings({ code: 0, message: 'SUCCESS' }, request.warnings);
    },
  );
  addVersionRoutes(app, registry);
}

/** Adds the routes that list and publish the versions of a function. */
function addVersionRoutes(app: FastifyInstance, { functions, business }: Registry): void {
  const named = (request: FastifyRequest<ByName>): NamedFunction =>
    readFunctionName(request.params.name, request.tenant, business);

  app.get<ByName>(
    '/serverless/v1/functions/:name/versions',
    { config: { access: 'read', wrongRequestStatus, docs: FUNCTION_DOCS.versions } },
    async (request, reply) => {
      const { pageIndex, pageSize } = readParameters(VERSIONS_QUERY, request.query);
      const { total, records } = await versionsOf(request, pageIndex.index, pageSize);
      const list = total === 0 ? 'null' : `[${records.join(',')}]`;
      const pageInfo = JSON.stringify({ total, pageSize: String(pageSize), pageIndex: pageIndex.text });
      return sendJson(reply, `{"code":0,"message":"","functions":${list},"pageInfo":${pageInfo}}`);
    },
  );

  app.post<ByName>(
    '/serverless/v1/functions/:name/versions',
    { config: { access: 'write', wrongRequestStatus, docs: FUNCTION_DOCS.publish } },
    async (request, reply) => {
      const publish = readRequest(request, PUBLISH, readPublish);
      const fn = named(request);
      onlyLatest(fn, 'published');
      return sendFunction(reply, (await functions.publish(request.tenant, knownName(fn), publish)).record);
    },
  );

  /** Returns the versions of a function. Another tenant's function has none, like one that does not exist. */
  async function versionsOf(request: FastifyRequest<ByName>, pageIndex: number, pageSize: number) {
    const { name, foreignUrn } = named(request);
    if (foreignUrn !== null) return { total: 0, records: [] };
    return functions.versions(request.tenant, name, pageIndex, pageSize);
  }
}

/**
 * Returns the version of the URN or of the query; null if neither names one. Both may be present if they
 * agree.
 */
function oneVersion(ofUrn: string | null, asked: string): string | null {
  if (asked === '') return ofUrn;
  if (ofUrn !== null && ofUrn !== asked) {
    throw wrongRequest([`versionNumber "${asked}" and the version "${ofUrn}" of the URN differ`]);
  }
  return asked;
}

function onlyLatest(fn: NamedFunction, done: string): void {
  if (fn.version === null || fn.version === LATEST) return;
  throw wrongRequest([`only ${LATEST} can be ${done}, and the URN names the version "${fn.version}"`]);
}

function sendFunction(reply: FastifyReply, record: string): FastifyReply {
  return sendJson(
    reply,
    `{"code":0,"message":"SUCCESS","function":${record}${warningsMember(reply.request.warnings)}}`,
  );
}

function sendJson(reply: FastifyReply, text: string): FastifyReply {
  return reply.type(JSON_TYPE).send(text);
}

/** Adds operation 4 of the specification: register. */
export function addRegisterRoute(app: FastifyInstance, { functions }: Registry): void {
  app.post(
    '/serverless/v1/functions',
    { bodyLimit: LIMITS.requestBodyBytes, config: { access: 'write', docs: FUNCTION_DOCS.register } },
    async (request, reply) => {
      const wanted = readRequest(request, FUNCTION_REGISTER, readRegister);
      const { urn, record } = await functions.register(request.tenant, wanted);
      const warnings = warningsMember(request.warnings);
      reply.type(JSON_TYPE);
      return `{"code":0,"message":"SUCCESS","functionVersionUrn":${JSON.stringify(urn)},"function":${record}${warnings}}`;
    },
  );
}
