import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { METRICS } from './metric-table.ts';

/** The metrics that the dashboard's queries name, without the endings of histograms. */
function queriedMetrics(): Set<string> {
  const text = readFileSync(new URL('../../deploy/grafana-dashboard.json', import.meta.url), 'utf8');
  const dashboard = JSON.parse(text) as {
    panels: { targets?: { expr: string }[] }[];
    templating: { list: { query?: string | { query: string } }[] };
  };
  const queries = [
    ...dashboard.panels.flatMap(({ targets = [] }) => targets.map(({ expr }) => expr)),
    ...dashboard.templating.list.map(({ query }) => (typeof query === 'object' ? query.query : '')),
  ];
  const names = queries.flatMap(query => query.match(/\b(?:rookery|process|nodejs)_\w+/g) ?? []);
  return new Set(names.map(name => (name in METRICS ? name : name.replace(/_(bucket|sum|count)$/, ''))));
}

test('every metric of the Grafana dashboard is one that the service has', () => {
  expect([...queriedMetrics()].filter(name => !(name in METRICS))).toEqual([]);
});

test.each([
  ['functions', /^rookery_function_/],
  ['jobs', /^rookery_jobs?(_|$)/],
])('the dashboard shows every metric of %s', (_, pattern) => {
  const shown = queriedMetrics();
  const wanted = Object.keys(METRICS).filter(name => pattern.test(name));
  expect(wanted).not.toEqual([]);
  expect(wanted.filter(name => !shown.has(name))).toEqual([]);
});
