import { useState } from 'preact/hooks';
import { type LiveEvent, recent } from '../live.ts';
import { brief, clock, Input, Status, Table, Title } from '../parts.tsx';

export function EventsView() {
  const [text, setText] = useState('');
  return (
    <>
      <Title text="Events" />
      <div class="filters">
        <Input label="Search" value={text} onInput={setText} type="search" />
      </div>
      <EventList most={200} search={text} />
    </>
  );
}

export function EventList({
  most,
  search = '',
  isAbout = () => true,
}: {
  readonly most: number;
  readonly search?: string;
  readonly isAbout?: (event: LiveEvent) => boolean;
}) {
  const wanted = search.toLowerCase();
  const rows = recent.value
    .filter(event => isAbout(event) && (wanted === '' || JSON.stringify(event).toLowerCase().includes(wanted)))
    .slice(0, most);
  const hasNodes = rows.some(({ node }) => node !== rows[0]?.node);
  return (
    <Table
      label="Events"
      rows={rows}
      keyOf={event => event.id}
      empty="No events yet: they appear when something starts, ends or scales."
      columns={[
        { title: 'Time', cell: event => clock(event.at), isMono: true },
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

function About({ event }: { readonly event: LiveEvent }) {
  if (event.job !== undefined) return <a href={`#/jobs/${encodeURIComponent(event.job)}`}>job {event.job}</a>;
  if (event.function !== undefined) {
    const name = nameOf(event.function);
    return (
      <a href={`#/functions/${encodeURIComponent(name)}`}>
        {name} {event.type === 'scaled' ? `${event.ready} of ${event.instances} ready` : ''}
      </a>
    );
  }
  return (
    <a href={`#/agents/${event.instance_id}`}>
      {event.namespace}/{event.name}
    </a>
  );
}

/** Returns the function name (`0@service@name`) of a version's URN. */
export function nameOf(urn: string): string {
  return urn.split(':')[5] ?? urn;
}
