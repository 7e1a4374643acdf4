import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import { windowText, zoom } from './chart-time.tsx';
import { selectedWindow, type TimeWindow, windowAfterKey } from './time-window.ts';

export interface Line {
  readonly name: string;
  readonly values: readonly (number | null)[];
  /** Name of a colour of the page: `line-1` … `line-4`, or `bad`. */
  readonly colour: string;
  readonly isDashed?: boolean;
}

export interface ChartProps {
  readonly title: string;
  readonly unit: string;
  readonly start: number;
  readonly step: number;
  readonly lines: readonly Line[];
}

/**
 * A line chart with the newest values of the shown time as text for screen readers. Loaded with the first
 * chart. Dragging and keys zoom all charts of the page.
 */
export default function Chart({ title, unit, start, step, lines }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const times = (lines[0]?.values ?? []).map((_, at) => start + at * step);
  const whole = { from: times[firstShown(lines)] ?? start, to: times.at(-1) ?? start + step };
  const part = zoom.value ?? whole;
  const state: Shown = { data: [times, ...lines.map(line => bridged(line.values))], part, whole, step };
  const latest = useRef(state);
  latest.current = state;
  const shape = lines.map(line => line.name).join();
  // Recreates the plot when the set of lines changes. A second effect updates the values.
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(element, unit, lines, latest), undefined, element);
      update(plot.current, latest.current);
    };
    make();
    const sizes = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    sizes.observe(element);
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const themes = new MutationObserver(make);
    dark.addEventListener('change', make);
    themes.observe(document.documentElement, { attributeFilter: ['data-theme'] });
    return () => {
      sizes.disconnect();
      themes.disconnect();
      dark.removeEventListener('change', make);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape, unit]);
  useEffect(() => {
    if (plot.current !== null) update(plot.current, state);
  });
  const shownValues = lines.map(({ values }) =>
    values.filter((_, at) => start + at * step >= part.from && start + at * step <= part.to),
  );
  return (
    <figure class="chart">
      <figcaption>
        <span>{title}</span>
        <span class="legend">
          {lines.map((line, at) => (
            <span key={line.name} class={`key ${line.colour}`}>
              {line.name} <b>{newest(shownValues[at] ?? [], unit)}</b>
            </span>
          ))}
        </span>
      </figcaption>
      <div
        ref={box}
        class="plot"
        // Screen readers pass the arrow keys on to an application.
        role="application"
        aria-roledescription="chart"
        aria-label={`${title}, ${windowText(part)}. Plus and minus zoom, arrow keys move, Escape shows the whole range.`}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: keys zoom the chart.
        tabIndex={0}
        onKeyDown={event => {
          if (event.ctrlKey || event.altKey || event.metaKey) return;
          const next = windowAfterKey(event.key, zoom.value, whole, step);
          if (next === undefined) return;
          event.preventDefault();
          zoom.value = next;
        }}
      />
      {shownValues.every(values => known(values) === 0) ? <p class="nothing">Nothing in this time.</p> : null}
    </figure>
  );
}

/** Values of a plot, and the times that it shows. */
interface Shown {
  readonly data: readonly (readonly (number | null | undefined)[])[];
  readonly part: TimeWindow;
  readonly whole: TimeWindow;
  readonly step: number;
}

/** Sets the values of a plot and the part of the time that it shows. */
function update(plot: uPlot, { data, part }: Shown): void {
  plot.setData(data as unknown as uPlot.AlignedData, false);
  plot.setScale('x', { min: part.from, max: part.to });
}

const HEIGHT = 150;
/** A shorter drag is a click. */
const DRAG_PX = 5;
/** Width of a character on an axis at most, in pixels. */
const AXIS_CHAR_PX = 6.5;
/** Least number of points shown, for a service that has just started. */
const LEAST_POINTS = 30;
/** Lines with fewer shown points than this mark each point. */
const MARKED = 24;
/** Longest run of missing points that a line bridges. A longer one is a gap. */
const BRIDGED = 5;

