import { useEffect, useMemo, useState } from 'preact/hooks';
import { EVENT_TYPES, type EventSubject } from '../../../src/core/event.ts';
import { LIMITS } from '../../../src/core/limits.ts';
import {
  type EventFilter,
  filterOf,
  localMinute,
  matches,
  minuteOf,
  queryOf,
  SEVERITIES,
  withDays,
} from '../event-filter.ts';
import { type LiveEvent, recent } from '../live.ts';
import { brief, Failure, Input, Loading, Note, Panel, Shown, Status, Table, Title } from '../parts.tsx';
import { useEvents } from '../stored-events.ts';
import { timeOf } from '../times.ts';

/** All stored events, with filters that are the query of the page's address. */
export function EventsView(props: {
  readonly query: URLSearchParams;
  readonly setQuery: (query: URLSearchParams) => void;
}) {
  const filter = filterOf(props.query);
  const set = (change: Partial<EventFilter>) => props.setQuery(queryOf({ ...filter, ...change }));
  const { value, error } = useEvents(filter.subject);
  useClock(filter.range !== '' && filter.range !== 'dates');
  const nowMs = Date.now();
  const rows = value?.filter(event => matches(event, filter, nowMs)) ?? [];
  return (
    <>
      <Title text="Events" />
      <Subject subject={filter.subject} events={value} clear={() => set({ subject: {} })} />
      <div class="filters">
        <Input label="Search" value={filter.text} onInput={text => set({ text })} type="search" />
        <Input label="Kind" value={filter.kind} onInput={kind => set({ kind })} options={['', ...EVENT_TYPES]} />
        <Input
          label="Severity"
          value={filter.severity}
          onInput={severity => set({ severity: severity as EventFilter['severity'] })}
          options={['', ...SEVERITIES]}
        />
        <Range filter={filter} set={set} />
        <Shown rows={rows} of={value} />
      </div>
      <Failure text={error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <EventTable events={rows} empty={value.length === 0 ? NO_EVENTS : 'No matching events.'} />
      )}
      <Note>
        The service stores the newest {LIMITS.keptEvents} events of all tenants since its start. “rookery events” prints
        them, too.
      </Note>
    </>
  );
}

const NO_EVENTS = 'No events yet: they appear when something starts, ends or scales.';

const RANGE_NAMES = [
  ['15m', '15 minutes'],
  ['1h', '1 hour'],
  ['24h', '1 day'],
  ['', 'All'],
  ['dates', 'From … to'],
] as const satisfies readonly (readonly [EventFilter['range'], string])[];

interface RangeProps {
  readonly filter: EventFilter;
  readonly set: (change: Partial<EventFilter>) => void;
}

function Range({ filter: { range, from, to }, set }: RangeProps) {
  return (
    <>
      <fieldset class="choice">
        <legend class="unseen">Range</legend>
        {RANGE_NAMES.map(([each, name]) => (
          <button key={each} type="button" aria-pressed={range === each} onClick={() => set({ range: each })}>
            {name}
          </button>
        ))}
      </fieldset>
      {range !== 'dates' ? null : (
        <>
          <Minute label="From" minute={from} set={minute => set({ from: minute })} />
          <Minute label="To" minute={to} set={minute => set({ to: minute })} />
        </>
      )}
    </>
  );
}

interface MinuteProps {
  readonly label: string;
  readonly minute: string;
  readonly set: (minute: string) => void;
}

function Minute({ label, minute, set }: MinuteProps) {
  return (
    <Input label={label} type="datetime-local" value={localMinute(minute)} onInput={local => set(minuteOf(local))} />
  );
}

interface SubjectProps {
  readonly subject: EventSubject;
  readonly events: readonly LiveEvent[] | undefined;
  readonly clear: () => void;
}

