import { useState } from 'preact/hooks';
import { CALL_RULES } from '../../../src/explain/call.ts';
import { logOffsetMs, logRangeOf, rowAt, type WaterfallRow, waterfallOf } from '../../../src/explain/waterfall.ts';
import { type AnswerOf, ApiError, ask, call, may, pathOf, raw } from '../api.ts';
import { Bars } from '../bars.tsx';
import { Explained } from '../explained.tsx';
import { useLoaded } from '../live.ts';
import { LogLines } from '../log-lines.ts';
import {
  Action,
  ago,
  bytes,
  Failure,
  Fields,
  Loading,
  Missing,
  moment,
  Note,
  Panel,
  Status,
  short,
  Table,
  Text,
  Title,
} from '../parts.tsx';
import { nameOf } from './calls.tsx';

export type CallDetails = AnswerOf<'getCall'>['call'];

/** A call: its facts, its trace, its log, its input and its output. `id`: also the id of a trace. */
export function CallView({ id }: { readonly id: string }) {
  const { value, error } = useLoaded(`call ${id}`, signal => findCall(id, signal));
  if (value === undefined) return <Missing title={id} error={error} />;
  return (
    <>
      <Title text={`Call of ${nameOf(value)}`}>
        <Status text={value.outcome === 'ok' ? 'ok' : 'failed'} />
      </Title>
      <Failure text={value.error ?? ''} />
      <Explained rules={CALL_RULES} facts={value} />
      <Trace of={value} />
      <Log of={value} />
      <Body title="Input" text={value.input} isCut={value.is_input_cut} />
      <Body title="Output" text={value.output ?? undefined} isCut={value.is_output_cut} />
      {may('invoke') ? <Replay of={value} /> : null}
      <Panel title="Record">
        <Record of={value} />
      </Panel>
    </>
  );
}

/** Returns a call by its id, or the first call of a trace by the trace's id. */
async function findCall(id: string, signal: AbortSignal): Promise<CallDetails> {
  const get = async (known: string) => (await call('getCall', { params: { id: known }, signal })).call as CallDetails;
  try {
    return await get(id);
  } catch (error) {
    if (!(error instanceof ApiError) || error.status !== 404) throw error;
    const { calls } = await call('listCalls', { query: { trace_id: id, limit: 1000 }, signal });
    const first = calls.findLast(({ parent_id: parent }) => parent === null) ?? calls.at(-1);
    if (first === undefined) throw error;
    return await get(first.id);
  }
}

/** The stages of a call, and the spans of its code below `run`. */
function Trace({ of: one }: { readonly of: CallDetails }) {
  const rows = waterfallOf(one);
  const whole = Math.max(...rows.map(({ startMs, durationMs }) => startMs + durationMs), 0.001);
  let stages = 0;
  const bars = rows.map(({ name, kind, depth, startMs, durationMs, isFailed }) => ({
    name: `${'\u00a0\u00a0'.repeat(depth)}${name}`,
    from: startMs / whole,
    length: durationMs / whole,
    text: `${durationMs.toFixed(2)} ms`,
    tone: isFailed ? 'failed' : kind === 'call' || name === 'the rest' ? 'rest' : `stage-${stages++ % 4}`,
  }));
  const noted = rows.filter(({ text }) => text !== '');
  return (
    <Panel title="Trace">
      <Bars
        title={`${one.duration_ms.toFixed(2)} ms in all`}
        label={rows.map(({ name, durationMs }) => `${name} ${durationMs.toFixed(2)} ms`).join(', ')}
        bars={bars}
      />
      {noted.length === 0 ? null : <Attributes rows={noted} />}
      {one.dropped_spans === 0 ? null : (
        <Note>{one.dropped_spans} spans and attributes above the limits are missing.</Note>
      )}
    </Panel>
  );
}

function Attributes({ rows }: { readonly rows: readonly WaterfallRow[] }) {
  return (
    <Table
      label="Attributes of spans"
      rows={rows}
      keyOf={row => String(rows.indexOf(row))}
      empty=""
      columns={[
        { title: 'Span', cell: ({ name }) => name },
        { title: 'At', cell: ({ startMs }) => short(startMs, ' ms'), isNumber: true, isWide: true },
        { title: 'Attributes', cell: ({ text }) => text },
      ]}
    />
  );
}

/** Lines that are shown. */
const MAX_LINES = 200;
const MAX_BYTES = 64 * 1024;

/** The lines that the instance of a call printed while the handler ran. */
function Log({ of: one }: { readonly of: CallDetails }) {
  const { value, error } = useLoaded(`log of call ${one.id}`, signal => readLines(one, signal));
  if (value === null || (value === undefined && error !== '')) return null;
  if (value === undefined) return <Loading />;
  if (value.length === 0) return null;
  const rows = waterfallOf(one);
  const places = value.map(line => {
    const ms = logOffsetMs(line, one);
    return ms === null ? '' : `+${short(Math.max(0, ms), ' ms')} ${rowAt(rows, ms)?.name ?? ''}`.trim();
  });
  const width = Math.max(...places.map(({ length }) => length));
  const text = value.map((line, at) => (width === 0 ? line : `${(places[at] ?? '').padEnd(width)}  ${line}`));
  return (
    <Panel title="Log">
      <Text text={text.join('\n')} label="Log" />
      <Note>
        {one.kind === 'function'
          ? 'Another call of the instance may have printed lines without the trace ID. '
          : 'Lines of the next call may follow within 0.1 s. '}
        Lines of the context’s logger show their time and span.
      </Note>
    </Panel>
  );
}

