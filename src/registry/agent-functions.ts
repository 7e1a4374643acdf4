import type { AgentFunction, FunctionResolver } from '../core/agent.ts';
import { CODE_TARGET, codeMount } from '../core/code-package.ts';
import { entriesOf } from '../core/durable.ts';
import { failedPrecondition, messageOf, ServiceError } from '../core/error.ts';
import { codePackageOf, type FunctionVersion } from '../core/function.ts';
import { parsePorts } from '../core/instance.ts';
import { LATEST, parseUrn } from '../core/urn.ts';
import { functionNotFound } from './errors.ts';
import type { FunctionRegistry } from './functions.ts';

/** Resolves the function of an agent from a URN. A URN without a version means `$latest`. */
export function createFunctionResolver(functions: FunctionRegistry, business: string): FunctionResolver {
  return {
    async resolveFunction(tenant, urn) {
      const parsed = parseUrn(urn);
      if (parsed === null) {
        throw invalidFunction(`${urn} is not a URN; expected sn:cn:<business>:<tenant>:function:<name>:<version>`);
      }
      if (parsed.tenant !== tenant || parsed.business !== business) {
        throw invalidFunction(messageOf(functionNotFound(urn)));
      }
      const fn = await functions.get(tenant, parsed.name, parsed.version ?? LATEST).catch(error => {
        if (error instanceof ServiceError && error.code === 'not_found')
          throw invalidFunction(messageOf(error), error.advice);
        throw error;
      });
      if (fn.spec.kind !== 'agent') {
        throw invalidFunction(`${urn} is of kind ${fn.spec.kind}; an agent needs a function of kind agent`);
      }
      return withItsPackage(fn);
    },
  };
}

/** Adds the code package, at the path where instances of functions have theirs. */
function withItsPackage(fn: FunctionVersion): AgentFunction {
  const runs = toAgentFunction(fn);
  if (codePackageOf(fn.spec) === null) return runs;
  return { ...runs, codePath: CODE_TARGET, mounts: [codeMount(fn.spec.codePath), ...runs.mounts] };
}

/** Returns a version's properties for its instances. The function service uses them too. */
export function toAgentFunction({ spec, version, urn }: FunctionVersion): AgentFunction {
  const { alarm = '', sleep = '' } = spec.extendedHandler;
  const entries = spec.kind === 'agent' ? entriesOf({ alarm, sleep }) : undefined;
  return {
    functionName: spec.name,
    functionVersion: version,
    functionUrn: urn,
    sandboxType: spec.sandboxType,
    runtime: spec.runtime,
    codePath: spec.codePath,
    httpProfile: spec.httpProfile,
    dependencies: spec.dependencies,
    handler: spec.handler,
    initializer: spec.extendedHandler.initializer,
    preStop: spec.extendedHandler.pre_stop,
    ...(entries && { entries }),
    imageUrl: spec.rootfs?.imageurl ?? '',
    user: spec.rootfs?.user ?? '',
    ports: parsePorts(spec.rootfs?.ports ?? [], 'rootfs.ports'),
    mounts: spec.rootfs?.mounts ?? [],
    cpuMillis: spec.cpu,
    memoryMb: spec.memory,
    environment: spec.environment,
    callTimeoutMs: spec.timeout * 1000,
    initTimeoutMs: spec.extendedTimeout.initializer * 1000,
    preStopTimeoutMs: spec.extendedTimeout.pre_stop * 1000,
    poolId: spec.poolId,
  };
}

function invalidFunction(why: string, advice?: string): ServiceError {
  return failedPrecondition(`invalid function: ${why}`, advice === undefined ? {} : { advice });
}
