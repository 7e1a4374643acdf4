import type { FastifyInstance } from 'fastify';
import { type CallSpan, readCallSpans } from '../../core/call-spans.ts';
import { invalidRequest, permissionDenied } from '../../core/error.ts';
import { type ParametersOf, readParameters, type Sent } from '../../core/parameter.ts';
import type { CallFacts, CallPlace, CallReader } from '../../history/call-reader.ts';
import type { Role } from '../../http/access/credentials.ts';
import { CALL_DOCS } from './docs.ts';
import { CALLS_QUERY } from './query.ts';
import { addRecordingRoutes, type RecordingStore } from './recordings.ts';

export interface CallRoutesOptions {
  readonly calls: CallReader;
  readonly recordings: RecordingStore;
}

/**
 * Adds `GET /api/calls` and `GET /api/calls/{id}`, the history of calls. Viewers get facts: no input, no
 * output and no error text, and no search in them.
 */
export function addCallRoutes(app: FastifyInstance, { calls, recordings }: CallRoutesOptions): void {
  addRecordingRoutes(app, recordings);
  app.get<{ Querystring: Sent }>(
    '/api/calls',
    { config: { access: 'read', costly: 'scan', noEnvironments: true, docs: CALL_DOCS.list } },
    async ({ tenant, role, query }) => {
      const asked = readParameters<ParametersOf<typeof CALLS_QUERY>>(CALLS_QUERY, query);
      const {
        agent,
        function: functionName,
        outcome,
        trace_id: traceIds,
        parent: parentId,
        after,
        before,
        text,
        limit,
        cursor,
        follow,
      } = asked;
      if (text !== undefined && role === 'viewer') {
        throw permissionDenied('role viewer may not search in inputs and outputs: leave out text');
      }
      const kind =
        agent !== undefined ? ('agent' as const) : functionName !== undefined ? ('function' as const) : undefined;
      const filter = {
        ...{ tenant, outcome, traceIds, parentId, text, limit, kind },
        subject: agent ?? functionName,
        fromMs: after,
        beforeMs: before,
      };
      const shown = (found: readonly CallFacts[]) => found.map(call => factsOf(call, role));
      if (follow !== undefined) {
        if (cursor !== null) throw invalidRequest('invalid query: follow and cursor exclude each other');
        const page = await calls.follow({ ...filter, position: follow === 'now' ? null : follow });
        return { code: 200, calls: shown(page.calls), next_cursor: String(page.position) };
      }
      const page = await calls.list({ ...filter, after: cursor });
      return {
        code: 200,
        calls: shown(page.calls),
        next_cursor: page.next === null ? null : cursorOf(page.next),
      };
    },
  );

  app.get<{ Params: { id: string } }>(
    '/api/calls/:id',
    { config: { access: 'read', noEnvironments: true, docs: CALL_DOCS.get } },
    async ({ tenant, role, params }) => {
      const call = await calls.get(tenant, params.id);
      const bodies = {
        input: call.input,
        output: call.outcome === 'ok' ? call.output : null,
        is_input_cut: call.input_cut === 1,
        is_output_cut: call.output_cut === 1,
      };
      const { spans, dropped } = readCallSpans(call.spans);
      return {
        code: 200,
        call: {
          ...factsOf(call, role),
          spans: spans.map(span => spanOf(span, role)),
          dropped_spans: dropped,
          ...(role === 'viewer' ? {} : bodies),
        },
      };
    },
  );
}

function cursorOf({ startedAtMs, id }: CallPlace): string {
  return `${startedAtMs}.${id}`;
}

function factsOf(call: CallFacts, role: Role) {
  const { kind, subject, name, version } = call;
  return {
    id: call.id,
    kind,
    ...(kind === 'agent' ? { agent_id: subject, name } : { function: name, version }),
    instance_id: call.instance_id,
    node_id: call.node_id,
    mode: call.mode,
    tenant: call.tenant,
    caller: call.caller,
    trace_id: call.trace_id,
    parent_id: call.parent_id,
    outcome: call.outcome,
    error_code: call.outcome === 'ok' ? null : call.code,
    ...(role === 'viewer' ? {} : { error: call.error }),
    start_time: new Date(call.started_at_ms).toISOString(),
    duration_ms: inMs(call.elapsed_us),
    queue_ms: inMs(call.queue_us),
    place_ms: inMs(call.place_us),
    start_ms: inMs(call.start_us),
    load_ms: inMs(call.load_us),
    run_ms: inMs(call.run_us),
    input_bytes: call.input_bytes,
    output_bytes: call.output_bytes,
  };
}

/** Viewers get no attributes and no error text. */
function spanOf({ name, parent, startMicros, micros, attributes, error }: CallSpan, role: Role) {
  const isShown = role !== 'viewer';
  return {
    name,
    parent,
    start_ms: inMs(startMicros),
    duration_ms: inMs(micros),
    outcome: error === undefined ? ('ok' as const) : ('error' as const),
    ...(isShown && attributes !== undefined && { attributes }),
    ...(isShown && error !== undefined && { error }),
  };
}

function inMs(micros: number): number {
  return micros / 1000;
}
