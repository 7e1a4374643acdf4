import { Bars } from '../bars.tsx';

interface Stage {
  readonly name: string;
  readonly ms: number;
}

/** Returns the stages of a header `Server-Timing`, in order. */
export function stagesOf(timing: string): readonly Stage[] {
  return timing.split(',').flatMap(part => {
    const name = part.split(';', 1)[0]?.trim() ?? '';
    const ms = Number(/dur=([\d.]+)/.exec(part)?.[1] ?? Number.NaN);
    return name === '' || Number.isNaN(ms) ? [] : [{ name, ms }];
  });
}

/** Chart of the stages of a call. */
export function Waterfall({ timing, totalMs }: { readonly timing: string; readonly totalMs: number }) {
  const stages = stagesOf(timing);
  if (stages.length === 0) return null;
  const sum = stages.reduce((all, stage) => all + stage.ms, 0);
  const whole = Math.max(totalMs, sum, 0.001);
  let at = 0;
  const rows = stages.map(stage => {
    const begin = at;
    at += stage.ms;
    return { ...stage, begin };
  });
  rows.push({ name: 'the rest', ms: Math.max(0, totalMs - sum), begin: sum });
  return (
    <Bars
      title="Where the time went"
      label={rows.map(row => `${row.name} ${row.ms.toFixed(2)} ms`).join(', ')}
      bars={rows.map((row, index) => ({
        name: row.name,
        from: row.begin / whole,
        length: row.ms / whole,
        text: `${row.ms.toFixed(2)} ms`,
        tone: row.name === 'the rest' ? 'rest' : `stage-${index % 4}`,
      }))}
    />
  );
}
