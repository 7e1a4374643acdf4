import { LATEST } from '../../core/urn.ts';
import {
  type ExplainedFunction,
  type ExplainedInstances,
  FUNCTION_RULES,
  isServed,
  nameOf,
  ofVersion,
  stateOf,
} from '../../explain/function.ts';
import { applyRules } from '../../explain/rules.ts';
import { callMeta, metaPath } from '../function/meta-call.ts';
import { functionPath, functionUrl, parseNamedVersion } from '../function/records.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import type { Io } from '../shared/io.ts';
import type { Explanation } from './explanation.ts';
import { readFailedCalls } from './failed-calls.ts';
import { readLogEnd } from './log-end.ts';
import { readRecentEvents } from './recent-events.ts';

/** Explains a version of a function. */
export async function explainFunction(io: Io, given: string, options: ClientOptions): Promise<Explanation> {
  const { name, version } = parseNamedVersion(given);
  const client = await Client.open(options, io);
  const answer = await callMeta(client, 'GET', metaPath(functionUrl(name), { versionNumber: version }));
  const fn = answer.function as ExplainedFunction;
  const { functionVersionUrn: urn } = fn;
  const types = ['created', 'ready', 'failed', 'ended', 'scaled'];
  const events = await readRecentEvents(io, client, types, { function: urn }, event => event.function === urn);
  const served: ExplainedInstances = isServed({ fn }) ? await readServed(client, urn) : { instances: [] };
  const failed = ofVersion(await readFailedCalls(client, { function: urn }), fn);
  const facts = { fn, served, failed, nowMs: Date.now() };
  const log =
    failed.calls.length === 0 || served.instances.length === 0
      ? []
      : await readLogEnd(client, functionPath(urn, 'logs'));
  const shown = fn.versionNumber === LATEST ? '' : `:${fn.versionNumber}`;
  return {
    ...{ kind: 'function', name: `${nameOf(facts)}${shown}`, state: stateOf(facts), since: null },
    ...applyRules(FUNCTION_RULES, facts),
    ...{ log, log_of: 'the log of its instances', events },
    record: { ...fn, ...served, failed_calls: failed.calls },
  };
}

/** Reads the instances without printing the warnings, which become sentences. */
async function readServed(client: Client, urn: string): Promise<ExplainedInstances> {
  return JSON.parse(await client.text('GET', functionPath(urn, 'instances'))) as ExplainedInstances;
}