/** Returns the lines of a call's log; null: the call ran nowhere, or its log is gone. */
async function readLines(one: CallDetails, signal: AbortSignal): Promise<readonly string[] | null> {
  if (one.instance_id === '') return null;
  const range = logRangeOf(one);
  try {
    const path =
      one.kind === 'agent'
        ? pathOf('agentLogs', { params: { instanceId: one.instance_id }, query: range })
        : pathOf('readFunctionLogs', {
            params: { urn: await findUrn(one, one.version, signal) },
            query: { ...range, instance: one.instance_id },
          });
    const lines = new LogLines();
    lines.add((await (await ask(path, { signal })).text()).slice(0, MAX_BYTES));
    return lines.all.filter(line => line !== '').slice(0, MAX_LINES);
  } catch (error) {
    if (error instanceof ApiError && error.status !== 0) return null;
    throw error;
  }
}

/** Runs the recorded input again and shows both answers. */
function Replay({ of: one }: { readonly of: CallDetails }) {
  const [answer, setAnswer] = useState<{ readonly status: number; readonly text: string } | null>(null);
  const { input = '' } = one;
  const isWhole = one.is_input_cut === false && input !== '' && !input.includes('[redacted]');
  const isAgent = one.kind === 'agent';
  const replay = async () => {
    setAnswer(null);
    const path = isAgent
      ? pathOf('invokeAgent', { params: { instanceId: one.agent_id ?? '' } })
      : pathOf('invokeFunction', { params: { urn: await findUrn(one, LATEST) } });
    const response = await raw(path, {
      ...{ method: 'POST', body: input },
      headers: { 'content-type': 'application/json' },
    });
    setAnswer({ status: response.status, text: await response.text() });
  };
  return (
    <Panel title="Replay">
      {isWhole ? (
        <div class="actions">
          <Action text="Replay" work={replay} sure={isAgent ? SURE_OF_AGENT : SURE_OF_FUNCTION} />
        </div>
      ) : (
        <Note>A call whose input is cut, hidden in parts or not kept cannot be replayed.</Note>
      )}
      {answer === null ? null : (
        <div class="grid two">
          <div>
            <p>
              Recorded: <Status text={one.outcome === 'ok' ? 'ok' : 'failed'} /> {one.error_code ?? ''}
            </p>
            <Text text={one.output ?? one.error ?? ''} label="Recorded answer" />
          </div>
          <div>
            <p role="status">
              Now: <Status text={answer.status < 300 ? 'ok' : 'failed'} /> {answer.status}
            </p>
            <Text text={answer.text} label="New answer" />
          </div>
        </div>
      )}
      <Note>
        With other code: <code>rookery call replay {one.id} --code &lt;directory&gt;</code>
      </Note>
    </Panel>
  );
}

/** Returns the URN of a version of the function of a call. Fails with `ApiError` if it was deleted. */
async function findUrn(one: CallDetails, version = '', ends?: AbortSignal): Promise<string> {
  const { function: name = '' } = one;
  const options = ends === undefined ? {} : { signal: ends };
  const { functions } = (await call('listVersions', { params: { name }, ...options })) as {
    functions: readonly { readonly versionNumber: string; readonly functionVersionUrn: string }[] | null;
  };
  const asked = version === 'latest' ? LATEST : version;
  const found = functions?.find(({ versionNumber }) => versionNumber === asked);
  if (found === undefined) throw new ApiError(404, `the version ${asked} of ${name} was deleted`);
  return found.functionVersionUrn;
}

const LATEST = '$latest';
const SURE_OF_AGENT = 'Send the recorded input to this agent again? Its memory changes as by any call.';
const SURE_OF_FUNCTION = 'Send the recorded input to the latest version of this function?';

function Record({ of: one }: { readonly of: CallDetails }) {
  const isAgent = one.kind === 'agent';
  return (
    <Fields
      rows={[
        ['Call ID', <code key="id">{one.id}</code>],
        ['Trace ID', <code key="trace">{one.trace_id}</code>],
        ['Made by', one.parent_id === null ? '' : <a href={`#/calls/${one.parent_id}`}>{one.parent_id}</a>],
        [
          isAgent ? 'Agent' : 'Function',
          <a key="of" href={isAgent ? `#/agents/${one.agent_id}` : `#/functions/${encodeURIComponent(nameOf(one))}`}>
            {nameOf(one)}
          </a>,
        ],
        ['Version', one.version],
        ['Started', `${moment(one.start_time)} (${ago(one.start_time)} ago)`],
        ['Error code', one.error_code],
        ['Mode', one.mode],
        ['Caller', one.caller],
        ['Instance', one.instance_id],
        ['Node', one.node_id],
        ['Sizes', `${bytes(one.input_bytes)} in, ${bytes(one.output_bytes)} out`],
      ]}
    />
  );
}

interface BodyProps {
  readonly title: string;
  readonly text: string | undefined;
  readonly isCut: boolean | undefined;
}

function Body({ title, text, isCut }: BodyProps) {
  if (text === undefined) return null;
  return (
    <Panel title={title}>
      {isCut === true ? <Note>Only its beginning was kept.</Note> : null}
      <Text text={text} label={title} />
    </Panel>
  );
}
