import type { FastifyInstance } from 'fastify';
import type { AgentInstances } from '../../agents/contract.ts';
import { AGENT_UPDATE, type AgentUpdate, readAgentUpdate, respecified, updatedSpec } from '../../core/agent-update.ts';
import { splitMounts } from '../../core/code-package.ts';
import { failedPrecondition } from '../../core/error.ts';
import { checkSources } from '../../core/host-path.ts';
import type { InstanceSpec } from '../../core/instance.ts';
import { LIMITS } from '../../core/limits.ts';
import { readParameters, type Sent } from '../../core/parameter.ts';
import { answerController } from '../../http/access/caller.ts';
import { withWarnings } from '../../http/answer.ts';
import { readRequest } from '../../http/request.ts';
import { LIVES_WITH_AGENT } from '../lives-with.ts';
import { type CreateRouteOptions, checkPackages, findPathFor, stateWarnings } from './create.ts';
import { UPDATE_QUERY } from './parameters.ts';
import type { RecordFor } from './record.ts';
import { SLEEP_DOCS } from './sleep-docs.ts';

interface UpdateRouteOptions extends Omit<CreateRouteOptions, 'instances'> {
  readonly instances: Pick<AgentInstances, 'update'>;
}

/** Adds `PATCH /api/agent/{instanceId}`, which changes settings of a durable agent. */
export function addUpdateRoute(app: FastifyInstance, options: UpdateRouteOptions, recordFor: RecordFor): void {
  app.patch<{ Params: { instanceId: string }; Querystring: Sent }>(
    '/api/agent/:instanceId',
    {
      bodyLimit: LIMITS.requestBodyBytes,
      config: { access: 'write', longLived: true, livesWith: LIVES_WITH_AGENT, docs: SLEEP_DOCS.update },
    },
    async (request, reply) => {
      const { tenant, params } = request;
      const { apply } = readParameters(UPDATE_QUERY, request.query);
      const update = readRequest(request, AGENT_UPDATE, readAgentUpdate);
      const instance = await options.instances.update(tenant, params.instanceId, {
        change: spec => changed(spec, update, options),
        isApplied: apply === 'now',
        signal: answerController(reply.raw).signal,
      });
      const { spec } = instance;
      const warnings = [...(request.warnings ?? []), ...stateWarnings(request, spec.next ?? spec)];
      return withWarnings({ code: 200, instance: recordFor(request, instance) }, warnings);
    },
  );
}

/** Returns the new settings after all checks that a create makes too. */
async function changed(spec: InstanceSpec, update: AgentUpdate, options: UpdateRouteOptions): Promise<InstanceSpec> {
  const next = updatedSpec(await withFunction(spec, update, options), withoutCallers(spec, update));
  const { packages, others } = splitMounts(next.mounts);
  await checkSources('', others, options.mountPolicy, findPathFor(next.sandboxType, options));
  await checkPackages(next.tenant, packages, 'mount source', options);
  return next;
}

/** Returns the update without the members that `withFunction` has applied. */
function withoutCallers({ functionUrn }: InstanceSpec, update: AgentUpdate): AgentUpdate {
  return functionUrn === '' ? update : { ...update, envVars: undefined, mounts: undefined };
}

/** Returns the spec with another version of its function, and with the caller's new variables and mounts. */
async function withFunction(
  spec: InstanceSpec,
  { urn, envVars, mounts }: AgentUpdate,
  { functions, executors }: UpdateRouteOptions,
): Promise<InstanceSpec> {
  const { tenant, functionUrn } = spec;
  if (functionUrn === '') {
    if (urn === undefined) return spec;
    throw failedPrecondition('the agent was not made from a registered function: change its runtime_spec and mounts');
  }
  if (urn === undefined && envVars === undefined && mounts === undefined) return spec;
  const before = await functions.resolveFunction(tenant, functionUrn);
  const after = urn === undefined ? before : await functions.resolveFunction(tenant, urn);
  const next = respecified(spec, { envVars, mounts }, { before, after }, executors);
  return urn === undefined ? { ...spec, env: next.env, mounts: next.mounts } : next;
}
