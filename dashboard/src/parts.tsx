import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { messageOf } from './api.ts';
import { Heading } from './heading.ts';
import { dayOf, timeOf, zoneOf } from './times.ts';

/** Components that the views share. Texts of callers and sandboxes are always rendered as text nodes. */

export function Title({ text, children }: { readonly text: string; readonly children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${text} · Rookery`;
  }, [text]);
  return (
    <div class="title">
      <h1>{text}</h1>
      <div class="actions">{children}</div>
    </div>
  );
}

const TONES: Readonly<Record<string, string>> = {
  RUNNING: 'good',
  SUCCEEDED: 'good',
  ready: 'good',
  running: 'good',
  completed: 'good',
  ok: 'good',
  PAUSED: 'busy',
  SLEEPING: 'busy',
  CREATING: 'busy',
  PENDING: 'busy',
  created: 'busy',
  starting: 'busy',
  restarting: 'busy',
  queued: 'busy',
  processing: 'busy',
  warn: 'busy',
  FAILED: 'bad',
  failed: 'bad',
  alarm_failed: 'bad',
  fail: 'bad',
  'RUNNING (code not loaded)': 'bad',
};

/** A state as a word. The colour only repeats the word. */
export function Status({ text }: { readonly text: string }) {
  return <span class={`status ${TONES[text] ?? 'calm'}`}>{text}</span>;
}

/** Returns the state of an agent. An agent whose code failed to load runs and fails every call. */
export function agentStatus({ status, load_error }: { readonly status: string; readonly load_error?: string }): string {
  return load_error ? `${status} (code not loaded)` : status;
}

export function Failure({ text }: { readonly text: string }) {
  return text === '' ? null : (
    <p class="failure" role="alert">
      {text}
    </p>
  );
}

/** Replaces a view while its record is read, or when the read failed. */
export function Missing({ title, error }: { readonly title: string; readonly error: string }) {
  return (
    <>
      <Title text={brief(title)} />
      <Failure text={error} />
      <Loading unless={error} />
    </>
  );
}

export function Note({ children }: { readonly children: ComponentChildren }) {
  return <p class="note">{children}</p>;
}

export interface Column<T> {
  /** An empty title is a column of actions, which only screen readers hear. */
  readonly title: string;
  readonly cell: (item: T) => ComponentChildren;
  /** Right-aligned, with digits of equal width. */
  readonly isNumber?: boolean;
  /** Hidden on narrow screens. */
  readonly isWide?: boolean;
  readonly isMono?: boolean;
}

const ROW_PX = 30;
/** Rows drawn above and below the visible ones. A scroll by fewer than half of them draws nothing. */
const OVERSCAN = 8;
const STEP_ROWS = OVERSCAN / 2;
const WINDOWED = 150;

/** A table, with headings between its rows. A long table draws the rows near the visible ones. */
export function Table<T>(props: {
  readonly label: string;
  readonly columns: readonly Column<T>[];
  readonly rows: readonly (T | Heading)[];
  readonly keyOf: (item: T) => string;
  readonly empty: ComponentChildren;
}) {
  const { label, columns, rows, keyOf, empty } = props;
  const box = useRef<HTMLElement>(null);
  const [seen, setSeen] = useState(0);
  if (rows.length === 0) return <Note>{empty}</Note>;
  const isLong = rows.length > WINDOWED;
  const drawn = isLong ? Math.ceil((box.current?.clientHeight ?? 800) / ROW_PX) + 2 * OVERSCAN : rows.length;
  // The list may have become shorter than the scroll position.
  const first = Math.max(0, Math.min(seen - OVERSCAN, rows.length - drawn));
  const last = Math.min(rows.length, first + drawn);
  const gap = (count: number) =>
    count > 0 ? (
      <tr ref={row => row?.style.setProperty('height', `${count * ROW_PX}px`)}>
        <td colSpan={columns.length} />
      </tr>
    ) : null;
  return (
    <section
      class={isLong ? 'table long' : 'table'}
      aria-label={label}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard
      tabIndex={0}
      ref={box}
      onScroll={isLong ? event => setSeen(firstSeen(event.currentTarget.scrollTop)) : undefined}
    >
      <table aria-rowcount={rows.length + 1}>
        <thead>
          <tr>
            {columns.map(column => (
              <th key={column.title} scope="col" class={classOf(column)}>
                {column.title === '' ? <span class="unseen">Actions</span> : column.title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {gap(first)}
          {/*
            A long table reuses the elements of rows that scroll out, because new elements cost most of a
            step. A cell with state of its own (an `Action`) has a key.
          */}
          {rows.slice(first, last).map((row, index) => (
            <tr
              key={isLong ? (first + index) % (last - first) : row instanceof Heading ? row.text : keyOf(row)}
              aria-rowindex={first + index + 2}
            >
              {row instanceof Heading ? (
                <td key="heading" class="heading" colSpan={columns.length}>
                  {row.text}
                </td>
              ) : (
                columns.map(column => (
                  <td key={column.title} class={classOf(column)}>
                    {column.cell(row)}
                  </td>
                ))
              )}
            </tr>
          ))}
          {gap(rows.length - last)}
        </tbody>
      </table>
    </section>
  );
}

function firstSeen(scrollTop: number): number {
  return Math.floor(scrollTop / ROW_PX / STEP_ROWS) * STEP_ROWS;
}

function classOf({ isNumber, isWide, isMono }: Omit<Column<never>, 'cell' | 'title'>): string {
  return [isNumber && 'number', isWide && 'wide', isMono && 'mono'].filter(Boolean).join(' ');
}

export function Fields({ rows }: { readonly rows: readonly (readonly [name: string, value: ComponentChildren])[] }) {
  return (
    <dl class="fields">
      {rows
        .filter(([, value]) => value !== undefined && value !== '' && value !== null)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{typeof value === 'string' ? <Value text={value} label={name} /> : value}</dd>
          </div>
        ))}
    </dl>
  );
}

const BRIEF_CHARS = 400;

/** Returns the beginning of a text of any length, for a list. */
export function brief(text: string): string {
  return text.length > BRIEF_CHARS ? `${text.slice(0, BRIEF_CHARS)} …` : text;
}

/** A whole text. A long text scrolls in its own box. */
export function Value({
  text,
  label,
  isMono,
}: {
  readonly text: string;
  readonly label: string;
  readonly isMono?: boolean;
}) {
  if (text.length > BRIEF_CHARS) return <Text text={text} label={label} />;
  return isMono ? <code>{text}</code> : text;
}

export function Tabs({
  base,
  tabs,
  now,
}: {
  readonly base: string;
  readonly tabs: readonly (readonly [path: string, title: string])[];
  readonly now: string;
}) {
  const row = useRef<HTMLElement>(null);
  useEffect(() => showCurrent(row.current), [now]);
  return (
    <nav class="tabs" aria-label="Parts" ref={row}>
      {tabs.map(([path, title]) => (
        <a key={path} href={path === '' ? base : `${base}/${path}`} aria-current={path === now ? 'page' : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}

/** Scrolls a row of links to the link of the current page. */
export function showCurrent(row: HTMLElement | null): void {
  row?.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
}

export function Input(props: {
  readonly label: string;
  readonly value: string;
  readonly onInput: (text: string) => void;
  readonly hint?: string;
  readonly type?: 'text' | 'search' | 'number' | 'password' | 'datetime-local';
  readonly lines?: number;
  readonly options?: readonly string[];
  readonly isRequired?: boolean;
  /** Id of the element. Default: made from the label. */
  readonly id?: string;
  /** Sentence that says what is wrong with the value; `''`: nothing. */
  readonly fault?: string;
}) {
  const { label, value, onInput, hint, type = 'text', lines, options, isRequired = false, fault = '' } = props;
  const id = props.id ?? `f-${label.toLowerCase().replace(/\W+/g, '-')}`;
  const texts = [hint === undefined ? '' : `${id}-hint`, fault === '' ? '' : `${id}-fault`].filter(each => each !== '');
  const described = {
    ...(texts.length === 0 ? {} : { 'aria-describedby': texts.join(' ') }),
    ...(fault === '' ? {} : { 'aria-invalid': true }),
  };
  return (
    <div class="input">
      <label for={id}>{label}</label>
      {lines !== undefined ? (
        <textarea
          id={id}
          rows={lines}
          spellcheck={false}
          value={value}
          onInput={event => onInput(event.currentTarget.value)}
          {...described}
        />
      ) : options !== undefined ? (
        <select id={id} value={value} onChange={event => onInput(event.currentTarget.value)} {...described}>
          {options.map(option => (
            <option key={option} value={option}>
              {option === '' ? 'any' : option}
            </option>
          ))}
        </select>
      ) : (
        <input
          id={id}
          type={type as 'text'}
          value={value}
          required={isRequired}
          autocomplete="off"
          spellcheck={false}
          onInput={event => onInput(event.currentTarget.value)}
          {...described}
        />
      )}
      {hint === undefined ? null : (
        <small id={`${id}-hint`} class="hint">
          {hint}
        </small>
      )}
      {fault === '' ? null : (
        <small id={`${id}-fault`} class="fault">
          {fault}
        </small>
      )}
    </div>
  );
}

/** A button that runs `work` and shows its progress and error. With `sure` it asks for a confirmation. */
export function Action(props: {
  readonly text: string;
  readonly work: () => Promise<void>;
  readonly sure?: string;
  readonly isMain?: boolean;
  readonly isDangerous?: boolean;
}) {
  const { text, work, sure, isMain, isDangerous } = props;
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState('');
  const dialog = useRef<HTMLDialogElement>(null);
  const run = async () => {
    dialog.current?.close();
    setBusy(true);
    setError('');
    try {
      await work();
    } catch (problem) {
      setError(messageOf(problem));
    }
    setBusy(false);
  };
  const kind = isDangerous ? 'danger' : isMain ? 'main' : '';
  return (
    <>
      <button
        type="button"
        class={kind}
        disabled={isBusy}
        onClick={() => (sure === undefined ? void run() : dialog.current?.showModal())}
      >
        {isBusy ? `${text} …` : text}
      </button>
      {error === '' ? null : <Failure text={error} />}
      {sure === undefined ? null : (
        <dialog ref={dialog} aria-label={text}>
          <p>{sure}</p>
          <div class="actions">
            <button type="button" onClick={() => dialog.current?.close()}>
              Cancel
            </button>
            <button type="button" class={kind} onClick={() => void run()}>
              {text}
            </button>
          </div>
        </dialog>
      )}
    </>
  );
}

export function Panel({
  title,
  children,
  actions,
}: {
  readonly title: string;
  readonly children: ComponentChildren;
  readonly actions?: ComponentChildren;
}) {
  return (
    <div class="panel">
      <div class="panel-head">
        <h2>{title}</h2>
        {actions}
      </div>
      {children}
    </div>
  );
}

export function Json({ value, label }: { readonly value: unknown; readonly label: string }) {
  return <Text text={JSON.stringify(value, null, 2)} label={label} />;
}

export function Text({ text, label }: { readonly text: string; readonly label: string }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard
    <section class="text" aria-label={label} tabIndex={0}>
      <pre>{text}</pre>
    </section>
  );
}

/** Shows that a value is being read. Renders nothing if `unless` has an error. */
export function Loading({ unless = '' }: { readonly unless?: string }) {
  return unless !== '' ? null : (
    <p class="note" role="status">
      Reading …
    </p>
  );
}

/** Number of rows of a list that match. Empty while the list is read. */
export function Shown({
  rows,
  of,
}: {
  readonly rows: readonly unknown[];
  readonly of: readonly unknown[] | undefined;
}) {
  return (
    <span class="count" role="status">
      {of === undefined ? '' : `${rows.length} of ${of.length}`}
    </span>
  );
}

export function ago(at: string | number | null | undefined): string {
  if (at === null || at === undefined || at === '') return '–';
  const then = typeof at === 'number' ? at : Date.parse(at);
  if (Number.isNaN(then)) return String(at);
  const seconds = Math.max(0, Math.round((Date.now() - then) / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Returns a time in the browser's zone, as `2026-01-31 13:05:00 UTC+01:00`. */
export function moment(at: string | number): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? String(at) : `${dayOf(date)} ${timeOf(date)} ${zoneOf(date)}`;
}

/** Returns the zone of the times of this page. */
export function zoneNow(): string {
  return zoneOf(new Date());
}

export function counted(count: number, noun: string): string {
  return count === 1 ? `1 ${noun}` : `${count} ${noun}s`;
}

/** A sentence of the documents, with its names between backticks as code. */
export function Prose({ text }: { readonly text: string }) {
  return <>{text.split('`').map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part))}</>;
}

export function bytes(count: number): string {
  if (count < 1024) return `${count} B`;
  if (count < 1024 ** 2) return `${(count / 1024).toFixed(1)} KiB`;
  if (count < 1024 ** 3) return `${(count / 1024 ** 2).toFixed(1)} MiB`;
  return `${(count / 1024 ** 3).toFixed(2)} GiB`;
}

export function short(value: number | null | undefined, unit = ''): string {
  if (value === null || value === undefined) return '–';
  const text = Math.abs(value) >= 99.5 || Number.isInteger(value) ? String(Math.round(value)) : value.toPrecision(2);
  return `${text}${unit}`;
}

/** Returns the time of day in the browser's zone, after the day if that is not today. */
export function clock(at: string): string {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return at;
  return dayOf(date) === dayOf(new Date()) ? timeOf(date) : `${dayOf(date)} ${timeOf(date)}`;
}
