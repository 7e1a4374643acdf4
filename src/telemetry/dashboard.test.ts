import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { METRICS, type MetricName } from './metric-table.ts';

/** Returns the metrics in the queries of the dashboard, without the suffixes of histograms. */
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
  return new Set(queries.flatMap(metricsIn));
}

function metricsIn(query: string): readonly string[] {
  const names = query.match(/\b(?:rookery|process|nodejs)_\w+/g) ?? [];
  return names.map(name => (name in METRICS ? name : name.replace(/_(bucket|sum|count)$/, '')));
}

interface Alert {
  readonly alert: string;
  readonly expr: string;
  readonly annotations: { readonly summary: string };
}

function alerts(): readonly Alert[] {
  const text = readFileSync(new URL('../../deploy/alerts.yaml', import.meta.url), 'utf8');
  return (parse(text) as { groups: { rules: Alert[] }[] }).groups.flatMap(({ rules }) => rules);
}

/** Labels that Prometheus adds to each series. */
const OF_SCRAPE = ['instance', 'job'];

test('the Grafana dashboard queries only metrics that the service has', () => {
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

test('the alert rules use only metrics and labels that the service has', () => {
  for (const { alert, expr } of alerts()) {
    const names = metricsIn(expr);
    expect({ alert, unknown: names.filter(name => !(name in METRICS)) }).toEqual({ alert, unknown: [] });
    const known = names.flatMap(name => Object.keys(METRICS[name as MetricName].labels)).concat(OF_SCRAPE);
    const selected = [...expr.matchAll(/(\w+)(?:!=|=~|!~|=)"/g)].map(([, label]) => label);
    const grouped = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, list = '']) => list.split(/,\s*/));
    const unknown = [...selected, ...grouped].filter(label => !known.includes(label as string));
    expect({ alert, unknown }).toEqual({ alert, unknown: [] });
    // A sum without the instance label would hide one failing replica among the others.
    expect({ alert, isOfInstance: !expr.includes('sum') || grouped.includes('instance') }).toEqual({
      ...{ alert, isOfInstance: true },
    });
  }
});

test('the monitoring page has a row for each alert', () => {
  const page = readFileSync(new URL('../../docs/operate/monitoring.md', import.meta.url), 'utf8');
  expect(alerts().map(({ alert }) => alert)).toHaveLength(6);
  for (const { alert } of alerts()) expect(page).toContain(`| \`${alert}\` |`);
});
