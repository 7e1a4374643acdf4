import { isMet, type Measurement, ratioOf, type Target } from './measure.ts';

export interface Section {
  readonly row: string;
  readonly measurements: readonly Measurement[];
  /** Reason why the section has no measurements. */
  readonly problem?: string;
}

export interface BenchMachine {
  readonly cpu: string;
  readonly cores: number;
  readonly memoryGb: number;
  readonly kernel: string;
  readonly node: string;
  readonly python: string;
  readonly generator: string;
  /** Load average before the bench began, which shows other work of the machine. */
  readonly loadBefore: number;
}

/** Returns the table in Markdown. The JSON file beside it has the same numbers. */
export function markdown(sections: readonly Section[], machine: BenchMachine, startedAt: Date): string {
  const lines = [
    `# Bench results of ${startedAt.toISOString().slice(0, 16).replace('T', ' ')} UTC`,
    '',
    `${machine.cores} × ${machine.cpu}, ${machine.memoryGb} GB, Linux ${machine.kernel}, Node ${machine.node}, ` +
      `Python ${machine.python}. Callers: ${machine.generator}. Load average before it began: ${machine.loadBefore.toFixed(1)}. ` +
      'Medians of rounds in which the sides took turns.',
    '',
    '| What | Rookery | Against | Ratio | Target | Met |',
    '|---|---:|---:|---:|---|---|',
  ];
  for (const { row, measurements, problem } of sections) {
    if (problem !== undefined) lines.push(`| ${row} | not measured | | | | ${problem.replaceAll('\n', ' ')} |`);
    for (const measurement of measurements) lines.push(tableLine(measurement));
  }
  return `${lines.join('\n')}\n`;
}

function tableLine(measurement: Measurement): string {
  const { what, value, unit, against, target } = measurement;
  const ratio = ratioOf(measurement);
  const met = isMet(measurement);
  const cells = [
    what,
    amount(value, unit),
    against === undefined ? '' : `${amount(against.value, unit)} (${against.what})`,
    ratio === null ? '' : `${ratio.toFixed(ratio < 0.1 ? 3 : 2)} ×`,
    target === undefined ? '' : targetText(target, unit),
    met === null ? '' : met ? 'yes' : '**no**',
  ];
  return `| ${cells.join(' | ')} |`;
}

function amount(value: number, unit: Measurement['unit']): string {
  const digits = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 1 ? 2 : 3;
  return `${value.toFixed(digits)}${unit === '/s' ? '/s' : ` ${unit}`}`;
}

function targetText({ of, is, bound }: Target, unit: Measurement['unit']): string {
  const text = of === 'value' ? amount(bound, unit) : bound < 0.1 ? `1/${Math.round(1 / bound)}` : `${bound} ×`;
  return `${is === 'at most' ? '≤' : '≥'} ${text}`;
}
