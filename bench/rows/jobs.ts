import { randomUUID } from 'node:crypto';
import type { Bed, BenchRow } from '../bed.ts';
import { atLeast, atMost, delay, type Measurement, median, percentile } from '../measure.ts';

const CALLERS = 16;
/** Job that waits forever, because the machine of the bench has no GPU. */
const WAITING = { entrypoint: 'true', entrypoint_num_gpus: 1 };

type Submit = (body: object) => Promise<string>;

/** Measures how soon jobs run, how many are accepted per second, and how a long queue slows down reads. */
export const jobs: BenchRow = {
  name: 'jobs',
  async measure(bed: Bed): Promise<readonly Measurement[]> {
    const { url } = await bed.rookery({ settings: ['jobs.maxOpen=100000', 'jobs.maxOpenPerTenant=100000'] });
    const submit: Submit = async body => {
      const answer = await fetch(`${url}/api/jobs/`, { method: 'POST', body: JSON.stringify(body) });
      if (answer.status !== 200) throw new Error(`a submit answered ${answer.status}: ${await answer.text()}`);
      return ((await answer.json()) as { submission_id: string }).submission_id;
    };
    const toRunning = await submitToRunning(url, submit, bed.isQuick ? 20 : 100);
    const known = await submit(WAITING);
    const getAlone = await getMs(url, known);
    const count = bed.isQuick ? 1000 : 10_000;
    const rate = await submitMany(submit, count);
    const getAmongMany = await getMs(url, known);
    const listMs = await listTimes(url);
    bed.raw.jobs = { toRunning, getAlone, getAmongMany, listMs, rate };
    return [
      { what: 'job submit → RUNNING, p50', value: median(toRunning), unit: 'ms', target: atMost('value', 20) },
      { what: 'job submit → RUNNING, p99', value: percentile(toRunning, 0.99), unit: 'ms' },
      { what: `job submits per second, ${CALLERS} callers`, value: rate, unit: '/s', target: atLeast('value', 100) },
      {
        what: `GET of a job while ${count} wait, p50`,
        value: median(getAmongMany),
        unit: 'ms',
        against: { what: 'while none waits', value: median(getAlone) },
        target: atMost('ratio', 1.5),
      },
      { what: `GET /api/jobs of ${count} jobs, p50`, value: median(listMs), unit: 'ms' },
    ];
  },
};

/** Measures jobs one at a time. The state is polled without a pause, so the error is one answer at most. */
async function submitToRunning(url: string, submit: Submit, count: number): Promise<number[]> {
  const times: number[] = [];
  for (let done = -5; done < count; done += 1) {
    const startedAt = performance.now();
    const id = await submit({ entrypoint: 'sleep 0.2', submission_id: randomUUID() });
    while (((await (await fetch(`${url}/api/jobs/${id}`)).json()) as { status: string }).status === 'PENDING');
    if (done >= 0) times.push(performance.now() - startedAt);
    await delay(50);
  }
  return times;
}

async function submitMany(submit: Submit, count: number): Promise<number> {
  const startedAt = performance.now();
  let left = count;
  const caller = async () => {
    while (left > 0) {
      left -= 1;
      await submit(WAITING);
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
  return count / ((performance.now() - startedAt) / 1000);
}

async function getMs(url: string, id: string): Promise<number[]> {
  return await timesOf(200, async () => {
    await (await fetch(`${url}/api/jobs/${id}`)).text();
  });
}

async function listTimes(url: string): Promise<number[]> {
  return await timesOf(10, async () => {
    await (await fetch(`${url}/api/jobs`)).text();
  });
}

async function timesOf(count: number, work: () => Promise<void>): Promise<number[]> {
  const times: number[] = [];
  for (let done = -2; done < count; done += 1) {
    const startedAt = performance.now();
    await work();
    if (done >= 0) times.push(performance.now() - startedAt);
  }
  return times;
}
