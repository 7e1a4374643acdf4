import { afterEach, expect, test } from 'vitest';
import { lives, type StartedManager, startManager } from '../../../test/parts/pod-manager.ts';
import type { ProcessStream, StartProcess } from '../access.ts';
import type { OpenAccess } from '../host/access-connection.ts';
import { ProcessAccess } from '../host/access-processes.ts';

const WAIT_MS = 30_000;
const signal = () => AbortSignal.timeout(WAIT_MS);
const started: StartedManager[] = [];

afterEach(async () => {
  for (const one of started.splice(0)) await one.dispose();
});

class PodProcesses extends ProcessAccess {
  protected readonly openAccess: OpenAccess;

  constructor(openAccess: OpenAccess) {
    super();
    this.openAccess = openAccess;
  }
}

async function start(): Promise<{ pod: StartedManager; processes: PodProcesses }> {
  const pod = await startManager();
  started.push(pod);
  await pod.manager.start(pod.order(), signal());
  return { pod, processes: new PodProcesses(pod.manager.openAccess) };
}

const requestOf = (script: string, changes: Partial<StartProcess> = {}): StartProcess => ({
  argv: ['sh', '-c', script],
  workingDir: '',
  env: {},
  user: '',
  terminal: null,
  stdin: false,
  timeLimitMs: 0,
  ...changes,
});

async function stdoutOf(stream: ProcessStream): Promise<string> {
  let text = '';
  for await (const { data } of stream.output) text += data.toString();
  return text;
}

test('a process of a pod outlives its connection and is found again', async () => {
  const { processes } = await start();
  const first = await processes.startProcess(requestOf('cat', { stdin: true, tag: 'echo' }), signal());
  first.close();
  expect(await processes.listProcesses(signal())).toMatchObject([{ pid: first.pid, tag: 'echo' }]);
  const again = await processes.attachProcess({ tag: 'echo' }, signal());
  await processes.writeInput(first.pid, Buffer.from('said'), false, signal());
  await processes.closeInput(first.pid, signal());
  expect(await stdoutOf(again)).toBe('said');
  expect(await again.ended).toMatchObject({ code: 0 });
});

test('a large output of a process arrives completely through the manager', async () => {
  const { processes } = await start();
  const stream = await processes.startProcess(requestOf('head -c 5000000 /dev/zero'), signal());
  expect(await stdoutOf(stream)).toHaveLength(5_000_000);
});

test('a reset of the pod ends its processes, and the next instance has a table of its own', async () => {
  const { pod, processes } = await start();
  const { pid } = await processes.startProcess(requestOf('exec sleep 60'), signal());
  await pod.manager.stop(0);
  await pod.manager.reset(signal());
  expect(lives(pid)).toBe(false);
  await pod.manager.start(pod.order(), signal());
  expect(await processes.listProcesses(signal())).toEqual([]);
});

test('the table of a pod starts again when it was killed', async () => {
  const { processes } = await start();
  // The table may end before it answers.
  const killed = processes.startProcess(requestOf('kill -9 $PPID'), signal());
  await killed.then(stream => stream.ended).catch(() => undefined);
  const run = async () => await stdoutOf(await processes.startProcess(requestOf('echo again'), signal()));
  await expect.poll(run, { timeout: WAIT_MS }).toBe('again\n');
});