/** The agent, function or job whose events are shown. */
function Subject({ subject: { agent, function: name, job }, events, clear }: SubjectProps) {
  const id = agent ?? name ?? job;
  if (id === undefined) return null;
  const [noun, kind] = agent ? ['agents', 'agent'] : name ? ['functions', 'function'] : ['jobs', 'job'];
  const known = agent === undefined ? undefined : events?.[0];
  return (
    <div class="filters">
      <span>Only events of the {kind}</span>
      <a href={`#/${noun}/${encodeURIComponent(id)}`}>
        {known?.name === undefined ? brief(id) : `${known.namespace}/${known.name}`}
      </a>
      <button type="button" onClick={clear}>
        Show all events
      </button>
    </div>
  );
}

const TICK_MS = 10_000;

/** Renders the component again every 10 s, because a range that ends now moves. */
function useClock(isMoving: boolean): void {
  const [, setTick] = useState(0);
  useEffect(() => {
    if (!isMoving) return;
    const timer = setInterval(() => setTick(tick => tick + 1), TICK_MS);
    return () => clearInterval(timer);
  }, [isMoving]);
}

/** The stored events of one agent, function or job, with a link to the page that filters them. */
export function OwnEvents({ of }: { readonly of: EventSubject }) {
  const { value, error } = useEvents(of);
  const [kind = ''] = Object.keys(of);
  const query = new URLSearchParams(Object.entries(of));
  return (
    <Panel title="Events" actions={<a href={`#/events?${query}`}>All events of this {kind}</a>}>
      <Failure text={error} />
      {value === undefined ? <Loading unless={error} /> : <EventTable events={value} empty={NO_OWN_EVENTS} />}
    </Panel>
  );
}

const NO_OWN_EVENTS = 'The service stores no events of it any more.';

/** The newest events of the tenant. */
export function EventList({ most }: { readonly most: number }) {
  return <EventTable events={recent.value.slice(0, most)} empty={NO_EVENTS} />;
}

function EventTable({ events, empty }: { readonly events: readonly LiveEvent[]; readonly empty: string }) {
  const hasNodes = events.some(({ node }) => node !== events[0]?.node);
  const rows = useMemo(() => withDays(events, new Date()), [events]);
  return (
    <Table<LiveEvent>
      label="Events"
      rows={rows}
      keyOf={event => event.key}
      empty={empty}
      columns={[
        { title: 'Time', cell: event => timeOf(new Date(event.at)), isMono: true },
        {
          title: 'Event',
          cell: event => <Status text={event.type === 'job' ? (event.status ?? 'job') : event.type} />,
        },
        { title: 'Subject', cell: event => <About event={event} /> },
        { title: 'Reason', cell: event => brief(reasonOf(event)) },
        ...(hasNodes
          ? [{ title: 'Replica', cell: ({ node }: LiveEvent) => node ?? '', isMono: true, isWide: true }]
          : []),
      ]}
    />
  );
}

/** Returns why an event happened. The message of a job that has not failed only repeats its status. */
function reasonOf({ type, status, reason, message }: LiveEvent): string {
  const repeatsStatus = type === 'job' && status !== 'FAILED' && status !== 'STOPPED';
  return reason ?? (repeatsStatus ? '' : (message ?? ''));
}

const ID_CHARS = 8;

function About({ event }: { readonly event: LiveEvent }) {
  const { job, attempt = 1, function: urn, instance_id: id = '', alarm } = event;
  if (job !== undefined) {
    return (
      <a href={`#/jobs/${encodeURIComponent(job)}`}>
        job {job}
        {attempt > 1 ? `, attempt ${attempt}` : ''}
      </a>
    );
  }
  if (urn !== undefined) {
    const name = nameOf(urn);
    return (
      <a href={`#/functions/${encodeURIComponent(name)}`}>
        {name}{' '}
        {event.type === 'scaled' ? `${event.ready} of ${event.instances} ready` : `instance ${id.slice(0, ID_CHARS)}`}
      </a>
    );
  }
  return (
    <a href={`#/agents/${id}`}>
      {event.namespace}/{event.name}
      {alarm === undefined ? '' : `, alarm ${alarm}`}
    </a>
  );
}

/** Returns the function name (`0@service@name`) of a version's URN. */
export function nameOf(urn: string): string {
  return urn.split(':')[5] ?? urn;
}
