import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { messageOf } from './api.ts';
import { searchText } from './list.ts';
import { Failure } from './parts.tsx';
import { AGENTS, agentName } from './views/agents.tsx';
import { readFunctions } from './views/functions.tsx';
import { JOBS } from './views/jobs.tsx';

/** Something that has a page. */
export interface Place {
  readonly kind: string;
  readonly name: string;
  /** Further text by which it is found. */
  readonly more: string;
  readonly href: string;
}

const MOST = 12;
const CALL_ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;

/** Sources of places. Each reads a list in batches. */
const SOURCES: readonly ((signal: AbortSignal) => AsyncIterable<readonly Place[]>)[] = [
  async function* agents(signal) {
    for await (const batch of AGENTS.all(signal)) {
      yield batch.map(agent => {
        const { instance_id: id } = agent;
        return { kind: 'agent', name: agentName(agent), more: id, href: `#/agents/${id}` };
      });
    }
  },
  async function* functions(signal) {
    yield (await readFunctions(signal)).map(({ name }) => {
      return { kind: 'function', name, more: '', href: `#/functions/${encodeURIComponent(name)}` };
    });
  },
  async function* jobs(signal) {
    for await (const batch of JOBS.all(signal)) {
      yield batch.map(({ submission_id: id, entrypoint }) => {
        return { kind: 'job', name: id, more: entrypoint, href: `#/jobs/${encodeURIComponent(id)}` };
      });
    }
  },
];

/** Button and key (Ctrl-K) that open a search over pages, agents, functions, jobs and ids of calls. */
export function Search({ pages }: { readonly pages: readonly Place[] }) {
  const [isOpen, setOpen] = useState(false);
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const open = (event: KeyboardEvent) => {
      const isKey = event.key.toLowerCase() === 'k' && (event.ctrlKey || event.metaKey);
      // A shell in the terminal has its own meaning of Ctrl-K.
      if (!isKey || (event.target instanceof Element && event.target.closest('.xterm') !== null)) return;
      event.preventDefault();
      setOpen(true);
    };
    addEventListener('keydown', open);
    return () => removeEventListener('keydown', open);
  }, []);
  useEffect(() => {
    if (isOpen) dialog.current?.showModal();
  }, [isOpen]);
  return (
    <>
      <button type="button" class="find" onClick={() => setOpen(true)}>
        Search <kbd>Ctrl K</kbd>
      </button>
      {isOpen ? (
        <dialog ref={dialog} class="search" aria-label="Search" onClose={() => setOpen(false)}>
          <Finder pages={pages} close={() => setOpen(false)} />
        </dialog>
      ) : null}
    </>
  );
}

function Finder({ pages, close }: { readonly pages: readonly Place[]; readonly close: () => void }) {
  const [text, setText] = useState('');
  const [at, setAt] = useState(0);
  const { places, isReading, error } = usePlaces();
  const wanted = text.trim().toLowerCase();
  const found = useMemo(() => {
    if (wanted === '') return [];
    const call = { kind: 'call', name: wanted, more: '', href: `#/calls/${wanted}` };
    return [...pages, ...places, ...(CALL_ID.test(wanted) ? [call] : [])]
      .filter(place => searchText(place, ({ name, more }) => `${name} ${more}`).includes(wanted))
      .slice(0, MOST);
  }, [places, wanted]);
  const go = ({ href }: Place) => {
    location.hash = href;
    close();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const chosen = found[at];
    if (step !== undefined) setAt(Math.min(found.length - 1, Math.max(0, at + step)));
    else if (event.key === 'Enter' && chosen !== undefined) go(chosen);
    else return;
    event.preventDefault();
  };
  return (
    <>
      <input
        type="text"
        role="combobox"
        aria-label="Search for"
        aria-expanded={found.length > 0}
        aria-controls="found"
        aria-activedescendant={found.length > 0 ? `found-${at}` : undefined}
        placeholder="Agent, function, job, page, or the id of a call"
        value={text}
        onInput={event => {
          setText(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <Failure text={error} />
      <div role="listbox" id="found" aria-label="Found">
        {found.map((place, index) => (
          <a
            key={place.href}
            id={`found-${index}`}
            href={place.href}
            role="option"
            tabIndex={-1}
            aria-selected={index === at}
            onClick={close}
          >
            <span>{place.name}</span> <span class="faint">{place.kind}</span>
          </a>
        ))}
      </div>
      {wanted !== '' && found.length === 0 ? (
        <p class="note">{isReading ? 'Reading …' : 'Nothing has this text.'}</p>
      ) : null}
    </>
  );
}

/** Reads all places once. */
function usePlaces(): { readonly places: readonly Place[]; readonly isReading: boolean; readonly error: string } {
  const [places, setPlaces] = useState<readonly Place[]>([]);
  const [isReading, setReading] = useState(true);
  const [error, setError] = useState('');
  useEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    const read = async (source: (typeof SOURCES)[number]) => {
      try {
        for await (const batch of source(signal)) setPlaces(before => [...before, ...batch]);
      } catch (problem) {
        if (!signal.aborted) setError(messageOf(problem));
      }
    };
    void Promise.all(SOURCES.map(read)).then(() => setReading(false));
    return () => controller.abort();
  }, []);
  return { places, isReading, error };
}
