import { expect, test, vi } from 'vitest';
import { METRICS, metricsPage } from './metric-table.ts';
import { createMetrics } from './metrics.ts';

async function page(metrics: ReturnType<typeof createMetrics>): Promise<string> {
  return (await metrics.entry('frontend').render(null)).body;
}

test('every metric of the table is on the page with its help, and no other', async () => {
  const body = await page(createMetrics({ version: '1.2.3' }));
  const names = [...body.matchAll(/^# HELP (\S+) (.*)$/gm)].map(match => [match[1], match[2]]);
  expect(Object.fromEntries(names)).toEqual(
    Object.fromEntries(Object.entries(METRICS).map(([name, metric]) => [name, metric.help])),
  );
});

test('every metric of the table is in the documentation', () => {
  for (const name of Object.keys(METRICS)) expect(metricsPage()).toContain(`### \`${name}\``);
});

test('a request is counted by entry, method, route and status, with its time', async () => {
  const metrics = createMetrics({ version: '1' });
  const { observeRequest } = metrics.entry('frontend');
  observeRequest('POST', '/api/agent', 200, 0.003);
  observeRequest('POST', '/api/agent', 200, 0.5);
  observeRequest('POST', '/api/agent', 500, 1000);
  const body = await page(metrics);
  const labels = 'entry="frontend",method="POST",route="/api/agent",status="200"';
  expect(body).toContain(`rookery_http_request_seconds_count{${labels}} 2`);
  expect(body).toContain(`rookery_http_request_seconds_sum{${labels}} 0.503`);
  expect(body).toContain(`rookery_http_request_seconds_bucket{le="0.0025",${labels}} 0`);
  expect(body).toContain(`rookery_http_request_seconds_bucket{le="0.005",${labels}} 1`);
  expect(body).toContain(`rookery_http_request_seconds_bucket{le="0.5",${labels}} 2`);
  expect(body).toContain(`rookery_http_request_seconds_bucket{le="+Inf",${labels.replace('200', '500')}} 1`);
});

test('a text that a caller chooses makes no new series', async () => {
  const metrics = createMetrics({ version: '1' });
  const { observeRequest } = metrics.entry('meta_service');
  observeRequest('BREW', '', 404, 0.001);
  observeRequest('STEEP', '', 404, 0.001);
  expect(await page(metrics)).toContain(
    'rookery_http_request_seconds_count{entry="meta_service",method="other",route="unknown",status="404"} 2',
  );
});

test('calls, starts and ends of instances are counted by their outcome', async () => {
  const metrics = createMetrics({ version: '1' });
  metrics.invoked('ok', 0.001, 'id');
  metrics.invoked('4002', 0.001, 'id');
  metrics.instances.created('process', 'created', 6);
  metrics.instances.exited('process');
  const body = await page(metrics);
  expect(body).toContain('rookery_invocation_seconds_count{outcome="ok"} 1');
  expect(body).toContain('rookery_invocation_seconds_count{outcome="4002"} 1');
  expect(body).toContain('rookery_create_seconds_sum{driver="process",outcome="created"} 0.006');
  expect(body).toContain('rookery_instance_exits_total{driver="process"} 1');
});

test('jobs are counted by status, by how they ended, and by how long they waited and ran', async () => {
  const metrics = createMetrics({ version: '1' });
  expect(await page(metrics)).not.toMatch(/^rookery_jobs\{/m);
  metrics.readFrom({ jobs: () => ({ PENDING: 3, RUNNING: 0 }) });
  metrics.jobs.started(2000);
  metrics.jobs.attempted('FAILED', 500);
  metrics.jobs.attempted('SUCCEEDED', 90_000);
  metrics.jobs.ended('SUCCEEDED');
  const body = await page(metrics);
  expect(body).toContain('rookery_jobs{status="PENDING"} 3');
  expect(body).toContain('rookery_jobs{status="RUNNING"} 0');
  expect(body).toContain('rookery_job_ends_total{status="SUCCEEDED"} 1');
  expect(body).toMatch(/^rookery_job_wait_seconds_sum 2$/m);
  expect(body).toContain('rookery_job_wait_seconds_bucket{le="1"} 0');
  expect(body).toContain('rookery_job_wait_seconds_bucket{le="5"} 1');
  expect(body).toContain('rookery_job_run_seconds_sum{status="FAILED"} 0.5');
  expect(body).toContain('rookery_job_run_seconds_count{status="SUCCEEDED"} 1');
});

test('gauges are read at the scrape, and are 0 before a source is set', async () => {
  const metrics = createMetrics({ version: '1' });
  expect(await page(metrics)).toMatch(/^rookery_open_calls 0$/m);
  const gauges = { liveInstances: 1, openCalls: 2 };
  metrics.readFrom({ agents: gauges });
  expect(await page(metrics)).toMatch(/^rookery_live_instances 1$/m);
  gauges.liveInstances = 5;
  expect(await page(metrics)).toMatch(/^rookery_live_instances 5$/m);
  expect(await page(metrics)).toMatch(/^rookery_open_calls 2$/m);
});

test('unknown codes and statuses share one series', async () => {
  const metrics = createMetrics({ version: '1' });
  const { observeRequest } = metrics.entry('frontend');
  for (let number = 0; number < 50; number += 1) {
    metrics.invoked(`${number}000000`, 0.001, 'id');
    metrics.functionInvoked('acme', 'f', `code\n${number}`, 0.001, null);
    observeRequest('GET', '/serverless/v1/http/*', 600 + number, 0.001);
  }
  for (const status of [Number.NaN, -1, 0.5]) observeRequest('GET', '/serverless/v1/http/*', status, 0.001);
  metrics.invoked('constructor', 0.001, 'id');
  const body = await page(metrics);
  expect(body).toContain('rookery_invocation_seconds_count{outcome="other"} 51');
  expect(body).toContain('rookery_function_invocation_seconds_count{tenant="acme",function="f",code="other"} 50');
  expect(body.match(/^rookery_http_request_seconds_count/gm)).toHaveLength(1);
});

test('a tenant sees its own functions and series without a tenant, and null sees all', async () => {
  const metrics = createMetrics({ version: '1' });
  const timings = { queueMs: 1, startMs: 0, loadMs: 0 };
  metrics.functionInvoked('acme', 'orders', 'ok', 0.001, timings);
  metrics.functionInvoked('umbrella', 'virus', '4002', 0.001, timings);
  metrics.functionInvoked('acme.x', 'near', 'ok', 0.001, timings);
  const entry = metrics.entry('frontend');
  const [all, acme, none] = [
    (await entry.render(null)).body,
    (await entry.render('acme')).body,
    (await entry.render('nobody')).body,
  ];
  for (const name of ['orders', 'virus', 'near']) expect(all).toContain(`function="${name}"`);
  expect(acme).toContain('rookery_function_queue_seconds_count{tenant="acme",function="orders"} 1');
  expect(acme).not.toMatch(/virus|umbrella|near|acme\.x/);
  expect(none).not.toMatch(/function="|tenant="/);
  expect(none).toContain('# HELP rookery_function_queue_seconds');
  expect(none).toMatch(/^rookery_open_calls 0$/m);
});

test('functions of two tenants may share a name, and names above the bound belong to no tenant', async () => {
  const metrics = createMetrics({ version: '1' });
  for (const tenant of ['acme', 'umbrella']) metrics.functionInvoked(tenant, 'same', 'ok', 0.001, null);
  for (let number = 0; number < 1100; number += 1) metrics.functionInvoked('acme', `f${number}`, 'ok', 0.001, null);
  const { body } = await metrics.entry('frontend').render('umbrella');
  expect(body).toContain('rookery_function_invocation_seconds_count{tenant="umbrella",function="same",code="ok"} 1');
  expect(body).toContain('rookery_function_invocation_seconds_count{tenant="",function="other",code="ok"} 102');
  expect(body).not.toContain('acme');
});

test('faults are counted by the place where they occurred', async () => {
  const metrics = createMetrics({ version: '1' });
  metrics.uncaught();
  metrics.entry('frontend').uncaught();
  metrics.entry('meta_service').uncaught();
  expect(await page(metrics)).toContain('rookery_uncaught_errors_total{scope="process"} 1');
  expect(await page(metrics)).toContain('rookery_uncaught_errors_total{scope="request"} 2');
});

test('processor time only grows, however often it is read', async () => {
  const metrics = createMetrics({ version: '1' });
  const seconds = async (): Promise<number> =>
    Number(/^process_cpu_seconds_total (.*)$/m.exec(await page(metrics))?.[1]);
  const before = await seconds();
  expect(before).toBeGreaterThan(0);
  expect(await seconds()).toBeGreaterThanOrEqual(before);
});

test('a label with quotes and newlines stays one label', async () => {
  const metrics = createMetrics({ version: 'a"b\nc' });
  expect(await page(metrics)).toContain('version="a\\"b\\nc"');
});

test('gauges of the cluster are 0 until its state is known, and leases that change hands are counted', async () => {
  const metrics = createMetrics({ version: '1' });
  expect(await page(metrics)).toContain('rookery_cluster_nodes 0\n');
  let acquired = 3;
  metrics.readFrom({
    cluster: () => ({
      nodes: 2,
      leases: { shard: 32, jobs: 1 },
      leaseChanges: { acquired, released: 1 },
      heartbeatAgeMs: 1500,
      feedBehindMs: 20,
    }),
  });
  acquired = 5;
  for (let scrape = 0; scrape < 2; scrape++) {
    const body = await page(metrics);
    expect(body).toContain('rookery_cluster_nodes 2\n');
    expect(body).toContain('rookery_cluster_leases{kind="shard"} 32\n');
    expect(body).toContain('rookery_cluster_lease_changes_total{change="acquired"} 5\n');
    expect(body).toContain('rookery_cluster_heartbeat_age_seconds 1.5\n');
    expect(body).toContain('rookery_cluster_feed_behind_seconds 0.02\n');
  }
});

test('the series of a deleted function end, and its name makes room for another', async () => {
  const metrics = createMetrics({ version: '1' });
  for (let index = 0; index < 1000; index++) metrics.functionInvoked('acme', `f${index}`, 'ok', 0.001, null);
  metrics.functionInvoked('acme', 'late', 'ok', 0.001, null);
  expect(await page(metrics)).toContain('tenant="",function="other"');
  expect(metrics.functionGone('acme', 'f7')).toBe(true);
  metrics.functionInvoked('acme', 'new', 'ok', 0.001, null);
  const body = await page(metrics);
  expect(body).not.toContain('function="f7"');
  expect(body).toContain('tenant="acme",function="new"');
  expect(metrics.functionGone('acme', 'f7')).toBe(false);
});

test('a call that ends after the delete of its function counts for the service and makes no series', async () => {
  const metrics = createMetrics({ version: '1' });
  const began = performance.now();
  await vi.waitFor(() => expect(performance.now()).toBeGreaterThan(began + 1));
  // With and without series: the first call of a function may still run when the function is deleted.
  metrics.functionInvoked('acme', 'known', 'ok', 0, null);
  for (const name of ['known', 'first']) metrics.functionGone('acme', name);
  const before = countOf(metrics);
  for (const name of ['known', 'first']) {
    metrics.functionInvoked('acme', name, 'ok', (performance.now() - began) / 1000, null);
  }
  expect(countOf(metrics)).toBe(before + 2);
  expect(await page(metrics)).not.toMatch(/function="(known|first)"/);
  const again = performance.now();
  await vi.waitFor(() => expect(performance.now()).toBeGreaterThan(again));
  metrics.functionInvoked('acme', 'known', 'ok', 0, null);
  expect(await page(metrics)).toContain('tenant="acme",function="known"');
});

const countOf = (metrics: ReturnType<typeof createMetrics>) =>
  metrics.counted.service().buckets.reduce((sum, count) => sum + count, 0);
