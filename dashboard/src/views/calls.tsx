import { useEffect, useState } from 'preact/hooks';
import { CALL_RULES } from '../../../src/explain/call.ts';
import { type AnswerOf, call, may } from '../api.ts';
import { Bars } from '../bars.tsx';
import { Explained } from '../explained.tsx';
import { sample, useLoaded } from '../live.ts';
import {
  Action,
  ago,
  brief,
  bytes,
  clock,
  Failure,
  Fields,
  Input,
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

type Facts = AnswerOf<'listCalls'>['calls'][number];
type Details = AnswerOf<'getCall'>['call'];

/** The subject of a list. Without a member: every call of the tenant. */
interface Of {
  readonly agent?: string;
  readonly function?: string;
}

const PAGE = 100;

export function CallsView() {
  return (
    <>
      <Title text="Calls" />
      <CallList of={{}} />
    </>
  );
}

/** Calls that the history kept, the newest first, with filters. New ones appear with each new metric. */
export function CallList({ of }: { readonly of: Of }) {
  const [outcome, setOutcome] = useState('');
  const [text, setText] = useState('');
  const [older, setOlder] = useState<readonly Facts[]>([]);
  const [next, setNext] = useState<string | null | undefined>(undefined);
  const query = { ...of, outcome: (outcome || undefined) as 'ok' | 'error' | undefined, text, limit: PAGE };
  const { value, error, reload } = useLoaded(`calls ${JSON.stringify(query)}`, signal =>
    call('listCalls', { query, signal }),
  );
  useEffect(() => {
    setOlder([]);
    setNext(undefined);
  }, [outcome, text]);
  const at = sample.value?.at ?? null;
  // Rows would move below a reader of older pages.
  useEffect(() => {
    if (at !== null && older.length === 0) reload();
  }, [at]);
  const cursor = next === undefined ? (value?.next_cursor ?? null) : next;
  const readOlder = async () => {
    const page = await call('listCalls', { query: { ...query, cursor: cursor ?? undefined } });
    setOlder([...older, ...page.calls]);
    setNext(page.next_cursor);
  };
  return (
    <>
      <div class="filters">
        <Input label="Outcome" value={outcome} onInput={setOutcome} options={['', 'ok', 'error']} />
        {may('invoke') ? <Input label="Text" value={text} onInput={setText} type="search" /> : null}
      </div>
      <Failure text={error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <CallTable rows={[...value.calls, ...older]} isFiltered={outcome !== '' || text !== ''} of={of} />
      )}
      {cursor === null ? null : <Action key={cursor} text="Older calls" work={readOlder} />}
      <Note>
        The history keeps failed and slow calls, and a sample of the others. “rookery calls” prints them, too.
      </Note>
    </>
  );
}

interface CallTableProps {
  readonly rows: readonly Facts[];
  readonly isFiltered: boolean;
  readonly of: Of;
}

function CallTable({ rows, isFiltered, of }: CallTableProps) {
  const isOfAll = of.agent === undefined && of.function === undefined;
  return (
    <Table
      label="Calls"
      rows={rows}
      keyOf={one => one.id}
      empty={isFiltered ? 'No matching calls.' : 'The history has no call yet. “rookery agent invoke” makes one.'}
      columns={[
        { title: 'Started', cell: one => <a href={`#/calls/${one.id}`}>{clock(one.start_time)}</a> },
        ...(isOfAll ? [{ title: 'Target', cell: (one: Facts) => brief(nameOf(one)) }] : []),
        { title: 'Outcome', cell: one => <Outcome of={one} /> },
        { title: 'Duration', cell: one => short(one.duration_ms, ' ms'), isNumber: true },
        { title: 'Error', cell: one => brief(one.error ?? ''), isWide: true },
        { title: 'Mode', cell: one => one.mode, isWide: true },
        { title: 'Input', cell: one => bytes(one.input_bytes), isNumber: true, isWide: true },
        { title: 'Caller', cell: one => brief(one.caller), isWide: true },
      ]}
    />
  );
}

function Outcome({ of: { outcome, error_code } }: { readonly of: Facts }) {
  return (
    <>
      <Status text={outcome === 'ok' ? 'ok' : 'failed'} /> {error_code ?? ''}
    </>
  );
}

function nameOf(one: Facts): string {
  return one.kind === 'agent' ? one.name || (one.agent_id ?? '') : (one.function ?? '');
}

/** A call: its facts, where its time went, its input and its output. */
export function CallView({ id }: { readonly id: string }) {
  const { value, error } = useLoaded(
    `call ${id}`,
    async signal => (await call('getCall', { params: { id }, signal })).call as Details,
  );
  if (value === undefined) return <Missing title={id} error={error} />;
  return (
    <>
      <Title text={`Call of ${nameOf(value)}`}>
        <Status text={value.outcome === 'ok' ? 'ok' : 'failed'} />
      </Title>
      <Failure text={value.error ?? ''} />
      <Explained rules={CALL_RULES} facts={value} />
      <Panel title="Time">
        <Stages of={value} />
      </Panel>
      <Panel title="Record">
        <Record of={value} />
      </Panel>
      <Body title="Input" text={value.input} isCut={value.is_input_cut} />
      <Body title="Output" text={value.output ?? undefined} isCut={value.is_output_cut} />
    </>
  );
}

function Record({ of: one }: { readonly of: Details }) {
  const isAgent = one.kind === 'agent';
  return (
    <Fields
      rows={[
        ['Call ID', <code key="id">{one.id}</code>],
        ['Trace ID', <code key="trace">{one.trace_id}</code>],
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

/** The stages of a call, one below the other, and what they leave. */
function Stages({ of: one }: { readonly of: Facts }) {
  const stages = [
    ['queue', one.queue_ms],
    ['place', one.place_ms],
    ['start', one.start_ms],
    ['load', one.load_ms],
    ['run', one.run_ms],
  ] as const;
  const known = stages.reduce((sum, [, ms]) => sum + ms, 0);
  const whole = Math.max(one.duration_ms, known, 0.001);
  let from = 0;
  const bars = [...stages, ['the rest', Math.max(0, one.duration_ms - known)] as const].map(([name, ms], index) => {
    const bar = { name, from: from / whole, length: ms / whole, text: `${ms.toFixed(2)} ms` };
    from += ms;
    return { ...bar, tone: name === 'the rest' ? 'rest' : `stage-${index % 4}` };
  });
  return (
    <Bars
      title={`${one.duration_ms.toFixed(2)} ms in all`}
      label={bars.map(({ name, text }) => `${name} ${text}`).join(', ')}
      bars={bars}
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
