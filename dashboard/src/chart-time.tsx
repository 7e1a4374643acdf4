import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { clock } from './parts.tsx';
import type { TimeWindow } from './time-window.ts';

export const RANGES = ['15m', '1h', '6h', '24h'] as const;
type Range = (typeof RANGES)[number];

const NAMES: Readonly<Record<Range, string>> = { '15m': '15 min', '1h': '1 h', '6h': '6 h', '24h': '24 h' };
/** Name under which the browser stores the range. */
const STORED = 'chart-range';

/** The range of all charts. The browser keeps it for the next page. */
export const range = signal<Range>(RANGES.find(each => each === localStorage.getItem(STORED)) ?? '1h');

/** The part that all charts of the page show; null: the whole range. */
export const zoom = signal<TimeWindow | null>(null);

function setRange(next: Range): void {
  localStorage.setItem(STORED, next);
  range.value = next;
  zoom.value = null;
}

/** Buttons for the range of the charts, and the zoomed part with a button for the whole range. */
export function ChartTime() {
  const part = zoom.value;
  // Another page has other charts.
  useEffect(
    () => () => {
      zoom.value = null;
    },
    [],
  );
  useEffect(() => {
    if (part === null) return;
    const listener = (event: KeyboardEvent) => {
      // A dialog closes at Escape.
      if (event.key === 'Escape' && document.querySelector('dialog[open]') === null) zoom.value = null;
    };
    addEventListener('keydown', listener);
    return () => removeEventListener('keydown', listener);
  }, [part]);
  return (
    <>
      <fieldset class="choice">
        <legend class="unseen">Range</legend>
        {RANGES.map(each => (
          <button key={each} type="button" aria-pressed={range.value === each} onClick={() => setRange(each)}>
            {NAMES[each]}
          </button>
        ))}
      </fieldset>
      {part === null ? null : (
        <button
          type="button"
          onClick={() => {
            zoom.value = null;
          }}
        >
          Whole range
        </button>
      )}
      <span class="count" role="status">
        {part === null ? 'Drag over a chart to zoom.' : windowText(part)}
      </span>
    </>
  );
}

/** Returns the begin and the end of a window as text. */
export function windowText({ from, to }: TimeWindow): string {
  const text = (seconds: number) => clock(new Date(seconds * 1000).toISOString());
  return `${text(from)} to ${text(to)}`;
}