function firstShown(lines: readonly Line[]): number {
  const begins = lines.map(line => line.values.findIndex(value => value !== null)).filter(at => at >= 0);
  const length = lines[0]?.values.length ?? 0;
  return Math.max(0, Math.min(length - LEAST_POINTS, ...begins));
}

function known(values: ArrayLike<number | null | undefined> = []): number {
  return Array.from(values).filter(value => value !== null && value !== undefined).length;
}

/** Returns the values with short runs of null as undefined, over which uPlot continues the line. */
function bridged(values: readonly (number | null)[]): (number | null | undefined)[] {
  const result: (number | null | undefined)[] = [...values];
  let last = -1;
  for (const [at, value] of values.entries()) {
    if (value === null) continue;
    if (last >= 0 && at - last - 1 <= BRIDGED) result.fill(undefined, last + 1, at);
    last = at;
  }
  return result;
}

/** Returns the positions of points between two gaps, which no line would show. */
function isolated(values: ArrayLike<number | null | undefined>): number[] {
  const isGap = (at: number) => at < 0 || at >= values.length || values[at] === null;
  return Array.from(values).flatMap((value, at) =>
    typeof value === 'number' && isGap(at - 1) && isGap(at + 1) ? [at] : [],
  );
}

function newest(values: readonly (number | null)[], unit: string): string {
  const value = values.findLast(each => each !== null);
  return value === undefined || value === null ? '–' : shown(value, unit);
}

function shown(value: number, unit: string): string {
  const text =
    Math.abs(value) >= 99.5 || Number.isInteger(value) ? Math.round(value).toLocaleString('en') : value.toPrecision(2);
  return unit === '' ? text : `${text} ${unit}`;
}

/** Shows the dragged part of a plot in all charts. */
function zoomToSelection(plot: uPlot, { whole, step }: Shown): void {
  const { left, width } = plot.select;
  if (width === 0) return;
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  zoom.value = selectedWindow({ from: plot.posToVal(left, 'x'), to: plot.posToVal(left + width, 'x') }, whole, step);
}

function optionsOf(
  element: HTMLElement,
  unit: string,
  lines: readonly Line[],
  latest: { readonly current: Shown },
): uPlot.Options {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const axis = {
    stroke: colour('faint'),
    grid: { stroke: colour('border'), width: 1 },
    ticks: { show: false },
    font: '11px system-ui',
  };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: {
      points: { size: 5 },
      y: false,
      // `zoom` sets the scale of all charts.
      drag: { x: true, y: false, setScale: false, dist: DRAG_PX },
      bind: {
        dblclick: () => () => {
          zoom.value = null;
          return null;
        },
      },
    },
    hooks: { setSelect: [plot => zoomToSelection(plot, latest.current)] },
    // Space for the right half of the last time on the axis.
    padding: [8, 18, 0, 0],
    scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) > 0 ? (high ?? 1) * 1.1 : 1] } },
    axes: [
      {
        ...axis,
        space: 70,
        size: 26,
        values: (_, ticks) => ticks.map(tick => new Date(tick * 1000).toTimeString().slice(0, tick % 60 === 0 ? 5 : 8)),
      },
      {
        ...axis,
        size: (_, texts) => Math.max(40, ...(texts ?? []).map(text => text.length * AXIS_CHAR_PX + 16)),
        values: (_, ticks) => ticks.map(tick => shown(tick, unit)),
      },
    ],
    series: [
      {},
      ...lines.map(line => ({
        label: line.name,
        stroke: colour(line.colour),
        width: 1.5,
        ...(line.isDashed ? { dash: [5, 4] } : {}),
        points: {
          show: (self: uPlot, series: number, first: number, last: number) =>
            known(self.data[series]?.slice(first, last + 1)) < MARKED,
          filter: (self: uPlot, series: number, isShown: boolean) =>
            isShown ? null : isolated(self.data[series] as ArrayLike<number | null | undefined>),
          size: 4,
        },
      })),
    ],
  };
}
