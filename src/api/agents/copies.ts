import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import type { FastifyInstance } from 'fastify';
import tar from 'tar-stream';
import type { AgentInstances } from '../../agents/contract.ts';
import { boundHeaders } from '../../code/tar-headers.ts';
import { readAgentCreate } from '../../core/agent.ts';
import { COPY_FILES, createBodyOf, describeCopy, MOST_COPY_BYTES, readCopy } from '../../core/agent-copy.ts';
import { ownOf } from '../../core/agent-update.ts';
import { alarmJson } from '../../core/alarm.ts';
import { invalidRequest, messageOf } from '../../core/error.ts';
import type { InstanceSpec } from '../../core/instance.ts';
import type { JsonObject } from '../../core/json.ts';
import { LIMITS } from '../../core/limits.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { withWarnings } from '../../http/answer.ts';
import { isJson } from '../../lib/json-bytes.ts';
import { newRequestId } from '../../lib/random-ids.ts';
import { LIVES_WITH_WORKER } from '../lives-with.ts';
import { type CreateRouteOptions, resolveSpec } from './create.ts';
import { IMPORT_QUERY } from './parameters.ts';
import { SLEEP_DOCS } from './sleep-docs.ts';

interface CopyRouteOptions extends Omit<CreateRouteOptions, 'instances'> {
  readonly instances: Pick<AgentInstances, 'copies'>;
}

const NO_FILES = 'the files of the agent are not in an export: its directory is empty';

/** Adds the routes that export a durable agent and import it. */
export function addCopyRoutes(app: FastifyInstance, options: CopyRouteOptions): void {
  const { copies } = options.instances;

  app.get<{ Params: { instanceId: string } }>(
    '/api/agent/:instanceId/export',
    { config: { access: 'write', docs: SLEEP_DOCS.export } },
    async ({ tenant, params: { instanceId } }, reply) => {
      const { spec, state, alarms } = await copies.read(tenant, instanceId);
      const { namespace, name } = spec;
      const origin = { instance_id: instanceId, namespace, name, exported_at: new Date().toISOString() };
      const pack = tar.pack();
      const add = (file: string, text: string) => pack.entry({ name: file, mtime: new Date(0) }, text);
      add(COPY_FILES.agent, describeCopy(origin, await bodyOf(spec, options)));
      if (state !== null) add(COPY_FILES.state, state);
      add(COPY_FILES.alarms, `[${alarms.map(alarmJson).join(',\n')}]\n`);
      pack.finalize();
      reply.type('application/x-tar').header('Content-Disposition', 'attachment; filename="agent.tar"');
      return await reply.send(await buffer(pack));
    },
  );

  app.post<{ Querystring: Sent }>(
    '/api/agent/import',
    {
      bodyLimit: MOST_COPY_BYTES,
      config: { access: 'write', livesWith: LIVES_WITH_WORKER, docs: SLEEP_DOCS.import },
    },
    async (request, reply) => {
      const { tenant } = request;
      const named = readParameters(IMPORT_QUERY, request.query);
      const files = await filesOf(request.body as Buffer | undefined);
      const { create, state, alarms } = readCopy(files, newRequestId, Date.now());
      if (state !== null && !isJson(Buffer.from(state), LIMITS.stateLevels))
        throw invalidRequest(`invalid export: ${COPY_FILES.state} has more than ${LIMITS.stateLevels} levels`);
      const wanted = readAgentCreate({ ...create, ...withoutAbsent(named) }, tenant, options.executors);
      if (wanted.durable === undefined) throw invalidRequest('invalid export: the agent is not durable');
      const spec = await resolveSpec(wanted, options);
      const { id } = await copies.create({ spec, state, alarms });
      reply.code(201);
      return withWarnings({ code: 201, instance_id: id }, spec.durable?.files ? [NO_FILES] : []);
    },
  );
}

/** Returns the body of a create without what the function gives. */
async function bodyOf(spec: InstanceSpec, { functions }: CopyRouteOptions): Promise<JsonObject> {
  if (spec.functionUrn === '') return createBodyOf(spec);
  return createBodyOf(spec, ownOf(spec, await functions.resolveFunction(spec.tenant, spec.functionUrn)));
}

/** Returns the texts of the files of an export. Other entries are ignored. Fails with `invalid_request`. */
async function filesOf(body: Buffer | undefined): Promise<ReadonlyMap<string, string>> {
  const files = new Map<string, string>();
  const names: readonly string[] = Object.values(COPY_FILES);
  const extract = tar.extract();
  extract.on('entry', ({ name, type }, stream, next) => {
    const parts: Buffer[] = [];
    stream.on('data', part => parts.push(part as Buffer));
    stream.on('end', () => {
      if (type === 'file' && names.includes(name)) files.set(name, Buffer.concat(parts).toString());
      next();
    });
  });
  try {
    await pipeline(Readable.from([body ?? Buffer.alloc(0)]), boundHeaders(), extract);
  } catch (error) {
    throw invalidRequest(`invalid export: it is not a tar archive: ${messageOf(error)}`);
  }
  return files;
}

function withoutAbsent(named: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(named).filter(([, value]) => value !== undefined && value !== ''));
}
