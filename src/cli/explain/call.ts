import { CALL_RULES } from '../../explain/call.ts';
import { applyRules } from '../../explain/rules.ts';
import { readCallLog } from '../call/call-log.ts';
import { type Call, findCall, targetOf } from '../call/records.ts';
import { Client, type ClientOptions } from '../shared/client.ts';
import { CliError } from '../shared/exit.ts';
import type { Io } from '../shared/io.ts';
import type { Explanation } from './explanation.ts';
import { lastLines } from './log-end.ts';

/** Explains a call that the history has, or an asynchronous call that has not ended. */
export async function explainCall(io: Io, id: string, options: ClientOptions): Promise<Explanation> {
  const client = await Client.open(options, io);
  let call: Call;
  try {
    call = await findCall(client, id);
  } catch (error) {
    const open = error instanceof CliError && error.status === 404 ? await explainOpen(client, id) : null;
    if (open === null) throw error;
    return open;
  }
  const log = call.outcome === 'error' ? await readCallLog(client, call) : null;
  return {
    ...{
      kind: 'call',
      name: `${call.id} of ${targetOf(call)}`,
      state: call.outcome === 'error' ? 'over (failed)' : 'over (ok)',
      since: null,
    },
    ...applyRules(CALL_RULES, call),
    log: log === null ? [] : lastLines(log.lines.map(({ text }) => text).join('\n')),
    ...{ log_of: 'what its instance printed meanwhile', events: [], record: call },
  };
}

/** Explains an asynchronous call that waits or runs; null if the service has no such call. */
async function explainOpen(client: Client, id: string): Promise<Explanation | null> {
  try {
    const path = `/serverless/v1/functions/async-results/${encodeURIComponent(id)}`;
    const record = await client.json('GET', path);
    const state = String(record.status);
    const waits = state === 'queued' ? 'It waits for an instance.' : 'An instance runs it, or it has just ended.';
    return {
      ...{ kind: 'call', name: id, state, since: typeof record.createdAt === 'string' ? record.createdAt : null },
      ...{ sentences: [waits], next: null, log: [], log_of: 'its log', events: [], record },
    };
  } catch (error) {
    if (error instanceof CliError) return null;
    throw error;
  }
}
