import { resolve } from 'node:path';
import { META_CODES } from '../../core/codes.ts';
import { entriesOf } from '../../core/durable.ts';
import { readRegister } from '../../core/function.ts';
import { isJsonObject, type JsonObject } from '../../core/json.ts';
import { LATEST } from '../../core/urn.ts';
import { HINTS, schemaOfHints } from '../code/input-schema.ts';
import { askMeta, callMeta, metaFailure, metaPath } from '../function/meta-call.ts';
import { expandName, functionUrl } from '../function/records.ts';
import { CliError } from '../shared/exit.ts';
import { refuseProblems } from '../shared/input.ts';
import type { DeployedFunction, Deployment } from './file.ts';
import { differences, nothing, type Planning, type Step } from './step.ts';

const NOT_EXPOSED = { port: 0 };
const FIXED = ['name', 'kind', 'runtime'];

/** Plans the step for the latest version of a function. Published versions never change. */
export async function planFunction(planning: Planning, given: string, declared: DeployedFunction): Promise<Step> {
  const { client, deployment } = planning;
  const fn = await withSchema(deployment, given, declared);
  const name = expandName(given);
  const url = await planning.codeUrl(fn.code);
  const asks = planning.asks(fn);
  const prepare = async () => (asks ? await planning.install(fn, url) : undefined);
  const body = { ...bodyOf(name, fn, url), ...(asks ? { dependencies: 'auto' } : {}) };
  const read = readRegister(body);
  if (!read.ok) refuseProblems(`${deployment.file}: functions.${given}`, read.problems);
  const found = await findFunction(planning, name);
  const step = { kind: 'function', name } as const;
  if (found === null) {
    return {
      ...step,
      action: 'create',
      changes: [],
      prepare,
      apply: async () => urnOf(await callMeta(client, 'POST', '/functions', body)),
    };
  }
  // Wanted values include defaults, so that fields removed from the file return to their defaults.
  const optionalFields = ['dependencies', 'httpProfile'].filter(field => found[field] !== undefined);
  const fields = [...new Set([...Object.keys(body), ...optionalFields])];
  const wanted: Record<string, unknown> = Object.fromEntries(
    fields.map(field => [field, read.value[field as keyof typeof read.value]]),
  );
  // The file does not expose the function any more.
  if (fn.expose === undefined && found.expose) wanted.expose = NOT_EXPOSED;
  if (fn.inputSchema === undefined && found.inputSchema) wanted.inputSchema = {};
  if (!fn.validateInput && found.validateInput) wanted.validateInput = false;
  const { changes, hidden } = differences(wanted, found);
  const differing = [...changes, ...hidden];
  if (differing.length === 0) return { ...step, action: 'unchanged', changes, apply: nothing };
  return {
    ...step,
    action: 'update',
    changes,
    hidden,
    prepare,
    async apply() {
      const fixed = differing.filter(field => FIXED.includes(field));
      if (fixed.length > 0) {
        throw new CliError(
          `its ${fixed.join(' and ')} cannot change: delete it first (rookery function delete ${given})`,
        );
      }
      const sent = {
        ...Object.fromEntries(differing.map(field => [field, wanted[field]])),
        revisionId: found.revisionId,
      };
      return urnOf(await callMeta(client, 'PUT', functionUrl(name), sent));
    },
  };
}

type WholeFunction = Omit<DeployedFunction, 'inputSchema'> & { readonly inputSchema?: JsonObject };

/** Replaces the word `hints` by the schema that the code gives. */
async function withSchema(deployment: Deployment, given: string, fn: DeployedFunction): Promise<WholeFunction> {
  const { inputSchema, ...rest } = fn;
  if (inputSchema === undefined) return rest;
  if (inputSchema !== HINTS) return { ...rest, inputSchema };
  const code = resolve(deployment.directory, fn.code);
  const where = `${deployment.file}: functions.${given}.inputSchema:`;
  return { ...rest, inputSchema: await schemaOfHints(where, { ...fn, code }) };
}

function bodyOf(name: string, fn: WholeFunction, codePath: string): JsonObject {
  const { runtime, handler, cpu, memory, description, timeout, kind, user, ports, image, sandbox, env } = fn;
  const { alarm = '', sleep = '' } = fn.on ?? {};
  return {
    ...{ name, kind, runtime, handler, cpu, memory, timeout, description, storageType: 'package', codePath },
    environment: env,
    ...(fn.httpProfile === '' ? {} : { httpProfile: fn.httpProfile }),
    extendedHandler: { initializer: fn.initializer, pre_stop: fn.preStop, ...entriesOf({ alarm, sleep }) },
    sandboxType: sandbox,
    rootfs: { imageurl: image, user, ports },
    minInstance: fn.minInstances,
    maxInstance: fn.maxInstances,
    concurrentNum: fn.concurrency,
    ...(fn.expose && { expose: { ...fn.expose } }),
    ...(fn.inputSchema && { inputSchema: fn.inputSchema }),
    ...(fn.validateInput && { validateInput: true }),
  };
}

async function findFunction({ client }: Planning, name: string): Promise<JsonObject | null> {
  const answer = await askMeta(client, 'GET', metaPath(functionUrl(name), { versionNumber: LATEST }));
  if (answer.code === META_CODES.notFound.code) return null;
  if (answer.code !== 0 || !isJsonObject(answer.function)) throw metaFailure(answer);
  return answer.function;
}

function urnOf({ function: fn }: Readonly<Record<string, unknown>>): string {
  return String((fn as JsonObject).functionVersionUrn);
}
