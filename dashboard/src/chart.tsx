import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';

export interface Line {
  readonly name: string;
  readonly values: readonly (number | null)[];
  /** One of the colours of the page: `--line-1` … `--line-4`, `--bad`. */
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

/** A chart with its newest values as text, for those who do not see it. Loaded when the first one is shown. */
export default function Chart({ title, unit, start, step, lines }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const first = firstShown(lines);
  const data = [
    (lines[0]?.values ?? []).map((_, at) => start + at * step).slice(first),
    ...lines.map(line => line.values.slice(first)),
  ];
  const latest = useRef(data);
  latest.current = data;
  const shape = lines.map(line => line.name).join();
  // It is made anew when its lines are others; their values come below
  useEffect(() => {
    const element = box.current;
    if (element === null) return;
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(
        optionsOf(element, unit, lines),
        latest.current as unknown as uPlot.AlignedData,
        element,
      );
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
  useEffect(() => plot.current?.setData(data as unknown as uPlot.AlignedData));
  return (
    <figure class="chart">
      <figcaption>
        <span>{title}</span>
        <span class="legend">
          {lines.map(line => (
            <span key={line.name} class={`key ${line.colour}`}>
              {line.name} <b>{newest(line.values, unit)}</b>
            </span>
          ))}
        </span>
      </figcaption>
      <div ref={box} aria-hidden="true" />
      {lines.every(line => known(line.values) === 0) ? <p class="nothing">Nothing in this time.</p> : null}
    </figure>
  );
}

const HEIGHT = 150;
/** A service that has just begun has a short past: no less than so many points are shown of it. */
const LEAST_POINTS = 30;
/** Of fewer each one is marked: a line needs two. */
const MARKED = 24;

function firstShown(lines: readonly Line[]): number {
  const begins = lines.map(line => line.values.findIndex(value => value !== null)).filter(at => at >= 0);
  const length = lines[0]?.values.length ?? 0;
  return Math.max(0, Math.min(length - LEAST_POINTS, ...begins));
}

function known(values: ArrayLike<number | null | undefined> = []): number {
  return Array.from(values).filter(value => value !== null).length;
}

function newest(values: readonly (number | null)[], unit: string): string {
  const value = values.findLast(each => each !== null);
  return value === undefined || value === null ? '–' : shown(value, unit);
}

function shown(value: number, unit: string): string {
  const text =
    Math.abs(value) >= 100 || Number.isInteger(value) ? Math.round(value).toLocaleString('en') : value.toPrecision(2);
  return unit === '' ? text : `${text} ${unit}`;
}

function optionsOf(element: HTMLElement, unit: string, lines: readonly Line[]): uPlot.Options {
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
    cursor: { points: { size: 5 }, y: false },
    // The last time on the axis stands half beyond it.
    padding: [8, 18, 0, 0],
    scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high ?? 0) > 0 ? (high ?? 1) * 1.1 : 1] } },
    axes: [
      {
        ...axis,
        space: 70,
        size: 26,
        values: (_, ticks) => ticks.map(tick => new Date(tick * 1000).toTimeString().slice(0, tick % 60 === 0 ? 5 : 8)),
      },
      { ...axis, size: 54, values: (_, ticks) => ticks.map(tick => shown(tick, unit)) },
    ],
    series: [
      {},
      ...lines.map(line => ({
        label: line.name,
        stroke: colour(line.colour),
        width: 1.5,
        ...(line.isDashed ? { dash: [5, 4] } : {}),
        points: {
          show: (self: uPlot, series: number) => known(self.data[series]) < MARKED,
          size: 4,
        },
        spanGaps: true,
      })),
    ],
  };
}
