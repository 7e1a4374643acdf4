import { useEffect, useState } from 'preact/hooks';
import { type AnswerOf, call, may } from '../api.ts';
import { sample, useLoaded } from '../live.ts';
import { Action, brief, bytes, clock, Failure, Input, Loading, Note, Status, short, Table, Title } from '../parts.tsx';

type Facts = AnswerOf<'listCalls'>['calls'][number];

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

export function nameOf(one: Pick<Facts, 'kind' | 'name' | 'agent_id' | 'function'>): string {
  return one.kind === 'agent' ? one.name || (one.agent_id ?? '') : (one.function ?? '');
}
