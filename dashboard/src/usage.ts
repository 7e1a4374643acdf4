import { useEffect } from 'preact/hooks';
import { type AnswerOf, call } from './api.ts';
import { type Loaded, useLoaded } from './live.ts';
import { type Column, short } from './parts.tsx';

export type Usage = AnswerOf<'getUsage'>['usage'][string];
type UsageOf = Loaded<Readonly<Record<string, Usage>>>;

/** The service reads CPU and memory as often. */
const READ_MS = 10_000;

/** Reads the usage of all agents or functions of the tenant every 10 s while the page is visible. */
export function useUsage(of: 'agents' | 'functions'): UsageOf {
  const loaded = useLoaded<Readonly<Record<string, Usage>>>(`usage ${of}`, async signal => {
    return (await call('getUsage', { query: { of }, signal })).usage;
  });
  const { reload } = loaded;
  useEffect(() => {
    const timer = setInterval(() => {
      if (!document.hidden) reload();
    }, READ_MS);
    return () => clearInterval(timer);
  }, []);
  return loaded;
}

interface Limits {
  /** Limit of all sandboxes together; 0: unknown. */
  readonly cpuMillis: number;
  readonly memoryMb: number;
}

/** Columns of a list: calls of the last hour, and CPU and memory now. */
export function usageColumns<T>(
  usageOf: (item: T) => Usage | undefined,
  limitsOf: (item: T, usage: Usage) => Limits,
): readonly Column<T>[] {
  const cell = (show: (usage: Usage, item: T) => string) => (item: T) => {
    const usage = usageOf(item);
    return usage === undefined ? '–' : show(usage, item);
  };
  const share = (used: number | null, limit: number, unit: string) =>
    used === null ? '–' : `${short(used)}${limit > 0 ? ` of ${limit}` : ''}${unit}`;
  return [
    { title: 'Calls, 1 h', cell: cell(usage => String(usage.calls)), isNumber: true },
    { title: 'Errors', cell: cell(usage => String(usage.errors)), isNumber: true },
    { title: 'p99', cell: cell(usage => short(usage.p99_ms, ' ms')), isNumber: true, isWide: true },
    {
      title: 'Millicores',
      cell: cell((usage, item) => share(usage.cpu_millis, limitsOf(item, usage).cpuMillis, '')),
      isNumber: true,
      isWide: true,
    },
    {
      title: 'Memory',
      cell: cell((usage, item) => share(usage.memory_mb, limitsOf(item, usage).memoryMb, ' MB')),
      isNumber: true,
      isWide: true,
    },
  ];
}
